"""Sessions over real gRPC and TLS: the same bits as in process, every message held to the plan."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from stream_rig import QUICK, Echo, Raw, Slow, eventually, example, expected, expecting, issue, step_frames
from torch import Tensor, nn
from torch.nn import functional as F

from cutwater.base.errors import DataError, EngineError
from cutwater.serve.shares import ShareScheduler
from cutwater.stream.client import StreamClient
from cutwater.stream.frames import FrameKind, seal
from cutwater.stream.limits import Limits
from cutwater.stream.messages import Packer
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult
from cutwater.train.aggregate import Average
from cutwater.train.expected import BadUpdate
from cutwater.train.step import (
    ClientSide,
    Part,
    Reply,
    ServerSide,
    Tensors,
    optimizer_factory,
    train_step,
)


def halves() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(5)
    client = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU())
    return client, nn.Sequential(nn.Linear(24, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 4))


def batches() -> list[tuple[Tensor, Tensor]]:
    """The last one is smaller."""
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(rows, 6, generator=generator), torch.randint(0, 4, (rows,), generator=generator))
        for rows in (8, 8, 8, 3)
    ]


class Trainer:
    """A real server's half: forward, backward and update in the device's runner, by its share."""

    def __init__(self, side: ServerSide, scheduler: ShareScheduler) -> None:
        self.side, self.lane = side, scheduler.lane("k1", 1e9)
        self.records: list[SessionRecord] = []

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        reply = await self.lane.run(lambda: self._train(part, smashed, labels), 1e6)
        return StepResult(reply.gradients, reply.loss, {"flops": 1e6}, reply.unused)

    def _train(self, part: Part, smashed: Tensors, labels: Tensor) -> Reply:
        self.side.send(part, smashed, labels)
        return self.side.receive()

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        self.records.append(record)


def train(make_server: Any) -> tuple[list[float], list[Tensor]]:
    """Losses and all weights after a session in which ``make_server`` provides the server."""
    client_half, server_half = halves()
    optimizer = optimizer_factory("adam", 0.01)
    client = ClientSide(client_half, optimizer, 9)
    side = ServerSide(server_half, optimizer, 9, F.cross_entropy)
    with make_server(side) as server:
        losses = [
            train_step(client, server, F.cross_entropy, n, (x,), y) for n, (x, y) in enumerate(batches())
        ]
    return losses, [*client_half.state_dict().values(), *server_half.state_dict().values()]


class InProcess:
    def __init__(self, side: ServerSide) -> None:
        self.side = side

    def __enter__(self) -> ServerSide:
        return self.side

    def __exit__(self, *_: object) -> None: ...


class OverTheStream:
    def __init__(self, side: ServerSide, limits: Limits) -> None:
        self.scheduler = ShareScheduler()
        self.half, self.limits = Trainer(side, self.scheduler), limits

    def __enter__(self) -> StreamClient:
        expect = expecting([torch.zeros(8, 24)], torch.zeros(8).long(), batches=[8, 8, 8, 3], classes=4)
        self.server = StreamServer(self.half, limits=self.limits).__enter__()
        self.ticket = issue(self.server, expect)
        self.client = StreamClient(self.ticket, expect, client="k1", limits=self.limits).__enter__()
        return self.client

    def __exit__(self, *_: object) -> None:
        assert self.client.finish() == 4
        self.client.close()
        record = self.server.wait(self.ticket, 5)
        assert (record.steps, record.samples, record.openings, record.failure) == (4, 27, 1, None)
        assert record.bytes_up > 27 * 24 * 4
        assert record.bytes_down > 27 * 24 * 4
        assert self.half.records == [record]
        self.server.close()
        self.scheduler.close()


@pytest.mark.parametrize("limits", [QUICK, Limits(frame_bytes=200)], ids=["whole", "chunked"])
def test_training_over_the_stream_gives_the_bits_of_training_in_process(limits: Limits) -> None:
    here, there = train(InProcess), train(lambda side: OverTheStream(side, limits))
    assert here[0] == there[0]
    assert all(torch.equal(a, b) for a, b in zip(here[1], there[1], strict=True))


def test_several_tensors_cross_the_cut_and_only_those_that_need_it_have_gradients() -> None:
    smashed = (torch.randn(4, 3), torch.arange(8).view(4, 2), torch.randn(4, 2, 2, dtype=torch.float64))
    labels = torch.zeros(4)
    expect = expecting(smashed, labels, batches=[4])
    assert [spec.name for spec in expect.gradients] == ["smashed.0", "smashed.2"]
    with (
        StreamServer(Echo(), limits=QUICK) as server,
        StreamClient(issue(server, expect), expect, client="k1", limits=QUICK) as client,
    ):
        reply = client.step(0, smashed, labels)
    assert [g.dtype for g in reply.gradients] == [torch.float32, torch.float64]
    assert torch.equal(reply.gradients[0], smashed[0])
    assert torch.equal(reply.gradients[1], smashed[2])


def test_a_gradient_that_nothing_depends_on_is_marked_as_such() -> None:
    class Aside(Echo):
        async def step(
            self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor
        ) -> StepResult:
            result = await super().step(session, part, smashed, labels)
            return replace(result, unused=(1,))

    smashed, labels = (torch.randn(4, 3), torch.randn(4, 2)), torch.zeros(4)
    expect = expecting(smashed, labels, batches=[4])
    with (
        StreamServer(Aside(), limits=QUICK) as server,
        StreamClient(issue(server, expect), expect, client="k1", limits=QUICK) as client,
    ):
        reply = client.step(0, smashed, labels)
    assert reply.unused == (1,)
    assert set(reply.measures) == {"server_seconds"}


def test_a_closed_client_says_so() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        with StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
        with pytest.raises(EngineError, match="closed"):
            client.step(1, *example())


def test_the_client_learns_what_the_server_measured() -> None:
    with (
        StreamServer(Echo(), limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        reply = client.step(0, *example())
    assert 0 <= reply.measures["server_seconds"] <= reply.seconds


def refused(frames: list[bytes], half: Echo) -> tuple[str, str, SessionRecord]:
    """How a session ends in which these frames are sent, at the client and at the server."""
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected(steps=2))
        with Raw(ticket) as client:
            status, why = client.send(*frames).verdict()
        record = server.wait(ticket, 5)
        with pytest.raises(RefusedError):  # a session that was refused stays so
            StreamClient(ticket, expected(), client="k1", limits=QUICK).__enter__()
    assert record.failure is not None
    assert (record.failure.status.name, record.failure.reason) == (status, why)
    return status, why, record


def bad_label() -> list[bytes]:
    smashed, labels = example()
    labels[0] = 10
    return step_frames(expected(), 0, smashed, labels)


def flipped() -> list[bytes]:
    frame = bytearray(step_frames(expected(), 0, *example())[0])
    frame[60] ^= 4
    return [bytes(frame)]


def other_shape() -> list[bytes]:
    return step_frames(expected(4, 9), 0, *example(4, 9))[:1]


@pytest.mark.parametrize(
    ("frames", "status", "words"),
    [
        (bad_label(), "INVALID_ARGUMENT", "'labels' holds values"),
        (flipped(), "INVALID_ARGUMENT", "checksum"),
        (step_frames(expected(4, 2), 0, *example(4, 2)), "INVALID_ARGUMENT", "shape"),
        (other_shape(), "RESOURCE_EXHAUSTED", "the plan allows"),
        (step_frames(expected(), 1, *example()), "FAILED_PRECONDITION", "part 0 is next"),
        ([b"garbage"], "INVALID_ARGUMENT", "begins with"),
        ([b"CUTWater"], "INVALID_ARGUMENT", "8 bytes"),
        (
            [seal(FrameKind.WELCOME, 0, 0, 0, b"\x01\x00\x00", [])],
            "INVALID_ARGUMENT",
            "WELCOME is not expected",
        ),
        (
            list(Packer(expected().at_server).pack(FrameKind.FINISH, 1).frames(64)),
            "FAILED_PRECONDITION",
            "counts 1",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_before_the_servers_half_sees_it(
    frames: list[bytes], status: str, words: str
) -> None:
    half = Echo()
    found, why, record = refused(frames, half)
    assert found == status
    assert words in why
    assert half.steps == []
    assert record.steps == record.samples == 0
    assert half.closes == [record]


def test_a_step_beyond_the_plan_or_repeated_is_refused() -> None:
    half = Echo()
    twice = step_frames(expected(), 0, *example()) * 2
    assert refused(twice, half)[:2] == ("FAILED_PRECONDITION", "part 0 came, but part 1 is next")
    assert half.steps == [("k1", 0)], "and took effect once"
    beyond = [frame for n in range(3) for frame in step_frames(expected(), n, *example())]
    assert refused(beyond, Echo())[0] == "INVALID_ARGUMENT"


def test_others_are_unaffected_by_one_that_is_refused() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        good, bad = issue(server, expected()), issue(server, expected(), "k2")
        with StreamClient(good, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            with Raw(bad) as attacker:
                assert attacker.send(*bad_label()).verdict()[0] == "INVALID_ARGUMENT"
            client.step(1, *example())
            assert client.finish() == 2
    assert half.steps == [("k1", 0), ("k1", 1)]


@contextmanager
def serving(half: nn.Module, dtype: torch.dtype = torch.float32) -> Iterator[StreamClient]:
    """The client of a session with a server's half that really trains."""
    side = ServerSide(half.to(dtype), optimizer_factory("sgd", 0.1), 9, F.cross_entropy)
    expect = expecting([torch.zeros(4, 8, dtype=dtype)], torch.zeros(4).long(), batches=[4, 4], classes=3)
    with (
        ShareScheduler() as scheduler,
        StreamServer(Trainer(side, scheduler), limits=QUICK) as server,
        StreamClient(issue(server, expect), expect, client="k1", limits=QUICK) as client,
    ):
        yield client


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_are_refused_when_they_reach_the_loss(dtype: torch.dtype, bad: float) -> None:
    smashed = torch.ones(4, 8, dtype=dtype)
    with serving(nn.Linear(8, 3), dtype) as client:
        client.step(0, (smashed,), torch.zeros(4).long())
        smashed[3, 7] = bad
        with pytest.raises(RefusedError, match=r"'smashed\.0' of part 1 holds NaN or infinity") as refused:
            client.step(1, (smashed,), torch.zeros(4).long())
    assert refused.value.status is Status.INVALID_ARGUMENT


