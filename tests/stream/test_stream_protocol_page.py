"""The protocol as docs/how/protocol.md has it: an end that was written from that page alone can train."""

import re
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import other_client as wire
import pytest
import torch
from other_client import OtherClient
from small_study import small_study
from stream_rig import Echo, Slow, expected, issue

from cutwater import Session
from cutwater.model.halves import join_states
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.stream.frames import MAX_FRAME, VERSION, FrameKind
from cutwater.stream.limits import LEASE, METHOD
from cutwater.stream.refusal import Status
from cutwater.stream.server import StreamServer
from cutwater.stream.tensors import DTYPES
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, run_both_sides, run_session
from cutwater.train.step import Part, Reply, ServerStages, train_step
from cutwater.train.three_parts import Back, MiddleStages
from cutwater.train.wire import Coder

PAGE = (Path(__file__).parents[2] / "docs" / "how" / "protocol.md").read_text(encoding="utf-8")


def part(rows, width, number):
    random = np.random.default_rng(number)
    smashed = random.standard_normal((rows, width)).astype("f4")
    return [("smashed.0", smashed), ("labels", random.integers(0, 10, rows))]


@pytest.mark.parametrize("width", [8, 400_000], ids=["one frame", "many frames"])
def test_another_client_trains_a_session_in_turn(width):
    trainer = Echo()
    with StreamServer(trainer) as server:
        ticket = issue(server, expected(4, width, steps=3))
        client = OtherClient(ticket.to_text())
        assert client.connect() == 0
        client.send(wire.PING, 7)
        assert client.receive()[:2] == (wire.PONG, 7)
        for number in range(3):
            sent = part(4, width, number)
            client.send(wire.PART, number, sent)
            kind, answered, gradients, scalars = client.receive()
            assert (kind, answered, scalars["loss"]) == (wire.REPLY, number, float(number))
            assert np.array_equal(gradients[0][1], sent[0][1])
            assert "server_seconds" in scalars
        client.send(wire.FINISH, 3)
        assert client.receive()[:2] == (wire.FINISHED, 3)
        assert list(client.call) == []
        assert client.call.code() is grpc.StatusCode.OK
        record = server.wait(ticket, 10)
        assert (record.parts, record.failure) == (3, None)
        client.hang_up()


def test_another_client_comes_back_in_the_middle_of_a_window_and_every_part_counts_once():
    trainer = Slow()
    with StreamServer(trainer) as server:
        ticket = issue(server, expected(8, 16, steps=2, micro_batches=4, overlapped=True))
        client = OtherClient(ticket.to_text())
        client.connect()
        for number in range(3):
            client.send(wire.PART, number, part(2, 16, number))
        assert trainer.begun.wait(10)
        client.hang_up()
        trainer.go.set()
        known = client.connect()
        assert 1 <= known <= 3
        for number in range(known, 4):
            client.send(wire.PART, number, part(2, 16, number))
        for number in range(4):
            kind, answered, gradients, scalars = client.receive()
            assert (kind, answered) == (wire.REPLY, number)
            assert np.array_equal(gradients[0][1], part(2, 16, number)[0][1])
            assert "waited_seconds" in scalars
        client.send(wire.FINISH, 4)
        assert client.receive()[:2] == (wire.FINISHED, 4)
        client.hang_up()
    assert [number for _, number in trainer.steps] == [0, 1, 2, 3]


class OverTheOther(ServerStages, MiddleStages):
    """The server of a session as its client's side takes it, reached by the other client."""

    def __init__(self, client):
        self.client, self.norm, self.told = client, {}, []

    def send(self, part, smashed, labels):
        tensors = [("smashed.0", smashed[0].detach().numpy()), ("labels", labels.numpy())]
        self.client.send(wire.PART, part.number, tensors, self.norm)
        self.norm = {}

    def receive(self):
        kind, _, gradients, scalars = self.client.receive()
        assert kind == wire.REPLY
        self.told.append(scalars.get("norm"))
        return Reply(tensors_of(gradients), scalars["loss"], (), scalars.get("norm", 0.0))

    def clip(self, norm):
        assert norm > self.told[-1], "the client's own are added"
        self.norm = {"norm": norm}

    def forward(self, part, smashed):
        self.client.send(wire.PART, 2 * part.number, [("smashed.0", smashed[0].detach().numpy())], self.norm)
        self.norm = {}
        kind, _, output, scalars = self.client.receive()
        assert (kind, "loss" in scalars) == (wire.OUTPUT, False)
        return tuple(tensor.requires_grad_() for tensor in tensors_of(output))

    def backward(self, part, back):
        said = {} if back.norm is None else {"norm": back.norm}
        self.client.send(wire.BACK, 2 * part.number + 1, [("output.0", back.gradients[0].numpy())], said)
        kind, _, gradients, scalars = self.client.receive()
        assert kind == wire.REPLY
        self.told.append(scalars.get("norm"))
        assert (self.told[-1] is None) == (back.norm is None)
        return Back(tensors_of(gradients), (), self.told[-1])


