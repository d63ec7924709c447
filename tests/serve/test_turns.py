"""Turns between processes: one at a time, as often as each one's part says, whoever comes, goes or dies."""

import json
import socket
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutwater.base.errors import EngineError
from cutwater.cli.main import app
from cutwater.serve.shares import ShareScheduler
from cutwater.serve.turns import Turned, TurnKeeper, Turns, turned


@pytest.fixture
def path(tmp_path):
    # A socket's name may be a hundred letters long.
    short = Path("/tmp") / f"cutwater-{tmp_path.name[-20:]}.sock"
    with TurnKeeper(short):
        yield short
    assert not short.exists()


def test_runs_compute_one_at_a_time_and_in_proportion_to_their_parts(path):
    order, inside, together = [], [], []
    gate = threading.Event()

    def piece(run):
        inside.append(run)
        together.append(len(inside))
        order.append(run)
        inside.remove(run)

    parts, count = {"a": 1.0, "b": 3.0}, 120
    schedulers = {run: ShareScheduler(turns=Turns(path, run, part)) for run, part in parts.items()}
    # Both have all their work before either begins.
    blocker = Turns(path, "gate", 1e-9)
    blocker.take(1e-9)
    lanes = {run: scheduler.lane("k", parts[run]) for run, scheduler in schedulers.items()}
    done = [lane.submit(lambda run=run: piece(run), 1.0) for run, lane in lanes.items() for _ in range(count)]
    while sum(len(found) for found in (turned(path),)) < 3:
        gate.wait(0.01)
    gate.wait(0.2)  # until both have asked; were one late, the other would only have a few turns more
    blocker.give()
    for each in done:
        each.result(30)
    both = order[: count * 4 // 3]  # as long as both have work
    assert abs(both.count("b") - 3 * both.count("a")) <= 8
    assert set(together) == {1}
    found = {each.run: each for each in turned(path)}
    for run in parts:
        assert found[run].delivered == count
        assert found[run].delivered >= found[run].promised - 2
    for scheduler in schedulers.values():
        scheduler.close()


def test_a_turn_is_given_back_when_there_is_nothing_to_do_or_nobody_left(path):
    first, second = Turns(path, "a", 1.0), Turns(path, "b", 1.0)
    first.take(5.0)
    first.give()
    second.take(5.0)  # would wait for ever if it were not
    waiting = threading.Thread(target=first.take, args=(5.0,))
    waiting.start()
    second.close()  # in the middle of its turn, as a process that dies does
    waiting.join(10)
    assert not waiting.is_alive()
    assert [(each.run, each.over) for each in turned(path)] == [("b", True), ("a", False)]
    first.close()


def test_the_account_of_a_run_outlives_it_and_goes_on_if_it_comes_back(path):
    for number in (1, 2):
        turns = Turns(path, "a", 2.0)
        turns.take(5.0)
        turns.give()
        assert turns.account() == Turned("a", 2.0, 5.0 * number, 5.0 * number)
        turns.close()
        until(lambda: turned(path)[0].over)
        assert turned(path) == [Turned("a", 2.0, 5.0 * number, 5.0 * number, over=True)]


def until(so):
    for _ in range(500):
        if so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never was so")


def test_only_its_owner_may_connect_and_a_name_is_taken_once(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    one = Turns(path, "a", 1.0)
    with pytest.raises(EngineError, match="refuses: 'a' has a share already"):
        Turns(path, "a", 1.0)
    with pytest.raises(EngineError, match="but must be a finite number of FLOPS above 0"):
        Turns(path, "b", 0.0)
    with pytest.raises(EngineError, match="turns are kept there already"), TurnKeeper(path):
        pass
    one.close()


@pytest.mark.parametrize(
    "line", [b"no json\n", b"[]\n", b'{"ask":1}\n', b'{"run":1}\n', b"x" * 10_000 + b"\n"]
)
def test_lines_that_are_none_of_ours_end_a_connection_and_nothing_else(path, line):
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(path))
        stranger.sendall(line)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):
            pass
    turns = Turns(path, "a", 1.0)
    turns.take(1.0)
    turns.close()


def test_without_a_keeper_one_is_told_how_to_start_it(tmp_path):
    with pytest.raises(EngineError, match="no keeper of turns listens at "):
        Turns(tmp_path / "none.sock", "a", 1.0)


def test_a_keeper_that_ends_fails_the_work_that_waits_for_it(tmp_path):
    place = Path("/tmp") / f"cutwater-end-{tmp_path.name[-20:]}.sock"
    with TurnKeeper(place):
        scheduler = ShareScheduler(turns=Turns(place, "a", 1.0))
        assert scheduler.lane("k", 1.0).submit(lambda: 7, 1.0).result(10) == 7
    with pytest.raises(EngineError, match="is gone: start cutwater turns again"):
        scheduler.lane("l", 1.0).submit(lambda: 7, 1.0).result(10)
    scheduler.close()


def test_a_turn_is_given_back_to_a_keeper_that_is_gone_without_a_word(tmp_path):
    place = Path("/tmp") / f"cutwater-gone-{tmp_path.name[-20:]}.sock"
    with TurnKeeper(place):
        turns = Turns(place, "a", 1.0)
        turns.take(1.0)
    turns.give()
    with pytest.raises(EngineError, match="is gone: start cutwater turns again"):
        turns.take(1.0)
    turns.close()


def test_the_report_is_a_table_and_json(path):
    turns = Turns(path, "run7", 2e9)
    turns.take(3e9)
    command = ["turns", str(path), "--report"]
    plain = CliRunner().invoke(app, command).output
    assert "run7" in plain
    assert "2 GFLOPS" in plain
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert told == [{"run": "run7", "part": 2e9, "promised": 3e9, "delivered": 3e9, "over": False}]
    turns.close()
    until(lambda: turned(path)[0].over)
    assert "run7 (over)" in CliRunner().invoke(app, command).output
