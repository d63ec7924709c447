"""Two runs in two processes under one keeper of turns: each gets its part while both have work."""

import multiprocessing
import time
from pathlib import Path

import pytest
from flower_cases import grid_of, settings, write_four
from typer.testing import CliRunner

from cutwater.cli.main import app
from cutwater.flower.server_app import serve
from cutwater.runs.audit import audit
from cutwater.serve.turns import TurnKeeper, turned

PARTS = {"a": 0.75, "b": 0.25}
"""Of the server."""
SPEED = 0.3
"""GFLOPS of it: so slow that somebody always waits for it."""
STEPS = {"a": 60, "b": 20}
"""As many as each has parts, so that both are done at about the same time."""


def write_job(folder, run):
    """Four clients that leave all layers but the first to the server."""
    folder.mkdir()
    path = write_four(folder, rounds=1)
    text = (
        path.read_text()
        .replace("min_cut = 2\nforbidden = [6]\n", "")
        .replace("steps = 3", f"steps = {STEPS[run]}")
    )
    for slow in ("0.002 GFLOPS", "0.02 GFLOPS", "0.2 GFLOPS", "2 GFLOPS"):
        text = text.replace(f'"{slow}"', '"900 GFLOPS"')
    for slow in ("0.5 MB/s", "0.05 MB/s", "2 MB/s", "4 MB/s"):
        text = text.replace(f'"{slow}"', '"9 GB/s"')
    text = text.replace("samples = ", "forbidden = [2, 3, 4, 5, 6]\nsamples = ")
    path.write_text(text.replace("0.5 GFLOPS", f"{PARTS[run] * SPEED} GFLOPS"))
    return path


def play(run, path, place, both):
    """A run of a process of its own, with nodes in threads."""
    given = settings(path, turns=place, emulate=True, run_dir=str(path.parent / "run"))
    grid = grid_of(given)
    both.wait(600)
    serve(grid, run, given)


def watch(place, runs):
    """What both were promised and got, again and again until they are over."""
    seen = []
    while any(run.is_alive() for run in runs):
        seen.append({each.run: each for each in turned(place)})
        time.sleep(0.05)
    return seen


def test_each_run_gets_its_part_while_both_have_work(tmp_path):
    place = Path("/tmp") / f"cutwater-{tmp_path.name[-20:]}.sock"
    spawn = multiprocessing.get_context("spawn")
    both = spawn.Barrier(2)
    with TurnKeeper(place):
        runs = [
            spawn.Process(target=play, args=(run, write_job(tmp_path / run, run), str(place), both))
            for run in PARTS
        ]
        for run in runs:
            run.start()
        seen = watch(place, runs)
        for run in runs:
            run.join(60)
        last = {each.run: each for each in turned(place)}
        told = CliRunner().invoke(app, ["turns", str(place), "--report"]).output
    assert [run.exitcode for run in runs] == [0, 0]
    assert all(each.over for each in last.values())
    assert all(f"{run} (over)" in told for run in PARTS)
    # As long as both have work: from when each has got a tenth of it until one has got nine tenths.
    busy = [
        each
        for each in seen
        if len(each) == 2 and all(0.1 < each[run].delivered / last[run].delivered < 0.9 for run in PARTS)
    ]
    assert len(busy) >= 2
    got, promised = {}, {}
    for run in PARTS:
        got[run] = busy[-1][run].delivered - busy[0][run].delivered
        promised[run] = busy[-1][run].promised - busy[0][run].promised
        assert got[run] == pytest.approx(promised[run], rel=0.05)
    assert got["a"] / sum(got.values()) == pytest.approx(PARTS["a"], rel=0.05)
    for run in PARTS:
        kept = audit(tmp_path / run / "run").rounds[0]
        assert kept.delivered_flops == last[run].delivered
        assert 0.95 * last[run].promised <= kept.promised_flops <= last[run].promised * (1 + 1e-9)
        line = CliRunner().invoke(app, ["audit", str(tmp_path / run / "run")]).output
        assert "Of the server that it shares with other runs it was promised" in line