def tensors_of(arrays):
    return tuple(torch.from_numpy(array.copy()) for _, array in arrays)


@contextmanager
def hosted(study, task):
    """The other client in a session with the real server's half, what that leaves, and how it went."""
    torch.set_num_threads(1)
    job = study.job()
    hosting = Hosting(job, study.profile, study.server.compute)
    with StreamServer(hosting) as server:
        ticket = issue(
            server,
            expectation(study, task),
            client=task.client,
            cut=task.cut,
            second_cut=task.second_cut,
        )
        hosting.expect(ticket.claims.id, task, study.server.compute, study.initial)
        half = job.split(task.cut, task.second_cut).client
        half.load_state_dict({name: study.initial[name] for name in half.state_dict()})
        client = OtherClient(ticket.to_text())
        client.connect()
        yield client, half, lambda: hosting.collect(ticket.claims.id).state, ticket, server
        client.hang_up()
    hosting.close()


def clipped_study():
    session = Session(steps=3, batch_size=6, micro_batches=2)
    return small_study(train={"clip_norm": 0.05, "momentum": 0.0}, session=session)


def a_task(study, cut, second_cut=0):
    return Task(client="c1", round=2, cut=cut, second_cut=second_cut, seed=7, lr=study.train.lr, samples=21)


@pytest.mark.parametrize(
    ("clips", "second_cut"), [(True, 0), (False, 3), (True, 3)], ids=["norm", "labels stay", "both"]
)
def test_another_client_trains_to_the_bits_of_one_process(clips, second_cut):
    study = clipped_study() if clips else small_study(session=Session(steps=3, batch_size=6))
    task, job = a_task(study, 2, second_cut), study.job()
    expected_bits = weights_sha256(run_both_sides(job, task, study.initial).state)
    with hosted(study, task) as (client, half, collect, _, _):
        server = OverTheOther(client)
        steps = run_session(job, task, server, job.batches(task))
        messages = steps.count * (1 + clips) * (2 if second_cut else 1)
        client.send(wire.FINISH, messages, (), server.norm)
        assert client.receive()[:2] == (wire.FINISHED, messages)
        whole = join_states(half.state_dict(), collect())
    assert weights_sha256(whole) == expected_bits
    if clips:
        assert [told is not None for told in server.told] == [False, True] * 3, "a mini-batch has two parts"


@pytest.mark.parametrize(
    ("said", "where", "status"),
    [
        ({}, "part", "ABORTED"),
        ({"norm": 1e-12}, "part", "ABORTED"),
        ({}, "finish", "INTERNAL"),
        ({"norm": 1e-12}, "finish", "INTERNAL"),
    ],
    ids=["missing in a part", "too small in a part", "missing at the end", "too small at the end"],
)
def test_a_norm_that_is_missing_or_too_small_ends_the_session(said, where, status):
    study = clipped_study()
    task, job = a_task(study, 2), study.job()
    first, second = list(job.batches(task))[:2]
    with hosted(study, task) as (client, _, _, ticket, server):
        side, over = job.client_side(task), OverTheOther(client)
        train_step(side, over, job.loss, 0, *first, micro_batches=2)
        over.norm = said
        if where == "part":
            half = tuple(tensor[:3] for tensor in second.inputs)
            over.send(Part(2, 0.5, False), side.forward(2, half), second.labels[:3])
        else:
            client.send(wire.FINISH, 2, (), said)
        with pytest.raises(grpc.RpcError):
            client.receive()
        assert client.call.code().name == status
        assert server.wait(ticket, 10).failure is not None


