"""Sessions outlive the process that hosts them: killed anywhere, the next goes on, and no bit differs."""

import os
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from killed_host import CUT, KilledHost, study_of

from cutwater.execute.emulate import Meter
from cutwater.model.halves import join_states
from cutwater.serve import device
from cutwater.serve.device import run_at_device
from cutwater.stream.client import StreamClient
from cutwater.stream.middle import MiddleClient
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, run_both_sides

SEEDED = {"optimizer": "sgd", "momentum": 0.9}
TRAINS = (
    SEEDED,
    {**SEEDED, "clip_norm": 0.5},
    {"optimizer": "adamw", "momentum": 0.0},
    {"optimizer": "adamw", "momentum": 0.0, "clip_norm": 0.5},
)


@lru_cache(maxsize=16)
def _study(train, micro_batches):
    return study_of({"train": dict(TRAINS[train]), "micro_batches": micro_batches})


@lru_cache(maxsize=64)
def _undisturbed(train, micro_batches, task):
    study = _study(train, micro_batches)
    result = run_both_sides(study.job(), task, study.initial)
    down, up = study.job().model_bytes(task)
    crossed = (result.bytes_up - up, result.bytes_down - down)
    return weights_sha256(result.state), result.loss, result.steps, crossed


def _task(**how):
    return Task("k", 1, CUT, seed=5, lr=0.01, samples=51, **how)


class _Killing:
    """Kills the host some seconds after the replies to these parts were asked for, and starts the next."""

    def __init__(self, host, kills, delay):
        self.host, self.kills, self.delay, self.asked = host, set(kills), delay, 0
        self.threads = []

    def before(self):
        if self.asked in self.kills:
            self.join()
            self.threads.append(threading.Thread(target=self._kill))
            self.threads[-1].start()
        self.asked += 1

    def join(self):
        for thread in self.threads:
            thread.join()

    def _kill(self):
        time.sleep(self.delay)
        self.host.kill()
        self.host.start()

    def client(self, kind):
        killing = self

        class Killed(kind):
            def receive(self):
                killing.before()
                return super().receive()

            def take(self):
                killing.before()
                return super().take()

            def finish(self):
                killing.before()
                count = super().finish()
                killing.join()
                return count

        return Killed


def _run(study, about, task, *, kills, delay, most):
    """A session whose host is killed: its weights, what was told of it, and of going on with it."""
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        host = KilledHost(Path(place) / "sessions", about, most)
        killing = _Killing(host, kills, delay)
        try:
            patch.setattr(device, "StreamClient", killing.client(StreamClient))
            patch.setattr(device, "MiddleClient", killing.client(MiddleClient))
            ticket = host.open(study, task, study.initial)
            half = study.job().split(task.cut, task.second_cut).client
            weights = {name: study.initial[name].clone() for name in half.state_dict()}
            steps = run_at_device(study, task, ticket, weights, study.batches(task), Meter())
            trained, state = host.collect(ticket)
            host.ask("end", session=ticket.claims.id)
            assert sorted(os.listdir(host.folder)) == ["weights"], "nothing of it is left"
            return join_states(half.state_dict(), state), steps, trained, host.restored
        finally:
            killing.join()
            host.close()
            assert not host.folder.exists(), "it goes with whoever started it"


def _check(*, train, micro_batches, task, kills, delay, most):
    study, about = (
        _study(train, micro_batches),
        {"train": dict(TRAINS[train]), "micro_batches": micro_batches},
    )
    digest, loss, steps, crossed = _undisturbed(train, micro_batches, task)
    state, seen, trained, restored = _run(study, about, task, kills=kills, delay=delay, most=most)
    assert weights_sha256(state) == digest
    assert seen.count == trained["steps"] == steps
    assert trained["samples"] == 51
    assert (trained["bytes_up"], trained["bytes_down"]) == crossed
    if not task.second_cut:
        assert trained["loss"] == pytest.approx(loss)
    return restored


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    train=st.sampled_from(range(len(TRAINS))),
    micro_batches=st.sampled_from([1, 3]),
    overlapped=st.booleans(),
    codec=st.sampled_from(["fp32", "fp16"]),
    kills=st.sets(st.integers(0, 7), min_size=1, max_size=2),  # the last of which is the end, in whole parts
    delay=st.sampled_from([0.0, 0.002, 0.01]),
    most=st.sampled_from([0, 3000, None]),
)
def test_killed_anywhere_a_session_has_the_hash_of_one_that_nothing_happened_to(
    train, micro_batches, overlapped, codec, kills, delay, most
):
    task = _task(schedule="overlapped" if overlapped else "in turn", up=codec)
    restored = _check(
        train=train, micro_batches=micro_batches, task=task, kills=kills, delay=delay, most=most
    )
    assert restored == [0] + [1] * len(kills)


@pytest.mark.parametrize(("most", "train"), [(0, 2), (None, 2), (0, 3)])
def test_so_has_one_whose_labels_stay(most, train):
    task = _task(second_cut=3)
    _check(train=train, micro_batches=3, task=task, kills={1, 8}, delay=0.002, most=most)


def test_rows_that_came_once_are_there_again_when_their_numbers_come():
    about = {"train": dict(SEEDED), "micro_batches": 1, "frozen": True}
    study, task = study_of(about), Task("k", 1, 1, seed=5, lr=0.01, samples=51, once=True)
    whole = run_both_sides(study.job(), task, study.initial)
    state, _, trained, restored = _run(study, about, task, kills={9}, delay=0.002, most=0)
    assert weights_sha256(state) == weights_sha256(whole.state)
    _, up = study.job().model_bytes(task)
    assert trained["bytes_up"] == whole.bytes_up - up
    assert restored == [0, 1]
