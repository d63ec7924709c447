"""A session whose cut moves, over a real stream: the bits of FedAvg, every part and move once."""

from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import permutations

import grpc
import pytest
import torch
from moving_server import small_cnn
from small_study import small_study
from stream_rig import QUICK, proxied

from cutwater.base.errors import EngineError
from cutwater.data.custom import from_datasets
from cutwater.execute.emulate import Meter
from cutwater.federate.conditions import Condition
from cutwater.federate.measured import Moved
from cutwater.model.halves import join_states
from cutwater.plan.fleet import Client
from cutwater.plan.session import Session
from cutwater.serve import device
from cutwater.serve.device import move_to, run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.serve.moving import pack_layers
from cutwater.stream.client import StreamClient
from cutwater.stream.conversation import Conversation
from cutwater.stream.frames import FrameKind, unseal
from cutwater.stream.refusal import RefusedError
from cutwater.stream.server import StreamServer
from cutwater.train.aggregate import weights_sha256
from cutwater.train.kept_side import SideState
from cutwater.train.session import Task, run_both_sides

LAYERS, STEPS = 6, 4
CHUNKED = replace(QUICK, frame_bytes=1500)


def images():
    random = torch.Generator().manual_seed(2)
    samples = [(image, place % 3) for place, image in enumerate(torch.randn(60, 1, 5, 5, generator=random))]
    return from_datasets(samples[:48], samples[48:], classes=3, name="maps")


@lru_cache
def study_of(micro_batches=1, clip=None, optimizer="adam"):
    momentum = 0.9 if optimizer == "sgd" else 0.0
    train = {"optimizer": optimizer, "lr": 0.05, "momentum": momentum, "clip_norm": clip}
    return small_study(
        model=small_cnn(),
        data=images(),
        clients=[Client(name="k", compute=1e6, rate=1e6, samples=24)],
        session=Session(epochs=1, batch_size=24 // STEPS, micro_batches=micro_batches),
        train=train,
    )


def task_of(study, cut, **how):
    return Task("k", 1, cut, seed=5, lr=0.05, samples=study.client("k").samples, **how)


@lru_cache
def fedavg(study):
    return weights_sha256(run_both_sides(study.job(), task_of(study, LAYERS), study.initial).state)


class Rig:
    """A session whose server has the cut moved before each of these mini-batches."""

    def __init__(self, study, task, moves, server, hosting):
        self.study, self.task, self.moves, self.server, self.hosting = study, task, moves, server, hosting
        what = {"run": "r", "round": 1, "client": "k", "cut": task.cut}
        self.ticket = server.issue(expect=expectation(study, task), **what)
        hosting.expect(self.ticket.claims.id, task, 1e6, study.initial)

    def batches(self):
        at = self.task
        for number, batch in enumerate(self.study.batches(self.task)):
            if number + 1 in self.moves:
                to = self.moves[number + 1]
                self.server.propose(self.ticket.claims.id, move_to(self.study, at, to))
                at = replace(at, cut=to)
            yield batch

    def run(self, meter=None):
        """The joined weights and the record."""
        study, task = self.study, self.task
        mine = {name: study.initial[name] for name in study.job().split(task.cut).client.state_dict()}
        steps = run_at_device(study, task, self.ticket, mine, self.batches(), meter or Meter())
        record = self.server.wait(self.ticket, 5)
        trained = self.hosting.collect(self.ticket.claims.id)
        assert trained.moves == record.moves
        assert record.session.cut == steps.cut
        client = study.job().split(steps.cut).client.state_dict()
        return weights_sha256(join_states(client, trained.state)), record


@contextmanager
def rig(study, task, moves, serving=StreamServer, **how):
    hosting = Hosting(study.job(), study.profile, study.server.compute, **how)
    try:
        with serving(hosting) as server:
            yield Rig(study, task, moves, server, hosting)
    finally:
        hosting.close()


MANNERS = [
    ({}, {}),
    ({"micro_batches": 3, "clip": 0.05}, {}),
    ({"micro_batches": 3}, {"schedule": "overlapped", "up": "lossless", "down": "lossless"}),
    ({"micro_batches": 2, "clip": 0.05, "optimizer": "sgd"}, {"schedule": "overlapped"}),
]


@pytest.mark.parametrize(("session", "how"), MANNERS)
def test_wherever_the_cut_moves_the_weights_are_those_of_fedavg(session, how):
    study = study_of(**session)
    pairs = list(permutations(range(1, LAYERS), 2))
    for place, (cut, to) in enumerate(pairs if not session else pairs[::3]):
        moment = 1 + place % (STEPS - 1)
        with rig(study, task_of(study, cut, **how), {moment: to}, answer_first=place % 2 == 0) as each:
            found, record = each.run()
        assert found == fedavg(study), f"from {cut} to {to} after {moment} steps"
        assert record.moves == (Moved(moment, cut, to),)
        assert (record.steps, record.samples) == (STEPS, 24)


def test_a_cut_moves_again_and_again_and_a_server_that_says_nothing_has_it_stay():
    study = study_of(micro_batches=2)
    with rig(study, task_of(study, 4), {1: 1, 2: 5, 3: 2}) as each:
        found, record = each.run()
    assert (found, [one.to for one in record.moves]) == (fedavg(study), [1, 5, 2])
    with rig(study, task_of(study, 4), {}) as each:
        assert each.run()[1].moves == ()


def test_nothing_moves_after_the_last_mini_batch_nor_from_where_the_session_is_not_any_more():
    study = study_of()
    with rig(study, task_of(study, 2), {STEPS: 4}) as each:
        found, record = each.run()
        assert (found, record.moves) == (fedavg(study), ())
    with rig(study, task_of(study, 2), {}) as each:
        each.server.propose(each.ticket.claims.id, move_to(study, task_of(study, 3), 4))
        assert each.run()[1].moves == ()


class Breaking:
    """A call whose connection breaks at one of the frames that it carries, before that or after it."""

    def __init__(self, call, fault):
        self.call, self.fault = call, fault

    def __getattr__(self, name):
        return getattr(self.call, name)

    async def read(self):
        data = await self.call.read()
        if data is not grpc.aio.EOF and self.fault.strikes("up", data):
            return grpc.aio.EOF if self.fault.lost else data
        return data

    async def write(self, data):
        struck = self.fault.strikes("down", data)
        if not (struck and self.fault.lost):
            await self.call.write(data)


class Fault:
    """Cuts the wire at the so many-th frame of all, once; remembers what they were."""

    def __init__(self, at, lost):
        self.at, self.lost, self.seen, self.proxy = at, lost, [], None

    def strikes(self, way, data):
        self.seen.append((way, unseal(data).kind))
        if len(self.seen) - 1 != self.at:
            return False
        self.proxy.cut()
        return True


def broken(monkeypatch, study, task, moves, at, *, lost=True):
    """A session over a wire that is cut at a frame: its weights, record and fault."""
    fault = Fault(at, lost)
    begin = Conversation.__init__

    def wrapped(self, hosted, ending, call, *rest):
        begin(self, hosted, ending, Breaking(call, fault), *rest)

    @contextmanager
    def serving(hosting):
        with proxied(hosting, CHUNKED) as (server, fault.proxy):
            yield server

    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "__init__", wrapped)
        patched.setattr(device, "StreamClient", partial(StreamClient, limits=CHUNKED))
        with rig(study, task, moves, serving) as each:
            found, record = each.run()
    return found, record, fault


