"""A run on disk: what is in the folder, how it is resumed, what is refused."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from collecting import run
from small_study import small_study
from torch import nn

from cutwater.base.errors import RunError
from cutwater.base.jsonfile import read_json
from cutwater.plan.problem import Server
from cutwater.plan.value import Plan
from cutwater.profile.values import Profile
from cutwater.runs import checkpoint, metrics
from cutwater.runs.folder import RunFolder, begin


def rounds(study, count):
    return replace(study, train=replace(study.train, rounds=count))


def digests(folder):
    return [row.weights_sha256 for row in metrics.read(folder / "metrics.jsonl")]


@pytest.fixture
def study():
    return small_study(
        train={"clients_per_round": 3},
        conditions={"change": "jitter", "estimate": "average", "dropout": 0.2},
    )


@pytest.fixture
def whole(study, tmp_path):
    """The folder of a run that nothing interrupted."""
    run(study, tmp_path / "whole", scenario="# a comment\n")
    return tmp_path / "whole"


def test_the_folder_holds_what_the_documentation_says(study, whole):
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    per_round = [f"{kind}/{number:05d}.json" for kind in ("plans", "rounds") for number in range(1, 5)]
    kept = ["checkpoints/round-000003.safetensors", "checkpoints/round-000004.safetensors"]
    assert names == sorted(
        [".lock", "metrics.jsonl", "profile.json", "run.json", "scenario.toml", *per_round, *kept]
    )
    assert (whole / "scenario.toml").read_text() == "# a comment\n"
    assert Profile.from_json(read_json(whole / "profile.json")).cuts == study.profile.cuts
    description = read_json(whole / "run.json")
    assert (description["format"], description["planner"], description["engine"]) == (
        "cutwater.run",
        "exact",
        "local",
    )
    assert set(description["versions"]) >= {"cutwater", "torch", "numpy", "python"}


def test_plans_rounds_metrics_and_checkpoint_tell_the_same_story(whole):
    for row in metrics.read(whole / "metrics.jsonl"):
        plan = Plan.from_json(read_json(whole / "plans" / f"{row.round:05d}.json"))
        played = read_json(whole / "rounds" / f"{row.round:05d}.json")
        assert plan.latency == played["planned_seconds"] == row.planned_seconds
        assert played["actual_seconds"] == row.actual_seconds
        done = [client["name"] for client in played["clients"] if client["outcome"] == "done"]
        assert tuple(done) == row.clients
        assert {c["name"]: c["outcome"] for c in played["clients"] if c["outcome"] != "done"} == row.lost
    assert checkpoint.load_newest(whole / "checkpoints").checkpoint.weights_sha256 == row.weights_sha256


def test_a_run_in_pieces_has_the_bits_and_the_clock_of_one_in_one_go(study, whole, tmp_path):
    folder = tmp_path / "pieces"
    run(rounds(study, 1), folder)
    run(rounds(study, 3), folder, resume=True, workers=2)
    run(study, folder, resume=True)
    for one, other in zip(
        metrics.read(whole / "metrics.jsonl"), metrics.read(folder / "metrics.jsonl"), strict=True
    ):
        assert replace(one, wall_seconds=0) == replace(other, wall_seconds=0)


def test_resuming_a_finished_run_does_nothing(study, whole):
    before = digests(whole)
    assert run(study, whole, resume=True) == []
    assert digests(whole) == before


def test_resume_of_an_empty_folder_begins(study, tmp_path):
    (tmp_path / "new").mkdir()
    said = []
    assert len(run(study, tmp_path / "new", resume=True, say=said.append)) == 4
    assert said == [f"{tmp_path / 'new'} holds no round yet: the run begins with the first"]


def test_resume_of_a_folder_that_does_not_exist_is_a_mistake_in_its_name(study, tmp_path):
    with pytest.raises(RunError, match=r"typo does not exist, .* or leave resume=True out to begin it"):
        run(study, tmp_path / "typo", resume=True)
    assert not (tmp_path / "typo").exists()


def test_a_torn_metrics_line_and_one_ahead_of_the_checkpoint_are_cut_back(study, whole, tmp_path):
    folder = tmp_path / "torn"
    run(rounds(study, 2), folder)
    with (folder / "metrics.jsonl").open("ab") as file:
        row = metrics.read(folder / "metrics.jsonl")[-1]
        file.write(
            json.dumps({**vars(row), "round": 3, "weights_sha256": "of a killed round"}).encode() + b"\n"
        )
        file.write(b'{"round": 4, "virt')
    run(study, folder, resume=True)
    assert digests(folder) == digests(whole)


def test_a_damaged_newest_checkpoint_falls_back_one_round_and_says_so(study, whole, tmp_path):
    folder = tmp_path / "damaged"
    run(rounds(study, 3), folder)
    newest = folder / "checkpoints" / "round-000003.safetensors"
    content = bytearray(newest.read_bytes())
    content[-3] ^= 0x40
    newest.write_bytes(content)
    said = []
    steps = run(study, folder, resume=True, say=said.append)
    assert [step.record.round for step in steps] == [3, 4]
    assert len(said) == 1
    assert "round-000003.safetensors is damaged" in said[0]
    assert "falling back" in said[0]
    assert digests(folder) == digests(whole)


def test_a_folder_without_any_whole_checkpoint_is_refused(study, tmp_path):
    run(rounds(study, 2), tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"no checkpoint in .* is whole"):
        run(study, tmp_path / "run", resume=True)


def test_a_folder_with_a_run_needs_resume(study, whole):
    with pytest.raises(RunError, match="holds a run already: go on with it by resume=True"):
        run(study, whole)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda study: study.with_planner("fedavg"), "planner"),
        (lambda study: replace(study, server=Server(9e9)), "server.compute"),
        (lambda study: replace(study, train=replace(study.train, seed=99)), "train.seed"),
        (lambda study: replace(study, train=replace(study.train, deadline=7.0)), "train.deadline"),
        (
            lambda study: replace(study, conditions=replace(study.conditions, dropout=0.0)),
            "conditions.dropout",
        ),
    ],
    ids=["planner", "server", "seed", "deadline", "conditions"],
)
def test_the_run_of_another_scenario_is_refused_and_what_differs_named(study, whole, change, named):
    with pytest.raises(RunError, match=rf"holds a run of another scenario \(they differ in {named}\), which"):
        run(change(study), whole, resume=True)


def test_more_rounds_of_a_schedule_that_runs_down_need_its_horizon(tmp_path):
    study = small_study(train={"schedule": "cosine", "rounds": 2})
    run(study, tmp_path / "run")
    with pytest.raises(RunError, match=r"differ in train.horizon; to train longer, set horizon"):
        run(rounds(study, 3), tmp_path / "run", resume=True)
    longer = replace(study, train=replace(study.train, rounds=3, horizon=2))
    assert len(run(longer, tmp_path / "run", resume=True)) == 1


def test_a_run_of_a_release_that_named_no_parts_is_refused_as_such(study, whole):
    known = read_json(whole / "run.json")
    del known["parts"]
    (whole / "run.json").write_text(json.dumps({**known, "fingerprint": "of old"}))
    with pytest.raises(RunError, match="another scenario \\(or of another release\\)"):
        run(study, whole, resume=True)


def test_other_data_under_the_same_name_is_another_scenario(study, whole):
    from small_study import small_data

    other = small_study(
        data=small_data(classes=2),
        train={"clients_per_round": 3},
        conditions={"change": "jitter", "estimate": "average", "dropout": 0.2},
    )
    with pytest.raises(RunError, match="holds a run of another scenario"):
        run(other, whole, resume=True)


def test_a_folder_with_other_things_in_it_is_refused(study, tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(RunError, match=r"holds 'thesis.tex' and no run"):
        run(study, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


@pytest.mark.parametrize("kept", ["measured", "plans"])
def test_a_run_that_was_killed_while_its_first_round_was_written_is_begun_anew(study, tmp_path, kept):
    folder, _ = begin(study, tmp_path, engine="local")
    folder.close()
    (tmp_path / kept).mkdir()
    (tmp_path / kept / "00001.json").write_text("{}")
    run(rounds(study, 1), tmp_path, resume=True)
    assert len(digests(tmp_path)) == 1


def test_a_file_is_no_folder(study, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file, but a run needs a folder"):
        run(study, tmp_path / "file")


def test_a_damaged_description_is_one_sentence(study, whole):
    (whole / "run.json").write_text("{")
    with pytest.raises(Exception, match=r"run.json is not JSON"):
        run(study, whole, resume=True)


HOLD = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(handle, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_cannot_train_in_one_folder(study, whole):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(whole / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="is being trained in by another process"):
            run(study, whole, resume=True)
    finally:
        holder.communicate("")
    assert run(study, whole, resume=True) == []


def test_a_run_that_another_process_begins_meanwhile_is_left_alone(study, tmp_path, monkeypatch):
    taken = RunFolder.lock

    def late(folder):
        monkeypatch.setattr(RunFolder, "lock", taken)
        run(study, tmp_path / "run")
        taken(folder)

    monkeypatch.setattr(RunFolder, "lock", late)
    with pytest.raises(RunError, match="was begun by another process at the same time"):
        run(study.with_planner("fedavg"), tmp_path / "run")
    assert run(study, tmp_path / "run", resume=True) == []


def test_a_folder_is_free_again_after_a_run_and_after_a_failure(study, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    run(study, tmp_path / "one")
    with pytest.raises(RunError):
        run(study.with_planner("fedavg"), tmp_path / "one", resume=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_kill_at_the_beginning_leaves_is_no_obstacle(study, tmp_path):
    folder = tmp_path / "run"
    begun, _ = begin(study, folder, engine="local", scenario="x = 1")
    begun.close()
    (folder / "run.json").rename(folder / ".run.json.abcd")
    assert len(run(study, folder)) == 4


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("other", [False, True])
def test_a_run_that_lost_its_checkpoints_is_never_begun_anew(study, whole, resume, other):
    shutil.rmtree(whole / "checkpoints")
    before = content(whole)
    reason = "another scenario" if other else "holds 4 rounds, but no checkpoint in .*: put the newest back"
    with pytest.raises(RunError, match=reason if resume else "holds a run already"):
        run(study.with_planner("fedavg") if other else study, whole, resume=resume)
    assert content(whole) == before


@pytest.mark.parametrize("left", [("checkpoints",), ("metrics.jsonl",), ("rounds",)], ids="-".join)
@pytest.mark.parametrize("resume", [False, True])
def test_rounds_without_a_description_are_nobodys_to_go_on_with(study, whole, left, resume):
    (whole / "run.json").unlink()
    for name in {"checkpoints", "metrics.jsonl", "rounds"}.difference(left):
        (whole / name).rename(whole.parent / name)
    before = content(whole)
    with pytest.raises(RunError, match=r"holds rounds of a run whose run.json is missing: name another"):
        run(study.with_planner("fedavg"), whole, resume=resume)
    assert content(whole) == before


def test_a_kill_before_the_first_checkpoint_is_resumed_from_the_start(study, whole, tmp_path):
    folder = tmp_path / "killed"
    run(rounds(study, 1), folder)
    shutil.rmtree(folder / "checkpoints")
    with pytest.raises(RunError, match="holds a run already"):
        run(study, folder)
    run(study, folder, resume=True)
    assert digests(folder) == digests(whole)


def test_the_checkpoint_of_another_model_is_refused(study, whole, tmp_path):
    other = small_study(model=nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)))
    run(other, tmp_path / "other")
    shutil.rmtree(whole / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", whole / "checkpoints")
    before = content(whole)
    with pytest.raises(RunError, match=r"checkpoint of round 4 in .* is of another model"):
        run(study, whole, resume=True)
    assert content(whole) == before


def _kept(folder, **changes):
    """The newest checkpoint with something of it changed."""
    found = checkpoint.load_newest(folder / "checkpoints").checkpoint
    weights = {
        name: (tensor.to(changes.get("dtype", tensor.dtype)) + changes.get("fill", 0.0))
        if tensor.is_floating_point()
        else tensor
        for name, tensor in found.weights.items()
    }
    made = replace(found, weights=weights, state=changes.get("state", found.state))
    checkpoint.save(folder / "checkpoints", made)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"state": {}}, "does not tell where training stood"),
        ({"state": {"virtual_seconds": "x"}}, "does not tell where training stood"),
        ({"dtype": torch.float64}, "is of another model"),
        ({"fill": float("nan")}, "that is not finite"),
    ],
)
def test_a_crafted_checkpoint_is_refused_in_a_sentence_and_no_client_is_blamed(tmp_path, changes, sentence):
    run(small_study(train={"rounds": 1}), tmp_path / "run")
    _kept(tmp_path / "run", **changes)
    with pytest.raises(RunError, match=sentence):
        run(small_study(train={"rounds": 2}), tmp_path / "run", resume=True)


def test_what_a_kill_in_the_middle_of_writing_leaves_is_removed_when_the_run_goes_on(tmp_path):
    folder = tmp_path / "run"
    run(small_study(train={"rounds": 1}), folder)
    left = [folder / "rounds/.00006.json.0123456789abcdef", folder / ".run.json.0123456789abcdef"]
    mine = folder / "rounds/.notes"
    for path in (*left, mine):
        path.write_text("half")
    run(small_study(train={"rounds": 2}), folder, resume=True)
    assert not any(path.exists() for path in left)
    assert mine.exists()
