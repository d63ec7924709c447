"""Rounds over a grid are judged and aggregated as those in process; nobody waits for a stuck reply."""

import struct

import pytest
from collecting import run
from flower_cases import grid_of, served, settings, sha256_of, write_four
from flwr.app import Array, ArrayRecord

from cutwater.flower.executor import SETTLE, FlowerExecutor
from cutwater.flower.shared_study import study_for


def _all_weights(value):
    """Every weight of what a node sends is this number; buffers are as they were."""

    def change(records):
        if "weights" not in records:
            return records
        told = {
            name: Array(
                dtype=array.dtype,
                shape=array.shape,
                stype=array.stype,
                data=struct.pack("<f", value) * (len(array.data) // 4),
            )
            if array.dtype == "float32" and "running" not in name
            else array
            for name, array in records["weights"].items()
        }
        records["weights"] = ArrayRecord(told)
        return records

    return change


def test_a_node_that_sends_weights_of_a_million_is_named_and_the_round_is_that_of_the_others(tmp_path):
    given = settings(write_four(tmp_path, rounds=1))
    (found,) = served(grid_of(given, laptop=_all_weights(1e6)), "r1", given)
    assert list(found.record.lost) == ["laptop"]
    assert "moves the weights by a norm of" in found.record.lost["laptop"]
    assert found.record.weights_sha256 == sha256_of(given, ["watch", "phone", "tablet"])


@pytest.mark.parametrize("aggregator", ["median", "trimmed", "clipped"])
def test_an_aggregator_that_tolerates_liars_has_the_bits_of_one_process(tmp_path, aggregator):
    given = settings(write_four(tmp_path, rounds=2, more=f'aggregator = "{aggregator}"'))
    deployed = served(grid_of(given), "r1", given)
    in_process = run(study_for(given))
    assert [each.record.weights_sha256 for each in deployed] == [
        each.record.weights_sha256 for each in in_process
    ]


class _Book:
    """Whose sessions are over."""

    def __init__(self, stuck):
        self.stuck = stuck

    def is_settled(self, sent):
        return sent not in self.stuck


def test_replies_without_their_sessions_wait_beside_each_other_and_hold_up_nobody():
    now = [0.0]
    executor = object.__new__(FlowerExecutor)
    executor._book, executor._clock, executor._began = _Book({"a", "b", "c"}), lambda: now[0], 0.0

    def replied():
        for index, at in enumerate((1.0, 1.5, 2.0, 3.0)):
            now[0] = at
            yield index, f"reply {index}"
        while now[0] < 60:
            now[0] += 0.25
            yield None

    found = [(*each, now[0]) for each in executor._settled("abcd", replied()) if each is not None]
    assert [sent for sent, _, _ in found] == ["d", "a", "b", "c"]
    assert found[0][2] == 3.0
    assert found[-1][2] <= 2.0 + SETTLE + 0.25, "not one after the other"
