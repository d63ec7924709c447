"""Folders that try to lead elsewhere, or hold what is no plain file."""

import json
import os
from pathlib import Path

import pytest

from cutwater.base.errors import RunError
from cutwater.base.text import shown
from cutwater.runs import confined
from cutwater.runs.confined import Folder, find_runs


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
    monkeypatch.setattr(confined, "LARGEST", 10)
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


def test_a_run_whose_name_could_not_be_shown_or_asked_for_is_not_listed(tmp_path):
    for name in ("good", "bad\x1b[31m", os.fsdecode(b"no\xffutf8")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    assert list(find_runs(Folder(tmp_path))) == ["good"]


@pytest.mark.parametrize("hostile", ["\x1b[2J", "a\nb", "\x9b31m", "\u202etxt", "\udcff", "\x00", "\x7f"])
def test_what_is_shown_moves_no_cursor_and_can_be_written(hostile):
    assert shown(hostile).isprintable()
    assert shown(hostile).encode().decode() == shown(hostile)


@pytest.mark.parametrize("honest", ["c1", "Größe", "端末", "a b", "👩‍🔬"])
def test_what_can_be_shown_stays_as_it_is(honest):
    assert shown(honest) == honest
