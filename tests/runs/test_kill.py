"""Kill -9 at any moment, resume: the bits of a run that nothing interrupted. Real processes, real command."""

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from schedules import schedule

from cutwater.cli.main import main
from cutwater.runs import metrics
from cutwater.runs.checkpoint import load_run
from cutwater.train.aggregate import weights_sha256

SCENARIO = """
[model]
name = "mlp"
input = "1x8x8"
classes = 10

[server]
compute = "1 GFLOPS"

[session]
steps = 3
batch_size = 8

[fleet]
clients = 6
compute = ["0.5 MFLOPS", "40 MFLOPS"]
rate = ["50 kB/s", "400 kB/s"]
samples = [40, 90]
seed = 3

[data]
source = "digits"
partition = "dirichlet"

[train]
rounds = 10
clients_per_round = 4
lr = 0.05
momentum = 0.9
seed = 7
keep_best = "accuracy"

[conditions]
change = "jitter"
estimate = "average"
dropout = 0.1
"""


KILLS = int(os.environ.get("CUTWATER_KILLS", "3"))
"""How many runs are killed, each once and in a folder of its own; `make chaos` kills more."""
IN_A_ROW = 6
"""How often one run is killed within its rounds."""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "small.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="module")
def reference(scenario, tmp_path_factory) -> list[dict]:
    """The rounds of a run that nothing interrupted; wall time aside, all others must have these."""
    folder = tmp_path_factory.mktemp("reference") / "run"
    # In this process, so that those forked from it find everything imported and compiled.
    assert call(scenario, folder, "--workers", "1") == 0
    return story(folder)


def story(folder: Path) -> list[dict]:
    """All lines and, in the last, the digest of the best model that was kept."""
    lines = [{**vars(line), "wall_seconds": None} for line in metrics.read(folder / "metrics.jsonl")]
    best = load_run(folder, best=True)
    assert best.best == replace(lines[-1]["best"], waited=0)
    assert weights_sha256(best.weights) == lines[best.round - 1]["weights_sha256"]
    return lines


def call(scenario: Path, folder: Path, *more: str) -> int:
    """The command in this process."""
    before = sys.argv
    sys.argv = ["cutwater", "train", str(scenario), "--run", str(folder), *more]
    try:
        main()
    except SystemExit as exit_:
        return exit_.code or 0
    finally:
        sys.argv = before
    return 0


