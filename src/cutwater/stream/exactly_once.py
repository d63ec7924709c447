"""A session's state at the server: every part takes effect exactly once, whatever happens to connections.

Parts of mini-batches are numbered from 0 and come in order, in windows: one part at a time or, where they
overlap, all parts of a mini-batch at once. A part that has arrived in full runs to its end, whatever becomes
of the connection that brought it, and the replies of a window are kept until a part of the next one arrives
in full. A client that comes back says how many replies it holds; it is told how many parts have arrived. So
it sends again exactly what got lost on the way up, and is sent again exactly what got lost on the way down.

What a session holds is bounded by its window: the parts of one window that wait or are computed, the replies
to those of one, and a message each way that is being received or sent. All are held as they cross; decoded
are the two parts that are handed in for training. Whoever begins a window before all replies of the one
before were sent is refused.
"""

import asyncio
import concurrent.futures
import hmac
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from cutwater.stream.expectation import Expectation, Planned
from cutwater.stream.messages import WAITED, Message, Packed
from cutwater.stream.one_part import OnePart
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepTrainer
from cutwater.stream.ticket import Claims, Opening

log = logging.getLogger(__name__)
_AT_ONCE: Final = 2
"""Parts of a session that are handed in for training at once: one that is worked on, and the next. So the
session has work waiting whenever it has some at all, which is what its share is a share of."""


class _Kept(NamedTuple):
    """The reply to a part."""

    packed: Packed
    idle_from: float
    """When it would have been sent, had its part not waited for others since it arrived."""


_Answer = asyncio.Future[_Kept | None]
"""Of a part: its reply, when it is there; None if the session failed over it."""


class _Arrived(NamedTuple):
    """A part that waits to be computed."""

    planned: Planned
    message: Message
    since: float


