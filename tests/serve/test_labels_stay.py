"""A model in three parts over a real stream: the bits of the whole, exactly once, and no label sent."""

from contextlib import closing, contextmanager
from functools import partial

import pytest
import torch
from language_study import language_study
from stream_rig import proxied
from tied_models import Embedded, gpt2, llama, pairs

from cutwater.base.errors import EngineError
from cutwater.execute.emulate import Meter
from cutwater.execute.local import LocalTrainer
from cutwater.federate.verify import verify
from cutwater.model.halves import join_states
from cutwater.serve.device import run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.serve.loopback import LoopbackTrainer
from cutwater.stream import messages
from cutwater.stream.client import StreamClient
from cutwater.stream.frames import FrameKind, unseal
from cutwater.stream.middle import MiddleClient
from cutwater.stream.refusal import RefusedError
from cutwater.stream.server import StreamServer
from cutwater.train.session import Task, run_both_sides
from cutwater.train.step import Part
from cutwater.train.three_parts import Back


def task_of(study, pair, **how):
    cut, second = pair
    samples = study.client("c1").samples
    return Task("c1", 1, cut, seed=5, lr=0.05, samples=samples, second_cut=second, **how)


def over_the_stream(study, task, server, hosting):
    ticket = server.issue(
        run="r",
        round=1,
        client="c1",
        cut=task.cut,
        second_cut=task.second_cut,
        expect=expectation(study, task),
    )
    hosting.expect(ticket.claims.id, task, 1e6, study.initial)
    half = study.job().split(task.cut, task.second_cut).client
    weights = {name: study.initial[name] for name in half.state_dict()}
    steps = run_at_device(study, task, ticket, weights, study.batches(task), Meter())
    record, trained = server.wait(ticket, 10), hosting.collect(ticket.claims.id)
    assert record.failure is None
    return join_states(half.state_dict(), trained.state), steps, record, trained


def in_process(study, task):
    result = run_both_sides(study.job(), task, study.initial)
    return {name: tensor.clone() for name, tensor in result.state.items()}, result


@contextmanager
def hosted(study):
    with closing(Hosting(study.job(), study.profile, 1e6)) as hosting, StreamServer(hosting) as server:
        yield server, hosting


def frozen_words():
    """The shared weights do not learn: they stand on both sides, and the head waits for no gradient."""
    model = Embedded()
    model.words.weight.requires_grad_(requires_grad=False)
    return model


def differing(one, other):
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


@pytest.mark.parametrize(
    ("make", "micro_batches", "codec"),
    [
        (Embedded, 3, "fp32"),
        (Embedded, 2, "lossless"),
        (frozen_words, 1, "fp32"),
        (partial(gpt2, 1), 1, "fp32"),
        (llama, 1, "fp32"),
    ],
    ids=["parts", "lossless", "frozen", "gpt2", "llama"],
)
def test_every_pair_over_the_stream_has_the_bits_of_the_whole(make, micro_batches, codec):
    study = language_study(make(), micro_batches=micro_batches)
    whole, _ = in_process(study, task_of(study, (len(study.model), 0)))
    with hosted(study) as (server, hosting):
        for pair in pairs(study.model):
            task = task_of(study, pair, up=codec, down=codec)
            there, steps, record, trained = over_the_stream(study, task, server, hosting)
            assert not differing(whole, there), pair
            here, result = in_process(study, task)
            assert not differing(whole, here), pair
            down, up = study.job().model_bytes(task)
            assert (trained.bytes_up, trained.bytes_down) == (result.bytes_up - up, result.bytes_down - down)
            assert (record.steps, record.samples) == (2, 8)
            assert record.parts == 2 * micro_batches
            assert steps.loss == result.loss


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_every_pair_over_the_stream_clips_by_the_norm_of_the_whole(micro_batches):
    """Without a message more than there are without clipping."""
    train = {"optimizer": "sgd", "clip_norm": 0.05}
    study = language_study(micro_batches=micro_batches, train=train)
    whole, _ = in_process(study, task_of(study, (len(study.model), 0)))
    with hosted(study) as (server, hosting):
        for pair in pairs(study.model):
            task = task_of(study, pair)
            there, _, record, _ = over_the_stream(study, task, server, hosting)
            assert not differing(whole, there), pair
            assert not differing(whole, in_process(study, task)[0]), pair
            assert (record.steps, record.parts) == (2, 2 * micro_batches)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_verify_agrees_for_tied_language_models_in_process_and_deployed(make):
    study = language_study(make(1))
    with (
        closing(LocalTrainer(study.job(), study.test())) as trainer,
        closing(LoopbackTrainer(study)) as stream,
    ):
        (check,) = verify(study, trainer, 1, stream=stream)
    assert check.agrees, check.differs
    tried = check.cuts["random cuts, over the stream"]
    assert any(isinstance(cut, tuple) for cut in tried)
    assert all(isinstance(cut, tuple) or cut == len(study.model) for cut in tried)


