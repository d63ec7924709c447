"""The power goes at any moment: what was said to be kept is, and a resumed run has the same bits."""

from itertools import product

import pytest
from collecting import run
from lost_writes import Disk, after_power_loss, lay_out
from small_study import small_study

from cutwater.execute.local import LocalTrainer
from cutwater.federate.clock import VirtualClock
from cutwater.federate.loop import rounds
from cutwater.runs import metrics
from cutwater.runs.checkpoint import load_run
from cutwater.runs.folder import begin

ROUNDS = 4


def study():
    return small_study(
        train={"rounds": ROUNDS, "keep_best": "accuracy", "aggregator": "fedadam"},
        conditions={"dropout": 0.1},
    )


def trained(path, *, resume, saved=lambda number: None):
    """Train in a folder, and say of each round when it is kept; the round that was gone on from."""
    mine = study()
    folder, progress = begin(mine, path, engine="test", resume=resume, must_exist=False)
    try:
        executor = VirtualClock(mine, LocalTrainer(mine.job(), mine.test()))
        for round_ in rounds(mine, executor, progress, ROUNDS):
            folder.save(round_)
            saved(round_.progress.round)
        executor.close()
    finally:
        folder.close()
    return progress.round


def story(path):
    lines = metrics.read(path / "metrics.jsonl")
    best = load_run(path, best=True)
    return [line.weights_sha256 for line in lines], best.round, load_run(path).round


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """All calls of an undisturbed run, and what it came to."""
    root = tmp_path_factory.mktemp("power")
    disk = Disk(root)
    with disk.watched():
        trained(root / "run", resume=False, saved=lambda number: disk.mark(str(number)))
    reference = [each.record.weights_sha256 for each in run(study())]
    assert story(root / "run")[0] == reference
    return disk.log, story(root / "run")


def test_a_round_is_safe_with_all_its_files_when_it_is_said_to_be_kept(recorded):
    log, _ = recorded
    for moment, call in enumerate(log):
        if call.what == "mark":
            tree = after_power_loss(log[:moment], names=False, contents=False)
            number = int(call.path)
            files = (
                *(f"run/{folder}/{number:05d}.json" for folder in ("plans", "rounds")),
                f"run/checkpoints/round-{number:06d}.safetensors",
            )
            assert all(tree[file] for file in files)
            assert tree["run/metrics.jsonl"].count(b"\n") == number
            assert tree["run/run.json"]


@pytest.mark.chaos
@pytest.mark.parametrize(("names", "contents"), list(product([False, True], repeat=2)))
def test_whenever_the_power_goes_kept_rounds_are_there_and_a_resumed_run_has_the_same_bits(
    recorded, tmp_path, names, contents, record_property
):
    log, reference = recorded
    seen = set()
    for moment in range(len(log) + 1):
        before = log[:moment]
        tree = after_power_loss(before, names=names, contents=contents)
        kept = max((int(call.path) for call in before if call.what == "mark"), default=0)
        state = (kept, *sorted(tree.items(), key=str))
        if state in seen:
            continue
        seen.add(state)
        place = tmp_path / f"{moment:05d}"
        lay_out(tree, place)
        came_back = trained(place / "run", resume=True)
        assert came_back >= kept, f"round {kept} was kept, but {came_back} was found after call {moment}"
        assert story(place / "run") == reference, f"after call {moment}: {log[moment - 1]}"
    record_property("states of the disk", len(seen))
    record_property("calls", len(log))


def test_what_was_never_flushed_is_lost_in_this_model_of_a_disk(tmp_path):
    """What the test above stands on: without a sync, neither content nor name is safe."""
    disk = Disk(tmp_path)
    with disk.watched(), (tmp_path / "a").open("ab") as file:
        file.write(b"hello")
    assert after_power_loss(disk.log, names=False, contents=False) == {".": None}
    assert after_power_loss(disk.log, names=True, contents=False) == {".": None, "a": b""}
    assert after_power_loss(disk.log, names=True, contents=True) == {".": None, "a": b"hello"}
