"""Windows: several parts on their way at once, each exactly once, never more than a mini-batch has."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import stream_rig
import torch
from stream_rig import (
    QUICK,
    Echo,
    Raw,
    Slow,
    eventually,
    example,
    expecting,
    in_a_thread,
    issue,
    proxied,
    step_frames,
)
from torch import Tensor

from cutwater.base.errors import EngineError, RunError
from cutwater.codec import Size
from cutwater.stream import connection
from cutwater.stream.call_end import LostError
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.expectation import Expectation
from cutwater.stream.frames import FrameKind, seal
from cutwater.stream.heads import Outline
from cutwater.stream.limits import Limits
from cutwater.stream.messages import Packer
from cutwater.stream.overlap import Overlapped
from cutwater.stream.pace import Frames
from cutwater.stream.plain_call import PlainCall
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import SessionInfo, StepResult
from cutwater.stream.tensors import TensorHead, array_of
from cutwater.train.step import Part, Tensors
from cutwater.train.wire import Coder

CHUNKED = Limits(frame_bytes=256, keepalive=1.0, keepalive_timeout=1.0, handshake=3.0, backoff=0.01)
WIDTH = 64


def windows(batches: tuple[int, ...] = (10, 3), micro_batches: int = 4) -> Expectation:
    """Windows of parts of 3, 3, 2 and 2 samples, and of three parts of one."""
    return expecting(
        *example(4, WIDTH), batches=batches, classes=10, micro_batches=micro_batches, overlapped=True
    )


def parts(expect: Expectation) -> list[tuple[Part, Tensors, Tensor, bool]]:
    """All parts with what they carry, and whether each begins a window."""
    found = []
    for part, rows, opens, *_ in expect.parts():
        (smashed,), labels = example(rows, WIDTH)
        found.append((part, (smashed + part.number,), labels, opens))
    return found


class Accumulating(Echo):
    """A half whose replies depend on every part before: a lost, repeated or swapped one would show."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(WIDTH)

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        await super().step(session, part, smashed, labels)
        self.state = self.state * 1.5 + smashed[0].detach().sum(0) * part.weight * (part.number + 1)
        gradient = self.state.expand(len(labels), WIDTH).clone()
        return StepResult((gradient,), float(self.state.sum()))


def run(client: Any, expect: Expectation) -> list[tuple[float, float]]:
    """Every reply, taken window by window."""
    replies, waiting = [], 0
    for part, smashed, labels, opens in parts(expect):
        if opens:
            replies += [client.receive() for _ in range(waiting)]
            waiting = 0
        client.send(part, smashed, labels)
        waiting += 1
    replies += [client.receive() for _ in range(waiting)]
    assert client.finish() == len(replies)
    return [(reply.loss, float(reply.gradients[0].sum())) for reply in replies]


def connecting(ticket: Any, expect: Expectation, **how: Any) -> Any:
    return stream_rig.client_of(ticket, expect, limits=how.pop("limits", CHUNKED), **how)


EXPECT = windows()
PARTS = 7


def undisturbed() -> list[tuple[float, float]]:
    with (
        StreamServer(Accumulating(), limits=CHUNKED) as server,
        connecting(issue(server, EXPECT), EXPECT) as client,
    ):
        return run(client, EXPECT)


FAULT_FREE = undisturbed()


class Cutting(PlainCall):
    """A connection that is cut when so many frames have gone one way; only the first."""

    way, left, sent = "", 0, dict[str, int]()

    def send(self, frames: Frames, *, alone: bool = False) -> None:
        for frame in frames(self._frame_bytes):
            if self._cut("up") or not self._outbox.put(frame):
                return

    def _frame(self) -> bytes:
        if self._cut("down"):
            raise LostError("cut")
        return super()._frame()

    def _cut(self, way: str) -> bool:
        Cutting.sent[way] = Cutting.sent.get(way, 0) + 1
        if way != Cutting.way:
            return False
        Cutting.left -= 1
        if Cutting.left != -1:
            return False
        self.close()
        return True