class HostedSession:
    """One session; lives in the server's event loop alone, so nothing here needs a lock."""

    def __init__(
        self, claims: Claims, expect: Expectation, trainer: StepTrainer, clock: Callable[[], float]
    ) -> None:
        self.claims, self.expect, self._trainer, self._clock = claims, expect, trainer, clock
        self.session = SessionInfo(claims.id, claims.run, claims.round, claims.client, claims.cut)
        self.over: concurrent.futures.Future[SessionRecord] = concurrent.futures.Future()
        self.received = self.answered = 0
        """Parts that have arrived in full, and those of them that were computed."""
        self.bytes_up = self.bytes_down = 0
        self.seconds = {"up": 0.0, "server": 0.0, "down": 0.0}
        self.finished = False
        self.failure: RefusedError | None = None
        self._counts = dict.fromkeys(("parts", "steps", "samples", "tensors_up", "tensors_down"), 0)
        self._one_part = OnePart(self.session, expect, trainer, clock)
        self._nonce, self._attempt, self._openings = b"", 0, 0
        self._open_by = clock() + claims.open_seconds
        self._ending: asyncio.Future[RefusedError] | None = None
        self._coming = expect.parts()
        self._next: Planned | None = next(self._coming)
        self.rows = self._next.rows
        """Samples of the part that is next; after the last part, those of that."""
        self._complete = True
        """Whether what arrived so far ends with a mini-batch."""
        self._first = self._told = 0
        """The first part of the window, and how many replies the client has, or is being sent."""
        self._answers: dict[int, _Answer] = {}
        self._waiting: deque[_Arrived] = deque()
        self._running: list[asyncio.Task[Any]] = []
        self._rest: Callable[[], object] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(claims.session_seconds, self._expire)
        self._closing: asyncio.Task[None] | None = None

    # Connections

    def admit(self, opening: Opening) -> "asyncio.Future[RefusedError]":
        """Let a connection in, in place of the one before; the future says when it must go, and why."""
        self._check_opening(opening)
        self._nonce, self._attempt = opening.nonce, opening.attempt
        self._openings += 1
        self._told = max(self._told, opening.have)
        self._dismiss(RefusedError(Status.ABORTED, "the session goes on over another connection"))
        self._ending = asyncio.get_running_loop().create_future()
        return self._ending

    def _check_opening(self, opening: Opening) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._nonce:
            if self._clock() > self._open_by:
                raise _denied(f"the ticket was good for {self.claims.open_seconds:g} s, which are over")
        elif not hmac.compare_digest(self._nonce, opening.nonce):
            raise _denied("the ticket was used before: it opens one session")
        if opening.attempt <= self._attempt:
            raise _denied(f"opening {opening.attempt} was used before: {self._attempt} came already")
        # Nobody holds the reply to a part that still waits or runs, and those before the window are gone.
        least = self.received if self.finished else self._first
        if not least <= opening.have <= self.answered:
            raise _precondition(
                f"the client holds {opening.have} replies, but {self.received} parts have arrived"
            )

    def _dismiss(self, refusal: RefusedError) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(refusal)

    # Parts

    async def take(self, message: Message) -> Packed | None:
        """A part has arrived in full, the only one of its window: run it, once, for its reply.

        Runs in the task of the connection that brought it, but does not end with that connection.
        """
        arrived, kept = self._enter(message), None
        self._running.append(_this_task())
        try:
            kept = await self._run(arrived)
        finally:
            self._running.clear()
            self._settle(arrived.planned, kept)
        return kept.packed if kept is not None else None

    def queue(self, message: Message) -> None:
        """A part of a window has arrived in full: it is run, once, when those before it are done."""
        self._waiting.append(self._enter(message))
        self._hand_in()

    async def reply(self, number: int) -> Packed | None:
        """The reply to a part of the window or to the one that is next, when it is there and to be sent.

        None if the session failed over it.
        """
        kept = await asyncio.shield(self._answer(number))
        self._told = max(self._told, number + 1)
        if kept is None or self.expect.window == 1:
            return kept.packed if kept is not None else None
        return kept.packed.saying(WAITED, max(self._clock() - kept.idle_from, 0.0))

    def do_the_rest(self) -> None:
        """The reply to the last part is out, or need not be waited for."""
        rest, self._rest = self._rest, None
        if rest is not None:
            rest()

    def runs_in(self, task: "asyncio.Task[None]") -> bool:
        """Whether this task is in the middle of a part, and so must be left alone."""
        return task in self._running

    def _enter(self, message: Message) -> _Arrived:
        number, planned = message.number, self._next
        if self.finished or number != self.received:
            raise _precondition(f"part {number} came, but part {self.received} is next")
        if planned is None:
            raise invalid(f"part {number} came, but the plan has {self.received} parts")
        if planned.opens:
            self._open_window(number)
        self.received += 1
        self._complete = planned.part.last
        self._next = next(self._coming, None)
        self.rows = self._next.rows if self._next is not None else planned.rows
        self._answer(number)
        return _Arrived(planned, message, self._clock())

    def _open_window(self, number: int) -> None:
        if self._told < number and self.expect.window > 1:
            raise _precondition(
                f"part {number} came before the reply to part {self._told} was sent, but no more than the "
                f"{number - self._first} parts of the mini-batch before it may be on their way at once"
            )
        for known in range(self._first, number):
            del self._answers[known]
        self._first = number

    def _answer(self, number: int) -> _Answer:
        if number not in self._answers:
            self._answers[number] = asyncio.get_running_loop().create_future()
        return self._answers[number]

    def _settle(self, planned: Planned, kept: _Kept | None) -> None:
        self.answered += kept is not None
        self._answers[planned.part.number].set_result(kept)

    def _hand_in(self) -> None:
        """Have the next parts run that wait, in order."""
        while self._waiting and len(self._running) < _AT_ONCE and self.failure is None:
            arrived = self._waiting.popleft()
            task = asyncio.create_task(self._run(arrived))
            self._running.append(task)
            # Not at the end of the coroutine, which a task that is cancelled early never comes to.
            task.add_done_callback(partial(self._after, arrived.planned))

    def _after(self, planned: Planned, task: "asyncio.Task[_Kept | None]") -> None:
        self._running.remove(task)
        self._settle(planned, None if task.cancelled() else task.result())
        self._hand_in()

    async def _run(self, arrived: _Arrived) -> _Kept | None:
        planned, message, since = arrived
        number = planned.part.number
        self.do_the_rest()
        try:
            computed = await self._one_part.compute(planned, message)
        except RefusedError as refusal:
            self.fail(refusal)
            return None
        if number > self._first:
            # A codec may be done sooner with this one; replies count in order.
            await asyncio.shield(self._answers[number - 1])
        self.do_the_rest()
        self._count(
            parts=1,
            steps=int(planned.part.last),
            samples=planned.rows,
            tensors_up=computed.carried[0],
            tensors_down=computed.carried[1],
        )
        self.seconds["server"] += computed.seconds
        self._rest = computed.rest
        return _Kept(computed.packed, since + computed.seconds)

    def _count(self, **more: int) -> None:
        for name, count in more.items():
            self._counts[name] += count

    # Ends

    def finish(self, parts: int) -> None:
        """The client says it is done; said twice, it is done once."""
        if parts != self.received:
            raise _precondition(f"the client counts {parts} parts, but {self.received} have arrived")
        if self.answered != self.received:
            raise _precondition(
                f"the client is done before part {self.answered} was answered: take all replies first"
            )
        if not self._complete:
            raise _precondition(f"the client is done after part {parts - 1}, in the middle of a mini-batch")
        if not self.finished:
            self.do_the_rest()
            self.finished = True
            self._end()

    def fail(self, refusal: RefusedError) -> None:
        """End the session for good; the client learns why if it is there or comes back."""
        if self.finished or self.failure is not None:
            return
        # A copy without its traceback, which would keep the refused data for as long as the record.
        self.failure = RefusedError(refusal.status, refusal.reason)
        self._rest = None
        self._dismiss(self.failure)
        self._end()

    def _expire(self) -> None:
        reason = f"the session's {self.claims.session_seconds:g} s are over"
        self.fail(RefusedError(Status.DEADLINE_EXCEEDED, reason))

    def _end(self) -> None:
        self._timer.cancel()
        while self._waiting:
            self._settle(self._waiting.popleft().planned, None)
        for task in self._running:
            if task is not asyncio.current_task():
                task.cancel()
        self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        for number in range(self._first, self.received):
            await asyncio.shield(self._answers[number])
        self._answers.clear()
        try:
            await self._trainer.closed(self.session, self.record())
        except Exception:
            log.exception("the server's half failed to close %s", self.session)
            reason = "the server's half failed at the end of the session; see its log"
            self.failure = self.failure or RefusedError(Status.INTERNAL, reason)
        self.over.set_result(self.record())

    async def ended(self) -> SessionRecord:
        """Wait for the end, which has begun."""
        assert self._closing is not None
        await asyncio.shield(self._closing)
        return self.over.result()

    def record(self) -> SessionRecord:
        """How it went so far."""
        return SessionRecord(
            session=self.session,
            **self._counts,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            openings=self._openings,
            seconds=dict(self.seconds),
            failure=self.failure,
        )


def _this_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None, "called by a task of the event loop"
    return task


def _denied(reason: str) -> RefusedError:
    return RefusedError(Status.PERMISSION_DENIED, reason)


def _precondition(reason: str) -> RefusedError:
    return RefusedError(Status.FAILED_PRECONDITION, reason)