def forked(scenario: Path, folder: Path, *more: str) -> int:
    """The command in a process of its own, without the seconds that a new interpreter takes to begin."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        sys.stdout = sys.stderr = (folder.parent / "said.txt").open("a", buffering=1)
        code = call(scenario, folder, *more)
    finally:
        os._exit(code)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments_and_resumed_a_run_has_the_same_bits(scenario, reference, tmp_path, workers):
    folder = tmp_path / "run"
    moments, kills = schedule("kills in a row", workers), 0
    folder.mkdir()
    # Before anything is in the folder, while it begins, and within rounds: in training, saving and between.
    for rounds in (0, 0, *sorted(moments.randrange(1, 9) for _ in range(IN_A_ROW))):
        child = forked(scenario, folder, "--resume", "--workers", str(workers))
        while len(metrics.read(folder / "metrics.jsonl")) < rounds and not ended(child):
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.05 if rounds else 0.3))
        if not ended(child):
            os.kill(child, signal.SIGKILL)
            kills += 1
        assert wait(child) in (0, -signal.SIGKILL)
    assert kills >= 3
    assert wait(forked(scenario, folder, "--resume", "--workers", str(workers))) == 0
    assert story(folder) == reference


def test_each_run_that_is_killed_once_at_any_moment_has_the_same_bits_when_it_is_resumed(
    scenario, reference, tmp_path, record_property
):
    """By the clock over the whole run, and right behind a line of metrics.jsonl, in the middle of a save."""
    moments, kills, rounds_kept = schedule("independent kills"), 0, set()
    began = time.monotonic()
    assert wait(forked(scenario, tmp_path / "whole", "--workers", "1")) == 0
    whole = time.monotonic() - began
    while kills < KILLS:
        folder = tmp_path / f"run-{kills}"
        child = forked(scenario, folder, "--workers", "1")
        after = moments.randrange(0, 10) if kills % 2 else None
        if after is None:
            time.sleep(moments.uniform(0.0, whole))
        else:
            while len(metrics.read(folder / "metrics.jsonl")) < after and not ended(child):
                time.sleep(0.0005)
            time.sleep(moments.uniform(0.0, 0.02))
        os.kill(child, signal.SIGKILL)
        if wait(child) != -signal.SIGKILL:
            shutil.rmtree(folder)
            continue
        kills += 1
        rounds_kept.add(len(metrics.read(folder / "metrics.jsonl")))
        folder.mkdir(exist_ok=True)
        assert wait(forked(scenario, folder, "--resume", "--workers", "1")) == 0
        assert story(folder) == reference
        shutil.rmtree(folder)
    record_property("kills of the trainer, same hash", kills)
    record_property("rounds they were in, at most", float(len(rounds_kept)))


def test_the_installed_command_survives_a_kill_too(scenario, reference, tmp_path):
    """As a user runs it: a new interpreter each time."""
    folder = tmp_path / "run"
    process = command(scenario, folder)
    rounds_seen(folder, 4, process)
    process.kill()
    process.communicate()
    process = command(scenario, folder)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert "FedAvg's clock" in out
    assert story(folder) == reference


def test_an_interrupt_leaves_a_folder_and_says_how_to_go_on(scenario, reference, tmp_path):
    folder = tmp_path / "my run"
    process = command(scenario, folder)
    rounds_seen(folder, 2, process)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in error
    said = re.search(r"stopped; (\d+) rounds are kept. Go on with:\s+(cutwater train .*--resume)", error)
    assert int(said[1]) == len(metrics.read(folder / "metrics.jsonl"))
    assert f"--run '{folder}'" in said[2]
    assert wait(forked(scenario, folder, "--resume", "--workers", "2")) == 0
    assert story(folder) == reference


def test_a_killed_worker_changes_nothing(scenario, reference, tmp_path):
    folder = tmp_path / "run"
    child = forked(scenario, folder, "--workers", "2")
    killed = 0
    while not ended(child) and killed < 2:
        time.sleep(0.02)
        for worker in Path(f"/proc/{child}/task/{child}/children").read_text().split():
            if len(metrics.read(folder / "metrics.jsonl")) > 2 * killed:
                os.kill(int(worker), signal.SIGKILL)
                killed += 1
                break
    assert wait(child) == 0
    assert killed == 2
    assert story(folder) == reference


def test_a_damaged_checkpoint_after_a_kill_falls_back_and_says_so(scenario, reference, tmp_path):
    folder = tmp_path / "run"
    child = forked(scenario, folder, "--workers", "1")
    while len(metrics.read(folder / "metrics.jsonl")) < 4 and not ended(child):
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    wait(child)
    newest = max((folder / "checkpoints").glob("round-*"))
    newest.write_bytes(newest.read_bytes()[:-100])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"round": 9, "los')
    assert wait(forked(scenario, folder, "--resume")) == 0
    said = (tmp_path / "said.txt").read_text()
    assert f"{newest.name} is damaged" in said
    assert "falling back to the checkpoint before it" in said
    assert story(folder) == reference


def test_nothing_is_ever_unpickled(scenario, reference, tmp_path, monkeypatch):
    """Training, workers and resuming with every way to unpickle taken away."""

    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    refusing = type("Unpickler", (pickle.Unpickler,), {"__init__": refuse})
    # The planner's compiled code is in memory by now; numba keeps it on disk much as Python keeps its own.
    for module, name in ((pickle, "loads"), (pickle, "load"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(pickle, "Unpickler", refusing)
    folder = tmp_path / "run"
    child = forked(scenario, folder, "--rounds", "4", "--workers", "2")
    assert wait(child) == 0
    assert wait(forked(scenario, folder, "--resume", "--workers", "2")) == 0
    assert story(folder) == reference


def command(scenario: Path, folder: Path) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            Path(sys.executable).with_name("cutwater"),
            *("train", str(scenario), "--run", str(folder), "--resume", "--workers", "2"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rounds_seen(folder: Path, count: int, process: subprocess.Popen) -> None:
    while len(metrics.read(folder / "metrics.jsonl")) < count and process.poll() is None:
        time.sleep(0.002)
