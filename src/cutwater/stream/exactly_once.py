"""A session's state at the server: every part takes effect exactly once, whatever happens to connections.

Parts of mini-batches are numbered from 0 and come in order, in windows: one part at a time or, where they
overlap, all parts of a mini-batch at once. A part that has arrived in full runs to its end, whatever becomes
of the connection that brought it, and the replies of a window are kept until a part of the next one arrives
in full. A client that comes back says how many replies it holds; it is told how many parts have arrived. So
it sends again exactly what got lost on the way up, and is sent again exactly what got lost on the way down.

What a session holds is bounded by its window: the parts of one window that wait or are computed, the replies
to those of one, and a message each way that is being received or sent. All are held as they cross; decoded
are the two parts that are handed in for training. Whoever begins a window before all replies of the one
before were sent is refused. Where a row of smashed data goes up once, the session keeps rows besides, at most
one for each of the client's samples (:mod:`cutwater.train.rows`).
"""

import asyncio
import concurrent.futures
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

from cutwater.base.errors import EngineError
from cutwater.federate.measured import Moved
from cutwater.stream.entry import Ending, Entry
from cutwater.stream.expectation import Expectation, Planned
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import WAITED, Gates, Message, Packed
from cutwater.stream.move import TO, Move
from cutwater.stream.noting import Account, Notes
from cutwater.stream.one_part import OnePart
from cutwater.stream.pace import Reading, Sending
from cutwater.stream.refusal import RefusedError, Status, precondition
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepTrainer
from cutwater.stream.ticket import Claims, Opening
from cutwater.stream.window import Kept, Window

log = logging.getLogger(__name__)
_AT_ONCE: Final = 2
"""Parts of a session that are handed in for training at once: one that is worked on, and the next. So the
session has work waiting whenever it has some at all, which is what its share is a share of."""
_CROSSED: Final = ("bytes_up", "bytes_down", "timed_up", "timed_down")


class _Arrived(NamedTuple):
    """A part, or a move of the cut, that waits to be computed."""

    planned: Planned | Move
    message: Message
    since: float


@dataclass(slots=True)
class _Counts:
    """Of what took effect; see :class:`~cutwater.stream.step_trainer.SessionRecord`."""

    parts: int = 0
    steps: int = 0
    samples: int = 0
    tensors_up: int = 0
    tensors_down: int = 0

    def note(self, planned: Planned | Move, carried: tuple[int, int]) -> None:
        """A part took effect, or is half way, or the cut has moved."""
        if isinstance(planned, Planned) and planned.completes:
            self.parts += 1
            self.steps += planned.part.last
            self.samples += planned.rows
        self.tensors_up += carried[0]
        self.tensors_down += carried[1]


