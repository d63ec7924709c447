"""Lost connections: the session goes on where it stopped, and every step takes effect exactly once."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import own_loop
import pytest
import torch
from stream_rig import (
    QUICK,
    Echo,
    Raw,
    Slow,
    Thorough,
    eventually,
    example,
    expected,
    in_a_thread,
    issue,
    proxied,
    step_frames,
)

from cutwater.base.errors import EngineError
from cutwater.stream.client import StreamClient
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.frames import PREFIX, FrameKind, unseal
from cutwater.stream.limits import Limits
from cutwater.stream.messages import Message
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.server import StreamServer
from cutwater.stream.service import Service
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult
from cutwater.stream.ticket import Claims, TicketKey, opening
from cutwater.stream.tls import Certificate
from cutwater.train.step import Part, Tensors

CHUNKED = Limits(frame_bytes=256, keepalive=1.0, keepalive_timeout=1.0, handshake=3.0, backoff=0.01)
AT_ONCE = replace(CHUNKED, frame_bytes=1 << 16)
"""A part is one frame, which is sent together with asking for its answer."""
SIZE = (8, 64)
EXPECT = expected(*SIZE)


class Accumulating(Echo):
    """A half whose replies depend on every step before: a lost or repeated step would show."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(SIZE)

    async def step(
        self, session: SessionInfo, part: Part, smashed: Tensors, labels: torch.Tensor
    ) -> StepResult:
        await super().step(session, part, smashed, labels)
        self.state = self.state * 1.5 + smashed[0].detach() * (part.number + 1)
        return StepResult((self.state.clone(),), float(self.state.sum()))


def run(client: StreamClient, steps: int = 4) -> list[float]:
    losses = []
    for number in range(steps):
        (smashed,), labels = example(*SIZE)
        losses.append(client.step(number, (smashed + number,), labels).loss)
    assert client.finish() == steps
    return losses


def undisturbed() -> list[float]:
    with StreamServer(Accumulating(), limits=CHUNKED) as server:
        client = StreamClient(issue(server, EXPECT), EXPECT, client="k1", limits=CHUNKED)
        with client:
            return run(client)


FAULT_FREE = undisturbed()
HELLO = 2000
"""Bytes up to which a connection is still shaking hands."""
STEP = SIZE[0] * SIZE[1] * 4 + SIZE[0] * 8
FRAME = 256 + PREFIX


@pytest.mark.parametrize("limits", [CHUNKED, AT_ONCE], ids=["in frames", "at once"])
@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("after", [1, 300, HELLO, *range(HELLO + 50, HELLO + 4 * STEP, 3 * FRAME)])
def test_cut_anywhere_the_session_ends_as_if_nothing_had_happened(
    limits: Limits, way: str, after: int
) -> None:
    """From the first byte of the handshake to the last step, in either direction."""
    half = Accumulating()
    with proxied(half, limits) as (server, proxy):
        ticket = issue(server, EXPECT)
        proxy.cut_after = {way: after}
        with StreamClient(ticket, EXPECT, client="k1", limits=limits) as client:
            assert run(client) == FAULT_FREE
        assert proxy.connections == 2
        record = server.wait(ticket, 5)
    assert half.steps == [("k1", number) for number in range(4)]
    assert (record.steps, record.failure) == (4, None)


def test_cut_again_and_again_it_still_ends_the_same() -> None:
    half = Accumulating()
    with proxied(half, CHUNKED) as (server, proxy):
        ticket = issue(server, EXPECT)
        stop = threading.Event()

        def nuisance() -> None:
            while not stop.wait(0.05):
                proxy.cut()

        with StreamClient(ticket, EXPECT, client="k1", limits=CHUNKED) as client:
            thread = threading.Thread(target=nuisance)
            thread.start()
            try:
                losses = []
                for number in range(4):
                    (smashed,), labels = example(*SIZE)
                    time.sleep(0.06)
                    losses.append(client.step(number, (smashed + number,), labels).loss)
            finally:
                stop.set()
                thread.join()
            assert client.finish() == 4
            assert losses == FAULT_FREE
            assert client.openings > 1
    assert half.steps == [("k1", number) for number in range(4)]


def test_a_step_under_way_outlives_its_connection_and_its_reply_is_not_lost() -> None:
    """Lost in flight while the server works on: neither repeated nor forgotten."""
    half = Slow()
    with proxied(half) as (server, proxy):
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            thread, out = in_a_thread(lambda: client.step(0, *example()).loss)
            assert half.begun.wait(5)
            proxy.cut()
            assert eventually(lambda: proxy.connections == 2)
            half.go.set()
            thread.join(10)
            assert out == [0.0]
            client.step(1, *example())
            assert client.finish() == 2
        assert server.wait(ticket, 5).openings == 2
    assert half.steps == [("k1", 0), ("k1", 1)]


