"""Profiles that are kept: the same numbers, sooner, and only where they can't be others."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cutwater
from cutwater.profile import cache as kept
from cutwater.profile import count
from cutwater.profile.cache import profile_of
from cutwater.profile.count import profile_model
from cutwater.profile.values import Profile

ASKED = {"input": "1x8x8", "classes": 10, "count": "exact", "kappa": None, "batch_size": 4}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "cutwater" / "profiles"


@pytest.fixture
def counted(monkeypatch):
    """The names of the models that were counted."""
    names: list[str] = []

    def counting(name: str, **settings: object) -> Profile:
        names.append(name)
        return profile_model(name, **settings)

    monkeypatch.setattr(count, "profile_model", counting)
    return names


def test_a_model_is_counted_once_and_is_the_same_afterwards(counted):
    first, again = profile_of("cnn", **ASKED), profile_of("cnn", **ASKED)
    assert first == again == profile_model("cnn", **ASKED)
    assert counted == ["cnn"]


@pytest.mark.parametrize(
    "change",
    [
        {"input": "1x9x9"},
        {"classes": 11},
        {"count": "paper"},
        {"count": "paper", "kappa": 2.0},
        {"batch_size": 5},
        {"optimizer": "adam"},
        {"width": 8},
    ],
)
def test_whoever_asks_for_something_else_gets_it(counted, change):
    other = {**ASKED, **change}
    assert profile_of("cnn", **ASKED) != profile_of("cnn", **other)
    assert profile_of("cnn", **other) == profile_model("cnn", **other)
    assert counted == ["cnn", "cnn"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": "cutwater.profile", "version": 1}', b"\xff"]
)
def test_a_damaged_file_is_counted_anew_and_mended(counted, folder, content):
    right = profile_of("cnn", **ASKED)
    (file,) = folder.iterdir()
    file.write_bytes(content)
    assert profile_of("cnn", **ASKED) == right
    assert profile_of("cnn", **ASKED) == right
    assert counted == ["cnn", "cnn"]


def test_a_cache_that_can_not_be_used_is_none(counted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert profile_of("cnn", **ASKED) == profile_of("cnn", **ASKED)
    assert counted == ["cnn", "cnn"]


def test_the_oldest_go_when_there_are_too_many(counted, folder, monkeypatch):
    monkeypatch.setattr(kept, "MOST_KEPT", 2)
    for size in (1, 2, 3):
        profile_of("mlp", **{**ASKED, "batch_size": size})
    assert len(list(folder.iterdir())) == 2
    profile_of("mlp", **{**ASKED, "batch_size": 3})
    assert len(counted) == 3, "the newest is there"
    profile_of("mlp", **{**ASKED, "batch_size": 1})
    assert len(counted) == 4, "the oldest is not"


def test_what_is_refused_is_refused_every_time_and_not_kept(folder):
    for _ in range(2):
        with pytest.raises(cutwater.CutwaterError, match="no option 'depth'"):
            profile_of("cnn", **ASKED, depth=3)
    assert not folder.exists()


def test_a_users_own_model_is_counted_every_time(counted, folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_own_model.py").write_text(
        "from torch import nn\n\n\ndef build(classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, classes))\n"
    )
    for _ in range(2):
        profile_of("kept_own_model:build", **ASKED)
    assert counted == ["kept_own_model:build"] * 2
    assert not folder.exists()


@pytest.mark.parametrize("changed", ["model/zoo/small.py", "profile/flops.py", "profile/new.py"])
def test_another_source_is_another_counter(tmp_path, monkeypatch, changed):
    counter, root = kept._counter.__wrapped__, tmp_path / "package"
    shutil.copytree(Path(cutwater.__file__).parent, root)
    monkeypatch.setattr(cutwater, "__file__", str(root / "__init__.py"))
    before = counter()
    (root / "plan" / "exact.py").write_text("# nobody counts by this\n")
    assert counter() == before
    with (root / changed).open("a") as file:
        file.write("# another line\n")
    assert counter() != before


def test_another_torch_is_another_counter(monkeypatch):
    counter = kept._counter.__wrapped__
    before = counter()
    monkeypatch.setattr(kept, "version", lambda _: "99.0")
    assert counter() != before


def test_what_is_kept_is_planned_from_without_torch(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(
        '[model]\nname = "cnn"\ninput = "1x8x8"\n[server]\ncompute = "1 GFLOPS"\n'
        "[session]\nsteps = 1\nbatch_size = 4\n"
        '[[client]]\nname = "c1"\ncompute = "1 GFLOPS"\nrate = "1 MB/s"\nsamples = 10\n'
    )
    plan = (
        "import sys, cutwater; print(cutwater.solve(cutwater.load_scenario(sys.argv[1]).problem()).latency, "
        "'torch' in sys.modules)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", plan, str(path)], check=True, capture_output=True, text=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [torch for _, torch in said] == ["True", "False"]
    assert said[0][0] == said[1][0]
