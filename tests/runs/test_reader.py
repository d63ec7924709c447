"""Reading run folders: half-written files, damaged ones, and folders that try to lead elsewhere."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import RunError
from cutwater.runs import reader as run_folder
from cutwater.runs.reader import Folder, find_runs, read_document, read_metrics, round_numbers


def test_a_line_that_is_still_being_written_is_neither_used_nor_complained_about(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\n{"round": 2}\n{"round": 3, "lo')
    lines, notes = read_metrics(Folder(tmp_path))
    assert [line["round"] for line in lines] == [1, 2]
    assert notes == []


def test_a_damaged_line_is_left_out_and_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"round": 1}\nnonsense\n[1]\n{"round": 4}\n')
    lines, notes = read_metrics(Folder(tmp_path))
    assert [line["round"] for line in lines] == [1, 4]
    assert [note.split(" can't")[0] for note in notes] == [
        "line 2 of metrics.jsonl",
        "line 3 of metrics.jsonl",
    ]


def test_where_a_round_was_written_twice_the_later_line_holds(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"round": 2, "loss": 9}\n{"round": 1}\n{"round": 2, "loss": 5}\n'
    )
    lines, _ = read_metrics(Folder(tmp_path))
    assert lines == [{"round": 1}, {"round": 2, "loss": 5}]


@settings(deadline=None, max_examples=60)
@given(
    st.binary(max_size=300)
    | st.sampled_from([b'{"round": Infinity}\n', b'{"round": true}\n', b"[" * 100_000 + b"\n"])
)
def test_whatever_metrics_hold_reading_them_ends_well(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("run")
    (folder / "metrics.jsonl").write_bytes(content)
    lines, _ = read_metrics(Folder(folder))
    assert all(type(line["round"]) is int for line in lines)


def test_missing_and_broken_documents_are_none(tmp_path):
    (tmp_path / "half.json").write_text('{"a": ')
    (tmp_path / "list.json").write_text("[1]")
    folder = Folder(tmp_path)
    assert [read_document(folder, name) for name in ("half.json", "list.json", "none.json", "a/b.json")] == [
        None
    ] * 4


def test_a_folder_in_the_place_of_a_file_is_refused_and_left_closed(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunError, match=r"metrics\.jsonl in .* is no plain file"):
        read_metrics(Folder(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


def test_round_numbers_pass_over_temporary_and_foreign_files(tmp_path):
    (tmp_path / "rounds").mkdir()
    for name in ("00002.json", "00010.json", ".00011.json.x1", "readme.txt", "abc.json"):
        (tmp_path / "rounds" / name).write_text("{}")
    assert round_numbers(Folder(tmp_path)) == [2, 10]


@pytest.mark.parametrize("name", ["../secret", "a/../../secret", "/etc/passwd", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "runs").mkdir()
    with pytest.raises(RunError, match="not below the folder"):
        Folder(tmp_path / "runs").read(name)


def test_symbolic_links_are_not_followed_neither_as_file_nor_on_the_way(tmp_path):
    outside, runs = tmp_path / "outside", tmp_path / "runs"
    outside.mkdir()
    (outside / "metrics.jsonl").write_text('{"round": 1}\n')
    (runs / "honest").mkdir(parents=True)
    (runs / "honest" / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    (runs / "linked").symlink_to(outside)
    folder = Folder(runs)
    with pytest.raises(RunError, match="can't be read"):
        folder.read("honest/metrics.jsonl")
    assert folder.read("linked/metrics.jsonl") is None
    assert folder.entries("linked") == []
    with pytest.raises(RunError, match="no folder 'linked'"):
        folder.inside("linked")
    assert "linked" not in list(find_runs(folder))


def test_a_pipe_in_a_run_folder_does_not_hang_the_reader(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(RunError, match="no plain file"):
        Folder(tmp_path).read("metrics.jsonl")


def test_a_file_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "LARGEST", 10)
    (tmp_path / "run.json").write_text(json.dumps({"a": "long enough"}))
    with pytest.raises(RunError, match="10 at most"):
        Folder(tmp_path).read("run.json")


def test_runs_are_found_at_any_reasonable_depth_and_not_inside_runs(tmp_path):
    for place in ("a", "study/seed1", "study/seed2", "far/too/deep/down", "a/checkpoints"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "run.json").write_text("{}")
    assert list(find_runs(Folder(tmp_path))) == ["a", "study/seed1", "study/seed2"]
    assert list(find_runs(Folder(tmp_path / "a"))) == ["."]


def test_a_folder_that_is_gone_has_no_runs():
    assert list(find_runs(Folder(Path("/nowhere/at/all")))) == []