def test_a_reply_that_got_lost_is_sent_again_without_sending_the_step_again() -> None:
    half = Echo()
    with proxied(half) as (server, proxy):
        ticket = issue(server, EXPECT)
        with StreamClient(ticket, EXPECT, client="k1", limits=QUICK) as client:
            client.step(0, *example(*SIZE))
            before = server.records()[0].bytes_up
            client.step(1, *example(*SIZE))
            one_step = server.records()[0].bytes_up - before
            proxy.dead.set()  # what is sent now gets lost silently …
            thread, out = in_a_thread(lambda: client.step(2, *example(*SIZE)).loss)
            assert eventually(lambda: not thread.is_alive() or proxy.connections > 1, 0.3) is False
            proxy.cut()
            proxy.dead.clear()
            thread.join(10)
            assert out == [2.0]
            assert client.finish() == 3
        record = server.wait(ticket, 5)
    assert half.steps == [("k1", 0), ("k1", 1), ("k1", 2)]
    assert record.bytes_up < 4 * one_step


def test_a_finish_whose_answer_got_lost_is_said_again_and_counts_once() -> None:
    half = Echo()
    with proxied(half) as (server, proxy):
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            assert client.finish() == 1
            proxy.cut()
            assert client.finish() == 1
    assert len(half.closes) == 1
    assert half.closes[0].failure is None


def test_a_half_open_peer_is_found_by_keepalive_and_replaced(
    record_property: Callable[[str, object], None],
) -> None:
    """The wire goes dead without a word; nobody resets anything."""
    half = Echo()
    with proxied(half) as (server, proxy):
        client = StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK)
        with client:
            client.step(0, *example())
            proxy.dead.set()
            began = time.monotonic()
            thread, out = in_a_thread(lambda: client.step(1, *example()).loss)
            # Found after keepalive and its timeout; then the client comes back over a new connection.
            assert eventually(lambda: proxy.connections == 2)
            record_property("found after s, of 2 allowed to its limits", round(time.monotonic() - began, 2))
            proxy.dead.clear()
            thread.join(15)
            assert out == [1.0]
            assert client.finish() == 2
    assert half.steps == [("k1", 0), ("k1", 1)]


def test_a_server_that_is_gone_for_good_is_an_error_by_the_deadline() -> None:
    with proxied(Echo()) as (server, proxy):
        ticket = issue(server, expected(), open_seconds=1.5, session_seconds=1.5)
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            proxy.close()
            with pytest.raises(RefusedError) as refused:
                client.step(1, *example())
    assert refused.value.status in (Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED)


def test_a_server_that_never_was_is_an_error_after_the_patience_to_connect() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
    with pytest.raises(RefusedError, match="can't be reached") as refused:
        StreamClient(ticket, expected(), client="k1", limits=Limits(connect=0.2, backoff=0.01)).__enter__()
    assert refused.value.status is Status.UNAVAILABLE


def test_closing_a_client_from_another_thread_ends_its_waiting() -> None:
    with proxied(Echo()) as (server, proxy):
        ticket = issue(server, expected())
        client = StreamClient(ticket, expected(), client="k1", limits=QUICK).__enter__()
        proxy.close()
        thread, out = in_a_thread(lambda: client.step(0, *example()))
        assert eventually(lambda: client.openings > 1), "it has lost its connection and tries again"
        assert thread.is_alive()
        client.close()
        thread.join(5)
    assert not thread.is_alive()
    assert isinstance(out[0], EngineError)


