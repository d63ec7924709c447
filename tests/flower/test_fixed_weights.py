"""Weights that do not learn go to a device once, are known by digest, and are sent again where lost."""

import os
import sys
from pathlib import Path

import pytest
import torch
from collecting import run
from flower_cases import good_node, served, settings
from memory_grid import MemoryGrid

from cutwater.base.errors import EngineError
from cutwater.flower import roster
from cutwater.flower.failures import ForgottenError
from cutwater.flower.fixed_weights import FixedWeights
from cutwater.flower.shared_study import study_for
from cutwater.train.aggregate import weights_sha256

EXAMPLES = Path(__file__).parents[2] / "examples"
TWO = """
[model]
name = "frozen_backbone:build"
input = "1x8x8"
[server]
compute = "1 GFLOPS"
[session]
steps = 2
batch_size = 8
[[client]]
name = "phone"
compute = "10 MFLOPS"
rate = "2 MB/s"
samples = 60
forbidden = [1, 3, 4]
[[client]]
name = "laptop"
compute = "1 GFLOPS"
rate = "2 MB/s"
samples = 80
forbidden = [1, 2, 3]
[data]
source = "digits"
[train]
rounds = 3
lr = 0.05
seed = 1
"""
FIXED = {"0.1.weight", "0.1.bias", "1.0.weight", "1.0.bias"}


@pytest.fixture
def given(tmp_path, monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    return settings(path)


def listening(given, sent):
    """Two nodes that write down which tensors each order brings."""

    def node(name):
        real = good_node(name, given)

        def handle(message):
            if message.metadata.message_type != "query":
                sent.append((name, set(message.content["weights"])))
            return real(message)

        return handle

    return MemoryGrid({11: node("phone"), 12: node("laptop")})


def test_the_backbone_travels_in_the_first_round_alone_and_the_bits_are_those_of_one_process(given):
    sent = []
    rounds = served(listening(given, sent), "r1", given)
    assert [each.record.lost for each in rounds] == [{}] * 3
    for name in ("phone", "laptop"):
        first, *later = (names for who, names in sent if who == name)
        assert first >= FIXED
        assert all(not names & FIXED for names in later)
        assert later
    here = run(study_for(given))
    for there, local in zip(rounds, here, strict=True):
        assert there.record.weights_sha256 == local.record.weights_sha256
        assert there.record.bytes_down == local.record.bytes_down
        assert there.record.bytes_up == local.record.bytes_up
    assert rounds[1].record.bytes_down < 0.2 * rounds[0].record.bytes_down


def test_what_a_frozen_prefix_says_goes_up_once_a_session_deployed_as_in_one_process(given, tmp_path):
    """Three epochs of mini-batches that are all alike; the phone is cut where nothing learns before."""
    path = tmp_path / "epochs.toml"
    path.write_text(TWO.replace("steps = 2", "epochs = 3").replace("samples = 60", "samples = 64"))
    given = settings(path)
    study = study_for(given)
    here = run(study)
    (phone,) = [task for task in study.tasks(1, here[0].outcome.plan) if task.client == "phone"]
    assert (phone.cut, phone.once) == (2, True)
    for there, local in zip(served(listening(given, []), "r2", given), here, strict=True):
        assert there.record.lost == {}
        assert there.record.weights_sha256 == local.record.weights_sha256
        assert there.record.bytes_up == local.record.bytes_up


def test_a_device_that_lost_them_is_left_out_once_and_sent_them_again(given):
    def forget(round_):
        if round_.record.round == 1:
            for path in FixedWeights().folder.iterdir():
                path.unlink()

    sent = []
    first, second, third = served(listening(given, sent), "r1", given, callbacks=[forget])
    assert first.record.lost == {}
    assert set(second.record.lost) == {"phone", "laptop"}
    assert all("no longer holds the weights" in reason for reason in second.record.lost.values())
    assert third.record.lost == {}
    assert [names >= FIXED for _, names in sent] == [True, True, False, False, True, True]


def test_what_is_held_is_checked_to_the_last_bit(tmp_path):
    store, tensor = FixedWeights(tmp_path), torch.arange(6.0).reshape(2, 3)
    digest = weights_sha256({"w": tensor})
    store.keep("w", tensor, digest)
    assert torch.equal(store.find("w", torch.empty(2, 3), digest), tensor)
    with pytest.raises(ForgottenError, match="no longer holds the weights 'v'"):
        store.find("v", torch.empty(2, 3), digest)  # another name has another digest
    store.keep("w", tensor, digest)
    content = bytearray((tmp_path / digest).read_bytes())
    content[5] ^= 1
    (tmp_path / digest).write_bytes(content)
    with pytest.raises(ForgottenError, match="no longer holds"):
        store.find("w", torch.empty(2, 3), digest)
    assert not (tmp_path / digest).exists()


def test_what_is_sent_must_be_what_was_announced(tmp_path):
    with pytest.raises(EngineError, match="arrived with another digest than the order has"):
        FixedWeights(tmp_path).keep("w", torch.zeros(3), "0" * 64)
    assert not list(tmp_path.iterdir())


def test_what_nobody_asked_for_in_a_month_is_removed(tmp_path):
    store, now = FixedWeights(tmp_path), 10_000_000.0
    for name, age in (("old", 31), ("new", 29)):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (now - age * 86_400,) * 2)
    store.remove_unused(now)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    FixedWeights(tmp_path / "nowhere").remove_unused(now)


def test_a_device_that_can_write_nothing_trains_all_the_same(given, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder would be")
    sent = []
    rounds = served(listening(given, sent), "r1", given)
    assert [each.record.lost for each in rounds] == [{}] * 3
    assert all(names >= FIXED for _, names in sent)