def around_the_move(study, task, moves, monkeypatch):
    """The places of frames from the reply that tells of the move to the part after it."""
    _, _, fault = broken(monkeypatch, study, task, moves, at=-1)
    kinds = [kind for _, kind in fault.seen]
    moving = [place for place, kind in enumerate(kinds) if kind in (FrameKind.MOVE, FrameKind.MOVED)]
    first = max(place for place in range(moving[0]) if kinds[place] is not kinds[moving[0] - 1]) + 1
    return range(first, moving[-1] + 3), len(moving)


@pytest.mark.parametrize("schedule", ["in turn", "overlapped"])
@pytest.mark.parametrize(("cut", "to"), [(5, 2), (2, 5)])
def test_a_connection_cut_at_any_frame_around_a_move_changes_no_bit_and_repeats_nothing(
    monkeypatch, cut, to, schedule
):
    study = study_of(micro_batches=2, clip=0.05, optimizer="sgd")
    task = task_of(study, cut, schedule=schedule)
    places, frames = around_the_move(study, task, {2: to}, monkeypatch)
    assert frames >= 4, "layers take several frames one way, and none the other"
    for at in places:
        for lost in (True, False):
            found, record, fault = broken(monkeypatch, study, task, {2: to}, at, lost=lost)
            told = f"at frame {at}, {fault.seen[at]}, {'before' if lost else 'after'} it"
            assert found == fedavg(study), told
            assert record.openings == 2, told
            assert (record.moves, record.steps, record.parts) == ((Moved(2, cut, to),), STEPS, 2 * STEPS), (
                told
            )


def test_what_is_no_layers_or_too_much_is_refused_and_the_session_ends(monkeypatch):
    study = study_of()
    good = device.pack_layers

    def torn(layers):
        return good(layers)[:-40]

    def too_many(layers):
        return torch.zeros(2_000_000, dtype=torch.uint8)

    def others(layers):
        return pack_layers(SideState({**layers.tensors, "half/5.weight": torch.zeros(3, 8)}, layers.plain))

    for wrong, why in ((torn, "can't be read"), (too_many, "bytes"), (others, "unknown tensor")):
        monkeypatch.setattr(device, "pack_layers", wrong)
        with (
            rig(study, task_of(study, 5), {1: 2}) as each,
            pytest.raises((RefusedError, EngineError), match=why),
        ):
            each.run()


def test_a_device_refuses_a_move_that_would_change_bits():
    study = study_of()
    task = task_of(study, 3, up="int8")
    with rig(study, task, {1: 2}) as each, pytest.raises(EngineError, match="codec 'int8' is lossy"):
        each.run()


def test_an_emulated_device_computes_the_layers_that_it_has():
    study, meter = study_of(), Meter()
    task = task_of(study, 2)
    quick = replace(device.emulated(study, task), condition=Condition(1e12, 1e12, 1e12))
    meter.device = quick
    with rig(study, task, {1: 4}) as each:
        found, _ = each.run(meter)
    assert found == fedavg(study)
    assert meter.device.client_forward == study.profile.cuts[3].client_forward_flops > quick.client_forward


def test_layers_count_as_bytes_that_crossed():
    study = study_of(optimizer="sgd")
    plain, moved = [], []
    for moves, found in (({}, plain), ({2: 4}, moved)):
        with rig(study, task_of(study, 3), moves) as each:
            found.append(each.run()[1])
    assert moved[0].tensors_up < plain[0].tensors_up + 1, "the flattened maps are as many as the maps"
    assert moved[0].tensors_down > plain[0].tensors_down