def test_what_is_left_of_a_step_is_done_once_its_reply_is_out_and_before_anything_else() -> None:
    half = Thorough()
    with (
        StreamServer(half, limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        client.step(0, *example())
        assert eventually(lambda: half.order == ["step 0", "rest of 0"])
        client.step(1, *example())
        client.finish()
    assert half.order == ["step 0", "rest of 0", "step 1", "rest of 1", "closed"]


@pytest.mark.parametrize("then", ["step", "finish", "fail"])
def test_what_is_left_of_a_step_is_done_even_if_nobody_sends_its_reply(then: str) -> None:
    """By the next step or the end at the latest; a session that failed has no use for it."""
    half, labels = Thorough(), example()[1]
    claims = Claims("id", "r", 1, "k1", 2, "x:1", "name", "print", 30.0, 30.0)

    async def main() -> None:
        hosted = HostedSession(claims, expected(), half, time.monotonic)
        await hosted.take(Message(FrameKind.PART, 0, (torch.zeros(4, 8), labels), {}))
        assert half.order == ["step 0"]
        if then == "step":
            await hosted.take(Message(FrameKind.PART, 1, (torch.zeros(4, 8), labels), {}))
        elif then == "finish":
            hosted.finish(1)
        hosted.fail(RefusedError(Status.ABORTED, "over"))
        hosted.do_the_rest()
        await hosted.ended()

    own_loop.run(main())
    expected_order = {"step": ["rest of 0", "step 1"], "finish": ["rest of 0"], "fail": []}
    assert half.order == ["step 0", *expected_order[then], "closed"]


@pytest.mark.parametrize("after", range(HELLO, HELLO + 2 * STEP, FRAME))
def test_what_is_left_of_a_step_is_done_though_its_reply_got_lost(after: int) -> None:
    half = Thorough()
    with proxied(half, CHUNKED) as (server, proxy):
        proxy.cut_after = {"down": after}
        ticket = issue(server, EXPECT)
        with StreamClient(ticket, EXPECT, client="k1", limits=CHUNKED) as client:
            for number in range(3):
                client.step(number, *example(*SIZE))
            client.finish()
    assert half.order == [f"{what} {number}" for number in range(3) for what in ("step", "rest of")] + [
        "closed"
    ]


def test_a_session_that_failed_has_nothing_left_to_do() -> None:
    half = Thorough()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            assert eventually(lambda: half.order == ["step 0", "rest of 0"])
            server.revoke(ticket)
    assert half.order == ["step 0", "rest of 0", "closed"]


def test_records_count_connections() -> None:
    half = Echo()
    with proxied(half) as (server, proxy):
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            for number in range(3):
                client.step(number, *example())
                proxy.cut()
            client.finish()
        record: SessionRecord = server.wait(ticket, 5)
    assert record.openings == client.openings == 4


class Late(Echo):
    """A half that takes its time to close, and may fail at it."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__()
        self.may_close, self.failure = threading.Event(), failure

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        while not self.may_close.is_set():
            await asyncio.sleep(0.01)
        if self.failure is not None:
            raise self.failure
        await super().closed(session, record)


def test_a_client_is_told_that_it_has_finished_when_the_servers_half_has() -> None:
    half = Late()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            threading.Timer(0.2, half.may_close.set).start()
            assert client.finish() == 1
            assert half.may_close.is_set()
            assert server.wait(ticket, 0).steps == 1
            assert client.finish() == 1, "said again, it is as true"


def test_a_half_that_fails_to_close_fails_its_session() -> None:
    half = Late(ValueError("broken"))
    half.may_close.set()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            client.step(0, *example())
            with pytest.raises(RefusedError, match="failed at the end") as refused:
                client.finish()
        assert refused.value.status is Status.INTERNAL
        assert server.wait(ticket, 5).failure is not None


def test_nobody_holds_the_reply_to_a_step_that_still_runs() -> None:
    """A client that says so could have many steps in the queue at once."""
    half, nonce = Slow(), b"n" * 16
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        (frame,) = step_frames(expected(), 0, *example())
        with Raw(ticket, metadata=opening(ticket, "k1", nonce, 1, 0)) as first:
            first.send(frame)
            assert half.begun.wait(5)
            with Raw(ticket, metadata=opening(ticket, "k1", nonce, 2, 1)) as second:
                status, reason = second.verdict()
            assert (status, "1 replies" in reason) == ("FAILED_PRECONDITION", True)
            half.go.set()
            first.call.cancel()
        with Raw(ticket, metadata=opening(ticket, "k1", nonce, 3, 0)) as third:
            assert [unseal(next(third.call)).kind for _ in range(2)] == [FrameKind.WELCOME, FrameKind.REPLY]


class Wire:
    """A connection as the server sees it, on which frames come when the test says."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self.inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent: list[tuple[FrameKind, int]] = []

    def invocation_metadata(self) -> Any:
        return self.metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> bytes:
        return await self.inbox.get()

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        frame = unseal(data)
        self.sent.append((frame.kind, frame.number))

    async def abort(self, *_: object) -> None:
        raise RuntimeError("aborted")


@pytest.mark.parametrize("turns", range(6))
def test_a_step_that_comes_late_over_the_old_connection_is_left_to_the_new_one(turns: int) -> None:
    """Real networks reorder what two connections carry; only here can every order be tried."""

    async def main() -> None:
        certificate, key, half = Certificate.self_signed(), TicketKey(), Thorough()
        claims = Claims("id", "r", 1, "k1", 2, "x:1", certificate.name, certificate.fingerprint, 30.0, 30.0)
        service = Service(key, Limits(), time.monotonic)
        service.hosted["id"] = hosted = HostedSession(claims, expected(), half, time.monotonic)
        ticket = key.issue(claims, certificate.certificate)
        frames = [step_frames(expected(), number, *example())[0] for number in range(2)]
        old, new = (Wire(opening(ticket, "k1", b"n" * 16, attempt, 0)) for attempt in (1, 2))
        calls = [asyncio.create_task(service._call(None, old))]
        await asyncio.sleep(0.01)
        calls.append(asyncio.create_task(service._call(None, new)))
        for _ in range(turns):
            await asyncio.sleep(0)
        old.inbox.put_nowait(frames[0])
        await asyncio.sleep(0.02)
        if new.sent == [(FrameKind.WELCOME, 0)]:
            new.inbox.put_nowait(frames[0])  # as a client does when the server has not got it
        new.inbox.put_nowait(frames[1])
        await asyncio.sleep(0.02)
        assert hosted.failure is None
        assert half.order == ["step 0", "rest of 0", "step 1", "rest of 1"]
        assert new.sent[-2:] == [(FrameKind.REPLY, 0), (FrameKind.REPLY, 1)]
        hosted.fail(RefusedError(Status.ABORTED, "over"))
        await asyncio.wait(calls)

    own_loop.run(main())
