"""Checkpoints: whole or absent, whatever happens to the disk."""

import os
import pickle
import resource
import signal
import subprocess
import time
from itertools import count

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutwater.base.errors import FileFormatError, RunError
from cutwater.runs.checkpoint import Checkpoint, load, load_newest, save
from cutwater.train.aggregate import weights_sha256

STATE = {"virtual_seconds": 12.345678901234567, "estimates": {"c1": [1e9, 3.2e7, 3.2e7]}, "scenario": "ab12"}


def checkpoint(round_, size=20):
    torch.manual_seed(round_)
    weights = {"w": torch.randn(size, size), "bn.count": torch.tensor(round_), "h": torch.ones(3).bfloat16()}
    return Checkpoint(round_, weights, STATE)


def rounds_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_bit_by_bit(tmp_path):
    made = checkpoint(7)
    path = save(tmp_path, made)
    found = load_newest(tmp_path)
    assert found.notes == ()
    assert found.checkpoint.round == 7
    assert found.checkpoint.state == STATE
    assert found.checkpoint.weights_sha256 == made.weights_sha256
    assert path.name == "round-000007.safetensors"


def test_others_can_read_the_weights_with_safetensors_alone(tmp_path):
    from safetensors.torch import load_file

    made = checkpoint(3)
    assert weights_sha256(load_file(save(tmp_path, made))) == made.weights_sha256


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "nowhere") is None


def test_the_last_two_are_kept_and_leftovers_of_a_kill_removed(tmp_path):
    (tmp_path / ".round-000001.safetensors.x1y2").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("mine")
    for round_ in range(5):
        save(tmp_path, checkpoint(round_))
    assert rounds_in(tmp_path) == ["notes.txt", "round-000003.safetensors", "round-000004.safetensors"]


def test_weights_that_share_memory_are_saved(tmp_path):
    tied = torch.randn(4, 4)
    save(tmp_path, Checkpoint(1, {"encoder": tied, "decoder": tied, "part": tied[1:], "none": tied[:0]}, {}))
    weights = load_newest(tmp_path).checkpoint.weights
    assert torch.equal(weights["encoder"], weights["decoder"])
    assert torch.equal(weights["part"], tied[1:])


@pytest.mark.parametrize("damage", ["cut off", "emptied", "flipped", "other file", "other format", "renamed"])
def test_a_damaged_newest_checkpoint_falls_back_one_round_and_says_so(tmp_path, damage):
    save(tmp_path, checkpoint(1))
    newest = save(tmp_path, checkpoint(2))
    content = newest.read_bytes()
    if damage == "other format":
        from safetensors.torch import save_file

        save_file({"w": torch.zeros(1)}, newest)
    elif damage == "renamed":
        newest.rename(tmp_path / "round-000009.safetensors")
    else:
        newest.write_bytes(
            {
                "cut off": content[:-5],
                "emptied": b"",
                "flipped": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
                "other file": pickle.dumps({"w": 1}),
            }[damage]
        )
    found = load_newest(tmp_path)
    assert found.checkpoint.round == 1
    assert len(found.notes) == 1
    assert "falling back to the checkpoint before it" in found.notes[0]
    assert "round-00000" in found.notes[0]


def test_if_none_is_whole_the_run_stops_and_names_them(tmp_path):
    for round_ in (1, 2):
        save(tmp_path, checkpoint(round_)).write_bytes(b"gone")
    with pytest.raises(RunError, match=r"no checkpoint in .* is whole") as caught:
        load_newest(tmp_path)
    assert "round-000001" in str(caught.value)
    assert "round-000002" in str(caught.value)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    made = Checkpoint(4, {"w": torch.tensor([1.5, -2.0]), "n": torch.tensor(9)}, STATE)
    return made, save(tmp_path_factory.mktemp("small"), made)


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_flipped_bit_goes_unnoticed(small, tmp_path, data):
    made, path = small
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= 1 << data.draw(st.integers(0, 7))
    target = tmp_path / "round-000004.safetensors"
    target.write_bytes(content)
    try:
        found = load(target)
    except FileFormatError:
        return
    # White space in the header may change; what was saved may not.
    assert (found.round, found.state) == (made.round, made.state)
    assert found.weights_sha256 == made.weights_sha256


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_garbage_is_refused_in_one_sentence(tmp_path, content):
    target = tmp_path / "round-000001.safetensors"
    target.write_bytes(content)
    with pytest.raises(FileFormatError):
        load(target)