def test_a_lossy_codec_gives_the_same_bits_over_the_stream_as_in_process():
    study = language_study(micro_batches=2)
    task = task_of(study, (2, 4), up="int8", down="bf16")
    with hosted(study) as (server, hosting):
        there, *_ = over_the_stream(study, task, server, hosting)
    assert not differing(there, in_process(study, task)[0])


def patterns(labels):
    """The labels of a sample as they could be written: any whole number, or floats."""
    kinds = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.float32)
    return [labels.to(kind).numpy().tobytes() for kind in kinds]


@pytest.mark.parametrize(("labels", "cuts"), [("stay", (1, 4)), ("stay", (2, 3)), ("go", (2, 0))])
def test_what_is_handed_to_the_network_holds_labels_only_where_they_go(monkeypatch, labels, cuts):
    study = language_study(model=None if labels == "stay" else Embedded(tied=False), labels=labels)
    sealed, seal = [], messages.seal
    monkeypatch.setattr(messages, "seal", lambda *frame: sealed.append(seal(*frame)) or sealed[-1])
    task = task_of(study, cuts)
    with hosted(study) as (server, hosting):
        over_the_stream(study, task, server, hosting)
    kinds = {unseal(frame).kind for frame in sealed}
    assert {FrameKind.PART, FrameKind.REPLY} < kinds
    assert (FrameKind.BACK in kinds) == (labels == "stay")
    sent = b"".join(sealed)
    targets = [row for _, batch in study.batches(task) for row in batch]
    found = [row for row in targets if any(pattern in sent for pattern in patterns(row))]
    assert len(targets) == 8
    assert len(found) == (0 if labels == "stay" else 8)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("train", [{}, {"clip_norm": 0.05}], ids=["plain", "norm"])
def test_a_lost_connection_costs_no_bit(way, train):
    """Of every second message, what was sent or what was answered is lost."""
    study = language_study(micro_batches=2, train=train)
    task = task_of(study, (2, 4))
    here, _ = in_process(study, task)
    with closing(Hosting(study.job(), study.profile, 1e6)) as hosting, proxied(hosting) as (server, proxy):
        stream = Breaking.between(proxy, way)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("cutwater.serve.device.MiddleClient", stream)
            there, _, record, _ = over_the_stream(study, task, server, hosting)
    assert not differing(here, there)
    assert record.openings > 3
    assert (record.parts, record.steps, record.samples) == (4, 2, 8)


class Breaking(MiddleClient):
    """Loses its connection around messages: before one is sent, or when its answer is due."""

    proxy = way = None

    @classmethod
    def between(cls, proxy, way):
        return type("Broken", (cls,), {"proxy": proxy, "way": way})

    def take(self):
        if self._done % 2:
            if self.way == "down":
                packed, connection = self._exchange._packed, self._connections.connected()
                self._connections.send(connection, packed, asks=True)
                connection.received = packed.number + 1
            self.proxy.cut()
        return super().take()


def test_messages_out_of_turn_are_refused():
    study = language_study()
    task = task_of(study, (1, 4))
    expect = expectation(study, task)
    assert expect.labels is None
    with hosted(study) as (server, hosting):
        ticket = server.issue(run="r", round=1, client="c1", cut=1, second_cut=4, expect=expect)
        hosting.expect(ticket.claims.id, task, 1e6, study.initial)
        smashed = tuple(torch.randn(4, *spec.shape) for spec in expect.smashed)
        with MiddleClient(ticket, expect, client="c1") as stream:
            part = Part(0)
            with pytest.raises(EngineError, match="is to go back"):
                stream.put(part, Back(smashed))
            stream.put(part, smashed)
            stream.take()
            with pytest.raises(EngineError, match="is to go forward"):
                stream.put(part, smashed)
            assert isinstance(stream, StreamClient)
            packed = stream._packer.pack(FrameKind.PART, 1, smashed, rows=4)
            stream._exchange.put(packed, 4)
            with pytest.raises(RefusedError, match="a PART came as part 1, but a BACK is next"):
                stream._exchange.take()