class HostedSession:
    """One session; lives in the server's event loop alone, so nothing here needs a lock."""

    def __init__(
        self,
        claims: Claims,
        expect: Expectation,
        trainer: StepTrainer,
        clock: Callable[[], float],
        rate_down: float = 0.0,
        issued: float | None = None,
    ) -> None:
        """``issued`` is when its ticket was, by the clock, if not now."""
        self.claims, self.expect, self._trainer, self._clock = claims, expect, trainer, clock
        self.session = SessionInfo(claims.id, claims.run, claims.round, claims.client, claims.cut)
        self.over: concurrent.futures.Future[SessionRecord] = concurrent.futures.Future()
        self.window = Window(expect)
        self.bytes_up = self.bytes_down = self.timed_up = self.timed_down = 0
        self.coming = 0, 0.0
        """Bytes that were timed of the message that is on its way up, and the seconds it has taken so far."""
        self.line_up = Reading(claims.rate_up) if claims.rate_up else None
        self.line_down = Sending(rate_down) if rate_down else None
        """What it may use of lines that others share; None if it has one of its own."""
        self.seconds = {"up": 0.0, "server": 0.0, "down": 0.0, "stepped": 0.0, "session": 0.0}
        self._opened = self._heard = 0.0
        """When it began, and when its last part took effect."""
        self.finished = False
        self._norm: float | None = None
        self.failure: RefusedError | None = None
        self._counts = _Counts()
        self.gates: Gates = expect.at_server
        """What its client may send, as long as this stays the same."""
        self._proposed: Move | None = None
        self._told: Move | None = None
        """Where the cut is to move, and where its client was told that it does."""
        self._moves: list[Moved] = []
        self._one_part = self._parts_computed()
        issued = clock() if issued is None else issued
        self._entry, self._openings = Entry("session", claims, issued, clock), 0
        self._waiting: deque[_Arrived] = deque()
        self._running: list[asyncio.Task[Any]] = []
        self._rest: Callable[[], object] | None = None
        loop, left = asyncio.get_running_loop(), issued + claims.session_seconds - clock()
        self._timer = loop.call_later(left, self._expire)
        self.notes: Notes | None = None
        """What outlives this process of it, if anything does."""
        self._closing: asyncio.Task[None] | None = None

    # The cut

    def propose(self, move: Move) -> None:
        """Have the cut moved after this mini-batch, unless it moves elsewhere before that."""
        if self.notes is not None:
            raise EngineError("a session that has a journal stays at its cut: set journal = false")
        self._proposed = move

    def _told_besides(self, planned: Planned) -> dict[str, float]:
        """What the reply to a part says of the cut."""
        move = self._proposed
        if move is None or move.start != self.session.cut or not (planned.part.last and self.window.more):
            return {}
        self._proposed, self._told, self.gates = None, move, move.at_server
        return {TO: float(move.cut)}

    def _settle_at(self, move: Move) -> None:
        """The cut has moved."""
        self._moves.append(Moved(self._counts.steps, self.session.cut, move.cut))
        self.session, self.expect = replace(self.session, cut=move.cut), move.expect
        self.gates = move.expect.at_server
        self._one_part = self._parts_computed()

    def _parts_computed(self) -> OnePart:
        return OnePart(self.session, self.expect, self._trainer, self._clock, self._told_besides)

    # Connections

    def admit(self, opening: Opening) -> Ending:
        """Let a connection in, in place of the one before; the future says when it must go, and why."""
        self._check_opening(opening)
        if not self._openings:
            self._opened = self._clock()
        if self.notes is not None:
            self.notes.bind(opening.nonce, opening.attempt, self._opened)
        self.bind(opening.nonce, opening.attempt, self._opened)
        self.window.tell(opening.have)
        return self._entry.replace()

    def bind(self, nonce: bytes, attempt: int, opened: float) -> None:
        """The session is the client's with this nonce, since then; this was its latest connection."""
        self._entry.bind(nonce, attempt)
        self._opened = opened
        self._openings += 1
        self._heard = self._heard or self._clock()

    def _check_opening(self, opening: Opening) -> None:
        if self.failure is not None:
            raise self.failure
        self._entry.check(opening)
        received = self.window.received
        if not self.window.may_hold(opening.have) or (self.finished and opening.have != received):
            raise precondition(f"the client holds {opening.have} replies, but {received} parts have arrived")

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
            self.window.settle(message.number, kept)
        return kept.packed if kept is not None else None

    def queue(self, message: Message) -> None:
        """A part of a window has arrived in full: it is run, once, when those before it are done."""
        self._waiting.append(self._enter(message))
        self._hand_in()

    async def reply(self, number: int) -> Packed | None:
        """The reply to a part of the window or to the one that is next, when it is there and to be sent.

        None if the session failed over it.
        """
        kept = await asyncio.shield(self.window.answer(number))
        self.window.tell(number + 1)
        if kept is None or self.expect.window == 1:
            return kept.packed if kept is not None else None
        return kept.packed.saying(WAITED, max(self._clock() - kept.idle_from, 0.0))

    def do_the_rest(self) -> bool:
        """The reply to the last part is out, or need not be waited for; whether the session goes on."""
        rest, self._rest = self._rest, None
        if rest is not None:
            try:
                rest()
            except Exception:
                self._broke("after its last reply")
        return self.failure is None

    def runs_in(self, task: "asyncio.Task[None]") -> bool:
        """Whether this task is in the middle of a part, and so must be left alone."""
        return task in self._running

    def _enter(self, message: Message) -> _Arrived:
        if self.finished:
            raise precondition(f"part {message.number} came, but the client has said that it is done")
        if message.kind is FrameKind.MOVE:
            move, self._told = self._told, None
            if move is None:
                raise precondition(f"move {message.number} came, but no other cut is next")
            self.window.move(message.number)
            return _Arrived(move, message, self._clock())
        return _Arrived(self.window.enter(message.number, message.kind), message, self._clock())

    def _hand_in(self) -> None:
        """Have the next parts run that wait, in order."""
        while self._waiting and len(self._running) < _AT_ONCE and self.failure is None:
            arrived = self._waiting.popleft()
            task = asyncio.create_task(self._run(arrived))
            self._running.append(task)
            # Not at the end of the coroutine, which a task that is cancelled early never comes to.
            task.add_done_callback(partial(self._after, arrived.message.number))

    def _after(self, number: int, task: "asyncio.Task[Kept | None]") -> None:
        self._running.remove(task)
        self.window.settle(number, None if task.cancelled() else task.result())
        self._hand_in()

    async def _run(self, arrived: _Arrived) -> Kept | None:
        planned, message, since = arrived
        try:
            if not self.do_the_rest():
                return None
            if self.notes is not None and isinstance(planned, Planned):
                await self.notes.part(planned, message, self._account)
            computed = await self._one_part.compute(planned, message)
            before = self.window.before(message.number)
            if before is not None:
                # A codec may be done sooner with this part; replies count in order.
                await asyncio.shield(before)
            if not self.do_the_rest():
                return None
            self._counts.note(planned, computed.carried)
            self.seconds["server"] += computed.seconds
            self._heard = self._clock()
            if isinstance(planned, Move):
                self._settle_at(planned)
            else:
                self.seconds["stepped"] = self._heard - self._opened
        except RefusedError as refusal:
            self.fail(refusal)
            return None
        except Exception:
            self._broke(f"at part {message.number}")
            return None
        self._rest = computed.rest
        return Kept(computed.packed, since + computed.seconds)

    # Going on after the process that hosted it has died

    def _account(self) -> Account:
        """What is counted so far."""
        return Account(
            asdict(self._counts),
            dict(self.seconds),
            {name: getattr(self, name) for name in _CROSSED},
        )

    def resume(self, number: int, account: Account) -> None:
        """Begin with this part, the first of a mini-batch, as if those before had been here."""
        self.window.resume(number)
        self._counts = _Counts(**account.counts)
        self.seconds.update(account.seconds)
        for name, value in account.crossed.items():
            setattr(self, name, value)

    async def take_again(self, message: Message) -> None:
        """A part that arrived before: its reply is made anew, and its client may be waiting for it."""
        self.window.tell(message.number)
        await self.take(message)

    # Ends

    def finish(self, parts: int, norm: float | None = None) -> None:
        """The client says it is done; said twice, it is done once."""
        window = self.window
        if parts != window.received:
            raise precondition(f"the client counts {parts} parts, but {window.received} have arrived")
        if window.answered != parts:
            raise precondition(
                f"the client is done before part {window.answered} was answered: take all replies first"
            )
        if not window.complete:
            raise precondition(f"the client is done after part {parts - 1}, in the middle of a mini-batch")
        if not self.finished:
            self.seconds["session"] = self._clock() - self._opened
            if self.notes is not None:
                self.notes.finish(parts, norm, self.seconds["session"])
            self.do_the_rest()
            if self.failure is not None:
                raise self.failure
            self.finished, self._norm = True, norm
            self._end()

    def fail(self, refusal: RefusedError) -> None:
        """End the session for good; the client learns why if it is there or comes back."""
        if self.finished or self.failure is not None:
            return
        # A copy without its traceback, which would keep the refused data for as long as the record.
        self.failure = RefusedError(refusal.status, refusal.reason)
        if self.notes is not None:
            self.notes.fail(self.failure)
        self._rest = None
        self._entry.dismiss(self.failure)
        self._end()

    def _broke(self, when: str) -> None:
        """End the session over an exception that is being handled, which is no refusal."""
        log.exception("the server's half failed %s of %s", when, self.session)
        self.fail(RefusedError(Status.INTERNAL, f"the server's half failed {when}; see its log"))

    def _expire(self) -> None:
        reason = f"the session's {self.claims.session_seconds:g} s are over"
        self.fail(RefusedError(Status.DEADLINE_EXCEEDED, reason))

    def _end(self) -> None:
        self._timer.cancel()
        while self._waiting:
            self.window.settle(self._waiting.popleft().message.number, None)
        for task in self._running:
            if task is not asyncio.current_task():
                task.cancel()
        self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        await self.window.settled()
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
            **asdict(self._counts),
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            openings=self._openings,
            seconds=dict(self.seconds),
            failure=self.failure,
            timed_up=self.timed_up,
            timed_down=self.timed_down,
            coming=self.coming,
            norm=self._norm,
            silent=self._clock() - self._heard if self._is_silent() else 0.0,
            finished=self.finished,
            kept_bytes=self._one_part.kept_bytes,
            moves=tuple(self._moves),
        )

    def _is_silent(self) -> bool:
        over = self.finished or self.failure is not None
        return bool(self._openings) and not over and self.window.received == self.window.answered


def _this_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None, "called by a task of the event loop"
    return task