def test_a_state_that_json_cant_hold_exactly_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        save(tmp_path, Checkpoint(1, {"w": torch.zeros(1)}, {"loss": float("nan")}))
    assert rounds_in(tmp_path) == []


def test_loading_never_unpickles(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("unpickled")

    save(tmp_path, checkpoint(1))
    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    assert load_newest(tmp_path).checkpoint.round == 1


def in_child(work):
    """Do some work in a process of its own, forked so that it starts quickly: (pid, what it says)."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        try:
            work(lambda text: os.write(send, f"{text}\n".encode()))
        finally:
            os._exit(0)
    os.close(send)
    return pid, os.fdopen(receive)


def save_under_limit(folder, limit):
    """Save a small checkpoint, then one that is too large, and tell what the second one said."""

    def work(say):
        save(folder, Checkpoint(1, {"w": torch.ones(1000)}, {}))
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            save(folder, Checkpoint(2, {"w": torch.full((100_000,), 2.0)}, {}))
        except RunError as error:
            say(error)

    pid, said = in_child(work)
    with said:
        text = said.read()
    os.waitpid(pid, 0)
    return text


def check_old_one_intact(folder, said, reason):
    assert reason in said
    assert "the checkpoint of round 2 can't be saved" in said
    assert "make room and resume" in said
    assert rounds_in(folder) == ["round-000001.safetensors"], "no half-written file is left"
    assert load_newest(folder).checkpoint.round == 1


def test_a_write_that_fails_half_way_leaves_the_old_checkpoint(tmp_path):
    check_old_one_intact(tmp_path, save_under_limit(tmp_path, 50_000), "File too large")


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path):
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs more rights than this test has")
    try:
        check_old_one_intact(folder, save_under_limit(folder, 0), "No space left on device")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_after_a_kill_at_any_moment_a_checkpoint_is_whole_and_no_older_than_what_was_committed(tmp_path):
    last = 0
    for attempt in range(20):

        def work(say, start=last):
            for round_ in count(start + 1):
                save(tmp_path, Checkpoint(round_, {"w": torch.full((30_000,), float(round_))}, {}))
                say(round_)

        pid, said = in_child(work)
        first = said.readline()
        time.sleep(0.0007 * attempt)
        os.kill(pid, signal.SIGKILL)
        with said:
            committed = int((first + said.read()).split()[-1])
        os.waitpid(pid, 0)
        found = load_newest(tmp_path)
        assert found.notes == ()
        assert found.checkpoint.round >= committed > last
        assert (found.checkpoint.weights["w"] == found.checkpoint.round).all()
        last = found.checkpoint.round


def crafted(path, body, tensors=None):
    """A file with a checksum that is right, whatever it says."""
    from safetensors.torch import save as to_bytes

    from cutwater.runs import checkpoint as module

    tensors = {"w": torch.ones(2)} if tensors is None else tensors
    header = {"format": module.FORMAT, "version": module.VERSION, "body": body}
    path.write_bytes(to_bytes(tensors, {**header, "sha256": module._digest(body, tensors)}))
    return path


@pytest.mark.parametrize(
    "body",
    [
        "nothing",
        "[]",
        "{}",
        '{"round": -1, "state": {}, "memory": []}',
        '{"round": "x", "state": {}, "memory": []}',
        '{"round": 1, "state": [], "memory": []}',
        '{"round": 1, "state": {}, "memory": ["m.w"]}',
        '{"round": 1, "state": {}, "memory": 7}',
        "[" * 5000,
    ],
)
def test_a_crafted_header_with_a_checksum_that_is_right_is_a_sentence(tmp_path, body):
    with pytest.raises(FileFormatError, match="is no checkpoint of a run"):
        load(crafted(tmp_path / "round-000001.safetensors", body))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_and_a_folder_in_a_checkpoints_place_are_passed_over(tmp_path):
    save(tmp_path, checkpoint(1))
    os.mkfifo(tmp_path / "round-000002.safetensors")
    (tmp_path / "round-000003.safetensors").mkdir()
    found = load_newest(tmp_path)
    assert found.checkpoint.round == 1
    assert all("is no plain file" in note for note in found.notes)
    for round_ in (4, 5, 6):
        save(tmp_path, checkpoint(round_))
    assert load_newest(tmp_path).checkpoint.round == 6