class Remembering(Echo):
    """Keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.given = []

    async def step(self, session, part, smashed, labels):
        self.given.append((smashed[0].clone().numpy(), labels.clone().numpy()))
        return await super().step(session, part, smashed, labels)


def once(rows, keep):
    return replace(expected(rows, 8, steps=3), gradients=(), once=keep)


def some_rows(chosen, numbers):
    """A part that brings these rows of part 0's, and refers to others."""
    brought = [(name, array[list(chosen)]) for name, array in part(4, 8, 0)]
    return [*brought, ("rows", np.array(numbers, dtype="i4"))]


def test_another_client_sends_rows_once_and_refers_to_them():
    trainer = Remembering()
    with StreamServer(trainer) as server:
        ticket = issue(server, once(4, keep=3))
        client = OtherClient(ticket.to_text())
        client.connect()
        # All rows come; then none, in another order; then one that is not kept, and comes again, twice.
        for number, sent in enumerate(
            [
                some_rows(range(4), [0, 1, 2, 3]),
                some_rows([], [2, 0, 0, 1]),
                some_rows([3], [4, 1, 4, 0]),
            ]
        ):
            client.send(wire.PART, number, sent)
            assert client.receive()[:2] == (wire.REPLY, number)
        client.send(wire.FINISH, 3)
        assert client.receive()[:2] == (wire.FINISHED, 3)
        client.hang_up()
        assert server.wait(ticket, 10).kept_bytes == 3 * (8 * 4 + 8)
    (_, smashed), (_, labels) = part(4, 8, 0)
    for (got, told), order in zip(trainer.given, ([0, 1, 2, 3], [2, 0, 0, 1], [3, 1, 3, 0]), strict=True):
        assert np.array_equal(got, smashed[order])
        assert np.array_equal(told, labels[order])


@pytest.mark.parametrize(
    ("chosen", "numbers", "codec"),
    [
        (range(4), [0, 1, 2, 4], "fp32"),
        (range(4), [0, 1, 2, 2], "fp32"),
        (range(3), [0, 1, 2, 3], "fp32"),
        ([], [0, 0, 0, 0], "fp32"),
        ([], [-1, 0, 0, 0], "fp32"),
        ([], [0, 1, 2, 3], "int8"),
    ],
)
def test_numbers_that_do_not_fit_their_rows_are_refused(chosen, numbers, codec):
    trainer = Remembering()
    with StreamServer(trainer) as server:
        expect = replace(once(4, keep=4), up=Coder.of(codec, "up", 0))
        client = OtherClient(issue(server, expect).to_text())
        client.connect()
        sent = some_rows(chosen, numbers)
        if codec != "fp32":
            sent[0] = ("smashed.0", np.zeros(0, dtype="u1"))
        client.send(wire.PART, 0, sent)
        with pytest.raises(grpc.RpcError):
            client.receive()
        assert client.call.code() is grpc.StatusCode.INVALID_ARGUMENT
        client.hang_up()
    assert not trainer.given


def test_a_verdict_is_told_from_a_broken_connection_by_its_metadata():
    with StreamServer(Echo()) as server:
        client = OtherClient(issue(server, expected()).to_text())
        client.connect()
        client.send(wire.PART, 1, part(4, 8, 1))
        with pytest.raises(grpc.RpcError):
            client.receive()
        assert client.call.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert ("cutwater-verdict", "FAILED_PRECONDITION") in [
            tuple(one) for one in client.call.trailing_metadata()
        ]
        client.hang_up()


def test_the_page_has_the_numbers_of_the_code():
    kinds = re.findall(r"^\| (\d+) \| ([A-Z]+) \|", PAGE, re.MULTILINE)
    assert {name: int(code) for code, name in kinds} == {kind.name: int(kind) for kind in FrameKind}
    types = re.search(r"^\| type \| (.*) \|$", PAGE, re.MULTILINE)[1].split(" | ")
    assert types == [str(dtype).removeprefix("torch.") for dtype in DTYPES]
    assert METHOD in PAGE
    assert LEASE in PAGE
    assert f"{MAX_FRAME:,} bytes" in PAGE
    assert f"version, {VERSION} |" in PAGE
    verdicts = re.findall(r"^\| `([A-Z_]+)` \| ", PAGE.split("| verdict |")[1], re.MULTILINE)
    assert set(verdicts) == {status.name for status in Status} - {"UNAVAILABLE"}