@pytest.fixture
def cutting(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Have connections cut, when so many frames have gone one way."""
    monkeypatch.setattr(connection, "PlainCall", Cutting)

    def cut(way: str, after: int) -> None:
        Cutting.way, Cutting.left, Cutting.sent = way, after, {}

    return cut


FRAMES = {"up": 27, "down": 19}
"""More than a session without faults has frames: welcome, parts or replies of up to four, the end."""


@pytest.mark.parametrize("way", ["up", "down"])
def test_cut_between_any_two_frames_a_session_ends_as_if_nothing_had_happened(
    way: str, cutting: Callable[[str, int], None]
) -> None:
    seen = set()
    with StreamServer(Accumulating(), limits=CHUNKED) as server:
        for after in range(FRAMES[way]):
            half = server._trainer = Accumulating()
            ticket = issue(server, EXPECT)
            cutting(way, after)
            with connecting(ticket, EXPECT) as client:
                assert run(client, EXPECT) == FAULT_FREE, f"cut after {after} frames"
                seen.add(client.openings)
            record = server.wait(ticket, 5)
            assert half.steps == [("k1", number) for number in range(PARTS)]
            assert (record.parts, record.steps, record.failure) == (PARTS, 2, None)
    assert seen == {1, 2}, "all frames of a session were tried, and more"


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("after", [1, 300, *range(1800, 8000, 900)])
def test_cut_by_the_network_a_session_ends_as_if_nothing_had_happened(way: str, after: int) -> None:
    half = Accumulating()
    with proxied(half, CHUNKED) as (server, proxy):
        ticket = issue(server, EXPECT)
        proxy.cut_after = {way: after}
        with connecting(ticket, EXPECT) as client:
            assert run(client, EXPECT) == FAULT_FREE
    assert half.steps == [("k1", number) for number in range(PARTS)]


def test_parts_that_have_arrived_outlive_their_connection_and_their_replies_are_not_lost() -> None:
    half = Slow()
    with proxied(half) as (server, proxy):
        ticket = issue(server, EXPECT)
        with connecting(ticket, EXPECT, limits=QUICK) as client:
            thread, out = in_a_thread(lambda: run(client, EXPECT))
            assert half.begun.wait(5)
            assert eventually(lambda: hosted_of(server, ticket).window.received == 4)
            before = server.records()[0].bytes_up
            proxy.cut()
            assert eventually(lambda: proxy.connections == 2)
            assert server.records()[0].bytes_up == before, "nothing is sent again that has arrived"
            half.go.set()
            thread.join(10)
            assert [loss for loss, _ in out[0]] == [float(number) for number in range(PARTS)]
    assert half.steps == [("k1", number) for number in range(PARTS)]


def hosted_of(server: StreamServer, ticket: Any) -> HostedSession:
    return server._service.hosted[ticket.claims.id]


def test_closing_ends_the_wait_for_a_slow_server_and_leaves_no_thread() -> None:
    half = Slow()
    with StreamServer(half, limits=QUICK) as server:
        before = threading.active_count()
        client = connecting(issue(server, EXPECT), EXPECT, limits=QUICK).__enter__()
        thread, out = in_a_thread(lambda: run(client, EXPECT))
        assert half.begun.wait(5)
        client.close()
        thread.join(5)
        assert not thread.is_alive()
        assert eventually(lambda: threading.active_count() == before)
        half.go.set()
    assert isinstance(out[0], EngineError)
    with pytest.raises(EngineError, match="closed"):
        client.receive()


def test_a_server_that_is_gone_for_good_is_an_error_by_the_deadline() -> None:
    with proxied(Slow()) as (server, proxy):
        ticket = issue(server, EXPECT, open_seconds=1.5, session_seconds=1.5)
        with connecting(ticket, EXPECT, limits=QUICK) as client:
            proxy.close()
            with pytest.raises(RefusedError) as refused:
                run(client, EXPECT)
    assert refused.value.status in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED)


def test_a_half_that_fails_beside_a_part_fails_the_session_and_nobody_waits() -> None:
    class Careless(Slow):
        async def step(
            self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor
        ) -> StepResult:
            return replace(await super().step(session, part, smashed, labels), rest=lambda: 1 // 0)

    half = Careless()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, EXPECT)
        with connecting(ticket, EXPECT, limits=QUICK) as client:
            thread, out = in_a_thread(lambda: run(client, EXPECT))
            assert eventually(lambda: hosted_of(server, ticket).window.received == 4)
            half.go.set()
            thread.join(10)
        record = server.wait(ticket, 5)
        assert server.revoke(ticket) == record
    assert "half failed after its last reply; see its log" in str(out[0])
    assert record.failure is not None
    assert record.failure.status is Status.INTERNAL
    assert record.parts == 1


def test_a_part_that_fails_fails_the_session_and_those_behind_it_are_never_trained() -> None:
    class Failing(Slow):
        async def step(
            self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor
        ) -> StepResult:
            result = await super().step(session, part, smashed, labels)
            if part.number == 1:
                raise RunError("the second is too much")
            return result

    half = Failing()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, EXPECT)
        with connecting(ticket, EXPECT, limits=QUICK) as client:
            thread, out = in_a_thread(lambda: run(client, EXPECT))
            assert eventually(lambda: hosted_of(server, ticket).window.received == 4)
            half.go.set()
            thread.join(5)
        record = server.wait(ticket, 5)
    assert "part 1 of client 'k1': the second is too much" in str(out[0])
    assert record.failure is not None
    assert record.parts == 1
    assert ("k1", 3) not in half.steps


# What a client may not do


def raw_verdict(half: Echo, expect: Expectation, frames: list[bytes]) -> tuple[str, str]:
    """How a session ends in which these are sent, while an honest one goes on."""
    with StreamServer(half, limits=QUICK) as server:
        honest, bad = issue(server, EXPECT), issue(server, expect, "k2")
        with connecting(honest, EXPECT, limits=QUICK) as client:
            with Raw(bad) as attacker:
                verdict = attacker.send(*frames).verdict()
            if isinstance(half, Slow):
                half.go.set()
            run(client, EXPECT)
        assert server.wait(honest, 5).failure is None
        failure = server.wait(bad, 5).failure
    assert failure is not None
    assert (failure.status.name, failure.reason) == verdict
    return verdict


def frames_of(expect: Expectation, *places: int) -> list[bytes]:
    all_parts = parts(expect)
    chosen = [all_parts[place] for place in places]
    return [frame for part, *what, _ in chosen for frame in step_frames(expect, part.number, *what)]


def test_more_parts_than_a_mini_batch_has_are_refused_before_their_replies() -> None:
    half = Slow()
    status, why = raw_verdict(half, EXPECT, frames_of(EXPECT, 0, 1, 2, 3, 4))
    assert status == "FAILED_PRECONDITION"
    assert why.startswith("part 4 came before the reply to part 0 was sent, but no more than the 4 parts")
    assert not [number for client, number in half.steps if client == "k2"]


def test_a_part_of_other_samples_than_the_plan_has_for_it_is_refused() -> None:
    half = Echo()
    (smashed,), labels = example(2, WIDTH)
    frames = frames_of(EXPECT, 0) + step_frames(EXPECT, 1, (smashed,), labels)
    status, why = raw_verdict(half, EXPECT, frames)
    assert status == "INVALID_ARGUMENT"
    assert (
        why
        == "tensor 'smashed.0' has 2 samples, but this part of the mini-batch has 3, the same for all tensors"
    )
    assert ("k2", 1) not in half.steps


def test_a_client_that_is_done_in_the_middle_of_a_mini_batch_is_refused() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, EXPECT)
        with Raw(ticket) as client:
            client.send(*frames_of(EXPECT, 0, 1))
            assert eventually(lambda: hosted_of(server, ticket).window.answered == 2)
            client.send(*Packer(EXPECT.at_server).pack(FrameKind.FINISH, 2).frames(256))
            status, why = client.verdict()
    assert (status, why) == (
        "FAILED_PRECONDITION",
        "the client is done after part 1, in the middle of a mini-batch",
    )


def test_a_client_is_told_before_anything_is_sent() -> None:
    half = Slow()
    with (
        StreamServer(half, limits=QUICK) as server,
        connecting(issue(server, EXPECT), EXPECT, limits=QUICK) as client,
    ):
        everything = [each[:3] for each in parts(EXPECT)]
        with pytest.raises(EngineError, match="0 is next"):
            client.send(*everything[1])
        with pytest.raises(EngineError, match="train in the parts of the plan"):
            client.send(Part(0), *everything[0][1:])
        with pytest.raises(EngineError, match="send one first"):
            client.receive()
        for each in everything[:4]:
            client.send(*each)
        with pytest.raises(EngineError, match="4 replies of the mini-batch before were not taken"):
            client.send(*everything[4])
        half.go.set()


# Codecs


class Strict:
    """Two bytes a number, and a head that says so; knows its own bytes from others."""

    name, lossless, at_most = "strict", False, False

    def size(self, shape: tuple[int, ...]) -> Size:
        return Size(16 * int(np.prod(shape)), 32)

    def encode(self, values: Any, seed: int) -> Any:
        if not np.isfinite(values).all():
            raise RunError("the tensor holds NaN, which codec 'strict' can't carry")
        return np.concatenate(
            [np.frombuffer(b"STRI", np.uint8), values.astype("<f2").reshape(-1).view(np.uint8)]
        )

    def decode(self, data: Any, shape: tuple[int, ...]) -> Any:
        if bytes(data[:4]) != b"STRI":
            raise RunError("these are no bytes of codec 'strict'")
        return data[4:].copy().view("<f2").reshape(shape).astype(np.float32)


class Sparse(Strict):
    """Leaves zeros at the end away."""

    name, at_most = "sparse", True

    def encode(self, values: Any, seed: int) -> Any:
        return np.trim_zeros(super().encode(values, seed), "b")

    def decode(self, data: Any, shape: tuple[int, ...]) -> Any:
        return super().decode(
            np.concatenate([data, np.zeros(4 + 2 * int(np.prod(shape)) - len(data), np.uint8)]), shape
        )


def coded(codec: Any, expect: Expectation = EXPECT) -> Expectation:
    return replace(expect, up=Coder(codec, "up", 3), down=Coder(codec, "down", 3))


@pytest.mark.parametrize("codec", [Strict(), Sparse()], ids=lambda codec: codec.name)
def test_coded_tensors_cross_and_arrive_as_the_codec_says(codec: Any) -> None:
    expect = coded(codec)
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expect)
        with connecting(ticket, expect, limits=QUICK) as client:
            for part, smashed, labels, _ in parts(expect)[:4]:
                client.send(part, (smashed[0].where(smashed[0] > part.number, torch.zeros(())),), labels)
            replies = [client.receive() for _ in range(4)]
        record = server.records()[0]
    for (part, smashed, _, _), reply in zip(parts(expect)[:4], replies, strict=True):
        sent = smashed[0].where(smashed[0] > part.number, torch.zeros(()))
        assert torch.equal(reply.gradients[0], sent.half().float()), "it went through the codec both ways"
    most = sum(4 + 2 * WIDTH * rows for rows in (3, 3, 2, 2))
    assert record.tensors_down == most if codec.name == "strict" else 0 < record.tensors_down < most
    assert record.tensors_up == record.tensors_down + 8 * 10


def coded_frames(expect: Expectation, *tensors: Tensor) -> list[bytes]:
    """The frames of part 0 with these bytes as they are, whatever their length."""
    names = [*(spec.name for spec in expect.smashed), "labels"]
    outline = Outline.of(
        [TensorHead(n, t.dtype, tuple(t.shape)) for n, t in zip(names, tensors, strict=True)], ()
    )
    payload = b"".join(outline.lay([array_of(tensor).data.cast("B") for tensor in tensors]))
    return [seal(FrameKind.PART, 0, outline.total, 0, outline.head(()), [payload])]


LABELS = torch.zeros(3).long()
BYTES = 4 + 2 * WIDTH * 3


@pytest.mark.parametrize(
    ("codec", "sent", "words"),
    [
        (Strict(), torch.zeros(BYTES - 1, dtype=torch.uint8), f"codec 'strict' makes {BYTES} bytes"),
        (Strict(), torch.zeros(BYTES, dtype=torch.uint8).view(2, -1), f"makes {BYTES} bytes"),
        (Strict(), torch.zeros(BYTES, dtype=torch.int8), "type torch.int8"),
        (Strict(), torch.zeros(3, WIDTH), "bytes, but the plan allows"),
        (Sparse(), torch.zeros(BYTES + 1, dtype=torch.uint8), f"codec 'sparse' makes 1 to {BYTES} bytes"),
        (Sparse(), torch.zeros(BYTES + 64, dtype=torch.uint8), "bytes, but the plan allows"),
        (Sparse(), torch.zeros(0, dtype=torch.uint8), f"codec 'sparse' makes 1 to {BYTES} bytes"),
        (
            Strict(),
            torch.randint(0, 256, (BYTES,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)),
            "these are no bytes of codec 'strict'",
        ),
    ],
)
def test_bytes_that_a_codec_can_not_have_made_are_refused_by_name(
    codec: Any, sent: Tensor, words: str
) -> None:
    half = Echo()
    status, why = raw_verdict(half, coded(codec), coded_frames(coded(codec), sent, LABELS))
    assert status == ("RESOURCE_EXHAUSTED" if "allows" in words else "INVALID_ARGUMENT")
    assert words in why
    assert not [number for client, number in half.steps if client == "k2"]


def test_what_a_codec_can_not_carry_is_told_to_the_user_at_either_end() -> None:
    class Spoilt(Echo):
        async def step(
            self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor
        ) -> StepResult:
            return StepResult((torch.full_like(smashed[0], float("nan")),), 1.0)

    expect = coded(Strict())
    with StreamServer(Spoilt(), limits=QUICK) as server:
        ticket = issue(server, expect)
        with connecting(ticket, expect, limits=QUICK) as client:
            part, smashed, labels, _ = parts(expect)[0]
            with pytest.raises(RunError, match="'strict' can't carry"):
                client.send(part, (smashed[0] * float("nan"),), labels)
            client.send(part, smashed, labels)
            with pytest.raises(RefusedError, match="part 0 of client 'k1': the tensor holds NaN") as refused:
                client.receive()
    assert refused.value.status is Status.ABORTED


# Memory


def test_what_either_end_holds_is_bounded_by_a_mini_batch_as_it_crosses() -> None:
    expect = replace(windows(batches=(8,) * 6, micro_batches=4), up=Coder(Strict(), "up", 3))
    held: list[tuple[int, int, int, int]] = []

    class Looking(Echo):
        server: StreamServer
        ticket: Any

        async def step(
            self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor
        ) -> StepResult:
            result = await super().step(session, part, smashed, labels)
            await asyncio.sleep(0.005)
            hosted = hosted_of(self.server, self.ticket)
            waiting = [arrived.message for arrived in hosted._waiting]
            answers = [answer.result() for answer in hosted.window._answers.values() if answer.done()]
            held.append(
                (
                    len(waiting) + len(hosted._running),
                    len(answers),
                    sum(t.nbytes for message in waiting for t in message.tensors),
                    sum(kept.packed.outline.total for kept in answers if kept is not None),
                )
            )
            return result

    half = Looking()
    one = 4 + 2 * WIDTH * 2 + 8 * 2
    with StreamServer(half, limits=QUICK) as server:
        half.server, half.ticket = server, issue(server, expect)
        with connecting(half.ticket, expect, limits=QUICK) as client:
            exchange, kept = client._exchange, []
            assert isinstance(exchange, Overlapped)
            send = client.send

            def watched(*what: Any) -> None:
                send(*what)
                kept.append(
                    (exchange.kept, sum(each.packed.outline.tensor_bytes for each in list(exchange._open)))
                )

            client.send = watched
            run(client, expect)
        assert hosted_of(server, half.ticket).window._answers == {}, "what is over holds nothing"
    assert max(count for count, _ in kept) <= 4
    assert max(size for _, size in kept) <= 4 * one
    assert 1 < max(parts for parts, *_ in held) <= 4
    assert max(answers for _, answers, *_ in held) <= 4
    assert max(size for _, _, size, _ in held) <= 3 * one
    # Parts on their way hold what came and what it decodes to, those that are answered their replies.
    decoded = reply = 2 * WIDTH * 4
    assert max(size for *_, size in held) >= reply
    most = max(parts * (one + decoded) + size for parts, _, _, size in held)
    assert most <= expect.held_bytes < 2 * 4 * (one + decoded + reply)
    assert len(held) == 24


def test_a_client_that_never_reads_is_refused_when_it_goes_on_or_dropped_at_its_deadline() -> None:
    rows, width = 64, 64 * 1024
    expect = expecting(
        *example(rows, width), batches=[rows, rows], classes=10, micro_batches=2, overlapped=True
    )
    pieces = [
        step_frames(expect, number, (torch.zeros(rows // 2, width),), torch.zeros(rows // 2).long())
        for number in range(3)
    ]
    for goes_on in (True, False):
        half = Echo()
        with StreamServer(half, limits=replace(QUICK, keepalive_timeout=0.3)) as server:
            ticket = issue(server, expect, open_seconds=4.0, session_seconds=4.0)
            with Raw(ticket) as client:
                client.send(*pieces[0], *pieces[1])
                assert eventually(lambda half=half: len(half.steps) == 2)
                if goes_on:
                    client.send(*pieces[2])
                record = server.wait(ticket, 10)
        assert record.failure is not None
        wanted = Status.FAILED_PRECONDITION if goes_on else Status.DEADLINE_EXCEEDED
        assert record.failure.status is wanted
        assert len(half.steps) == 2
        assert record.bytes_down < 16 << 20, "its replies were never sent in full"
