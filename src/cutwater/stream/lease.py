"""A lease at the server: one client's letters, over whatever connections it takes, until the lease is over.

A client that holds a lease (Flower has authenticated it and brought it the ticket) is sent orders and sends
updates over a connection of its own, round after round. It is known to be there as long as it is heard of: a
process that is killed closes its connection, and whoever does not come back within seconds is away. So is one
that stands still or has lost its power, as it says something every second. One that a partition has cut off
for a moment notices the server's silence, and comes back over another connection.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue
from typing import Final

import grpc

from cutwater.stream.conversation import OpenCall
from cutwater.stream.entry import Ending, Entry
from cutwater.stream.frames import FrameKind, seal, unseal
from cutwater.stream.letters import Inbox, Letter, Outbox, Place
from cutwater.stream.limits import Limits
from cutwater.stream.refusal import denied, invalid
from cutwater.stream.ticket import Claims, Opening

_LEAVE: Final = seal(FrameKind.LEAVE, 0, 0, 0, b"", ())


class News(Enum):
    """What is to be told of a lease."""

    HERE = "its holder is connected"
    AWAY = "its holder is not"
    LETTER = "a letter of its holder has arrived"


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a lease."""

    client: str
    news: News
    letter: Letter | None = None
    reason: str = ""


Events = SimpleQueue[Event]


class HostedLease:
    """One lease; lives in the server's event loop alone, so nothing here needs a lock."""

    def __init__(
        self,
        claims: Claims,
        most: int,
        events: Events,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.claims, self._events, self._limits, self._clock = claims, events, limits, clock
        self._inbox, self._outbox = Inbox(most, clock), Outbox(clock)
        self._entry = Entry("lease", claims, clock(), clock)
        self._work = asyncio.Event()
        self._said: list[bytes] = []
        self._beats: dict[int, float] = {}
        self._beat = 0
        self.round_trip = 0.0
        """Seconds of the quickest sign of life and its echo."""
        self.here = False
        self.over = False
        self._away: asyncio.TimerHandle | None = None
        self._heard = 0.0

    # From the server's other threads, by way of the loop

    def post(self, body: bytes) -> int:
        """Have a letter sent; its number."""
        number = self._outbox.post(body)
        self._work.set()
        return number

    def took(self, number: int) -> float | None:
        """Seconds that a letter took to its holder; None if it is not there."""
        seconds = self._outbox.took.pop(number, None)
        return None if seconds is None else max(seconds - self.round_trip, 0.0)

    def leave(self) -> None:
        """The lease is over: its holder is told, if it is there, and not let in again."""
        self.over = True
        self._work.set()

    # Connections

    def admit(self, opening: Opening) -> Ending:
        """Let a connection in, in place of the one before; the future says when it must go, and why."""
        if self.over:
            raise denied("the lease is over")
        self._entry.check(opening)
        self._entry.bind(opening.nonce, opening.attempt)
        return self._entry.replace()

    async def hold(self, call: OpenCall, ending: Ending) -> None:
        """Talk with the holder until one of both leaves, or the connection breaks or is replaced."""
        self._inbox.begin_anew()
        self._said = [self._inbox.tell()]
        self._beats.clear()
        opened, silent = asyncio.Event(), False
        writing = asyncio.create_task(self._write(call, ending, opened))
        reading = asyncio.create_task(self._read(call, ending, opened))
        self._come()
        try:
            silent = await self._silent(reading)
            if not silent:
                reading.result()
        finally:
            # Not waited for: what gRPC writes to somebody who has left may take as long as it likes.
            writing.cancel()
            reading.cancel()
            if self._entry.ending is ending and silent:
                self._go(f"nothing was heard of it for {self._quiet:g} s", 0.0)
            elif self._entry.ending is ending:
                self._go("its connection was closed", self._limits.away)

    @property
    def _quiet(self) -> float:
        return self._limits.beat + self._limits.silence

    async def _silent(self, reading: "asyncio.Task[None]") -> bool:
        """Wait for the end of the reading; whether it is for the holder's silence."""
        self._heard = self._clock()
        while not reading.done():
            until = self._heard + self._quiet
            await asyncio.wait({reading}, timeout=until - self._clock())
            if self._clock() - until > self._limits.beat:
                # It was this process that stood still: what has come meanwhile is read first.
                self._heard = self._clock()
            elif not reading.done() and self._heard + self._quiet <= self._clock():
                return True
        return False

    async def _read(self, call: OpenCall, ending: Ending, opened: asyncio.Event) -> None:
        while True:
            data = await call.read()
            self._heard = self._clock()
            if data is grpc.aio.EOF or self._entry.ending is not ending:
                return
            frame = unseal(data)
            if frame.kind is FrameKind.HAVE:
                self._outbox.told(Place(frame.number, frame.offset), opening=not opened.is_set())
                opened.set()
                self._work.set()
            elif frame.kind is FrameKind.BEAT:
                self._echoed(frame.number)
            elif frame.kind is FrameKind.LETTER:
                self._take(self._inbox.feed(frame))
            else:
                raise invalid(f"a {frame.kind.name} is not expected here")

    def _take(self, letter: Letter | None) -> None:
        if letter is not None:
            arrived = self._outbox.arrived.pop(letter.number, None)
            after = None if arrived is None else max(letter.began - arrived, 0.0)
            self._events.put(Event(self.claims.client, News.LETTER, letter._replace(after=after)))
        if letter is not None or self._inbox.due:
            self._said.append(self._inbox.tell())
            self._work.set()

    def _echoed(self, number: int) -> None:
        sent = self._beats.pop(number, None)
        if sent is not None:
            seconds = self._clock() - sent
            self.round_trip = min(self.round_trip or seconds, seconds)

    async def _write(self, call: OpenCall, ending: Ending, opened: asyncio.Event) -> None:
        due = self._clock()
        while self._entry.ending is ending:
            if self._clock() >= due:
                self._beat += 1
                self._beats = {self._beat: self._clock()}
                self._said.append(seal(FrameKind.BEAT, self._beat, 0, 0, b"", ()))
                due = self._clock() + self._limits.beat
            said, self._said = self._said, []
            for frame in said:
                await call.write(frame)
            if self._entry.ending is not ending:
                return
            chunk = self._outbox.frame() if opened.is_set() else None
            if chunk is not None:
                await call.write(chunk)
                continue
            if self.over:
                await call.write(_LEAVE)
            self._work.clear()
            if self._said:
                continue
            try:
                async with asyncio.timeout(max(due - self._clock(), 0.0)):
                    await self._work.wait()
            except TimeoutError:
                continue

    def _come(self) -> None:
        if self._away is not None:
            self._away.cancel()
            self._away = None
        if not self.here:
            self.here = True
            self._events.put(Event(self.claims.client, News.HERE))

    def _go(self, reason: str, wait: float) -> None:
        loop = asyncio.get_running_loop()
        self._away = loop.call_later(0.0 if self.over else wait, self._gone, reason)

    def _gone(self, reason: str) -> None:
        self._away, self.here = None, False
        self._events.put(Event(self.claims.client, News.AWAY, reason=reason))