def test_infinity_that_hides_from_the_loss_shows_in_the_next_and_in_the_weights() -> None:
    half = nn.Sequential(nn.Linear(8, 5), nn.Hardtanh(), nn.Linear(5, 3))
    clean = {name: tensor.clone() for name, tensor in half.state_dict().items()}
    smashed, labels = torch.ones(4, 8), torch.zeros(4).long()
    with serving(half) as client:
        smashed[0, 0] = float("inf")
        assert math.isfinite(client.step(0, (smashed,), labels).loss)
        with pytest.raises(BadUpdate, match=r"client 'k1' has a value in '0\.weight' that is not finite"):
            Average(clean).add("k1", 4, half.state_dict())
        with pytest.raises(RefusedError, match="part 1 of client 'k1' gave a loss of nan") as refused:
            client.step(1, (torch.ones(4, 8),), labels)
    assert refused.value.status is Status.ABORTED


class Failing(Echo):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        if isinstance(self.result, Exception):
            raise self.result
        assert isinstance(self.result, StepResult)
        return self.result


GRADIENT = torch.ones(4, 8)


@pytest.mark.parametrize(
    ("result", "status", "words"),
    [
        (StepResult((GRADIENT,), float("inf")), Status.ABORTED, "client 'k1' gave a loss of inf"),
        (DataError("the labels are odd"), Status.ABORTED, "part 0 of client 'k1': the labels are odd"),
        (RefusedError(Status.FAILED_PRECONDITION, "not now"), Status.FAILED_PRECONDITION, "not now"),
        (ValueError("secret details"), Status.INTERNAL, "half failed at part 0; see its log"),
        (StepResult((GRADIENT[:, :4],), 1.0), Status.INTERNAL, "half failed"),
        (StepResult((GRADIENT[:2],), 1.0), Status.INTERNAL, "half failed"),
        (StepResult((), 1.0), Status.INTERNAL, "half failed"),
        (StepResult((GRADIENT,), 1.0, {"a": float("nan")}), Status.INTERNAL, "half failed"),
    ],
    ids=lambda value: value.name if isinstance(value, Status) else "",
)
def test_a_server_half_that_fails_ends_its_session_with_a_reason(
    result: Any, status: Status, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with StreamServer(Failing(result), limits=QUICK) as server:
        ticket = issue(server, expected())
        with (
            StreamClient(ticket, expected(), client="k1", limits=QUICK) as client,
            pytest.raises(RefusedError) as refused_,
        ):
            client.step(0, *example())
        record = server.wait(ticket, 5)
    assert refused_.value.status is status
    assert words in refused_.value.reason
    assert record.failure is not None
    assert record.failure.status is status
    assert record.steps == 0


@pytest.mark.parametrize("last", [False, True], ids=["at the next part", "at the end"])
def test_a_half_that_fails_when_its_reply_is_out_ends_its_session_with_a_reason(
    last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(Echo):
        async def step(
            self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor
        ) -> StepResult:
            result = await super().step(session, part, smashed, labels)
            return replace(result, rest=lambda: 1 // 0)

    with StreamServer(Careless(), limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            go_on = client.finish if last else partial(client.step, 1, *example())
            with pytest.raises(RefusedError, match="half failed after its last reply; see its") as refused_:
                go_on()
        record = server.wait(ticket, 5)
    assert refused_.value.status is Status.INTERNAL
    assert record.failure is not None
    assert not record.finished
    assert "ZeroDivisionError" in caplog.text


def test_a_client_is_told_what_it_does_wrong_before_anything_is_sent() -> None:
    half = Echo()
    with (
        StreamServer(half, limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        smashed, labels = example()
        with pytest.raises(EngineError, match="0 is next"):
            client.step(1, smashed, labels)
        with pytest.raises(RefusedError, match="shape"):
            client.step(0, (smashed[0][:, :3],), labels)
        with pytest.raises(RefusedError, match="has 5 samples, but this part of the mini-batch has 4"):
            client.step(0, *example(5))
        client.step(0, smashed, labels)
    assert half.steps == [("k1", 0)]


def test_revoking_a_ticket_ends_its_session_and_forgets_it() -> None:
    half = Slow()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            caught: list[Exception] = []

            def step() -> None:
                try:
                    client.step(0, *example())
                except RefusedError as error:
                    caught.append(error)

            stepping = threading.Thread(target=step)
            stepping.start()
            assert half.begun.wait(5)
            record = server.revoke(ticket, "the round is over")
            stepping.join(5)
        assert [str(error) for error in caught] == ["the round is over (ABORTED)"]
        assert record.failure is not None
        assert half.closes == [record]
        assert server.records() == ()
        with pytest.raises(EngineError, match="revoked"):
            server.wait(ticket)


def test_a_session_that_nobody_opens_is_recorded_at_its_deadline() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        record = server.wait(issue(server, expected(), open_seconds=0.1, session_seconds=0.1), 5)
    assert record.failure is not None
    assert record.failure.status is Status.DEADLINE_EXCEEDED
    assert record.openings == 0
    assert half.closes == [record]


def test_everything_ends_with_the_server() -> None:
    half = Slow()
    server = StreamServer(half, limits=QUICK)
    with server:
        ticket = issue(server, expected())
        with Raw(ticket) as client:
            client.send(*step_frames(expected(), 0, *example()))
            assert half.begun.wait(5)
            server.close()
            assert client.verdict()[0] in ("ABORTED", "UNAVAILABLE")
    assert len(half.closes) == 1
    assert not any(thread.name == "cutwater-stream" for thread in threading.enumerate())
    with pytest.raises(EngineError, match="not running"):
        issue(server, expected())


def test_times_that_make_no_sense_are_refused() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        for open_seconds, session_seconds in ((0, 1), (2, 1), (-1, 1), (float("nan"), 1), (1, float("inf"))):
            with pytest.raises(EngineError, match="open_seconds"):
                issue(server, expected(), open_seconds=open_seconds, session_seconds=session_seconds)


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with StreamServer(Echo(), limits=QUICK) as first:
        port = int(first.address.rpartition(":")[2])
        with pytest.raises(EngineError, match="choose another port"):
            StreamServer(Echo(), port=port, limits=QUICK).__enter__()


@pytest.mark.parametrize(
    ("advertise", "found"),
    [
        ("device.example:99", "device.example:99"),
        ("[::1]:99", "[::1]:99"),
        ("[::1]", "[::1]:{}"),
        ("host", "host:{}"),
    ],
)
def test_tickets_name_the_address_that_is_advertised(advertise: str, found: str) -> None:
    with StreamServer(Echo(), advertise=advertise, limits=QUICK) as server:
        ticket = issue(server, expected())
        assert ticket.claims.address == found.format(server.port)


@pytest.mark.parametrize(
    "change", [{"frame_bytes": 0}, {"frame_bytes": 2 << 20}, {"keepalive": 0}, {"backoff": -1}]
)
def test_limits_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match=next(iter(change))):
        Limits(**change)


def test_sixty_four_sessions_at_once_all_finish() -> None:
    half = Echo()
    done: list[int] = []

    def session(server: StreamServer, name: str) -> None:
        with StreamClient(issue(server, expected(), name), expected(), client=name) as client:
            for number in range(3):
                client.step(number, *example())
            done.append(client.finish())

    with StreamServer(half) as server:
        threads = [threading.Thread(target=session, args=(server, f"k{n}")) for n in range(64)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert eventually(lambda: len(half.closes) == 64)
        assert all(record.failure is None and record.steps == 3 for record in server.records())
    assert done == [3] * 64
    assert len(half.steps) == len(set(half.steps)) == 64 * 3
