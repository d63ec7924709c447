"""A session's connections, one after the other: opened with its ticket, and again when one is lost."""

import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from cutwater.base.errors import EngineError
from cutwater.stream.call_end import LostError
from cutwater.stream.connection import Connection, connect
from cutwater.stream.expectation import Expectation
from cutwater.stream.frames import FrameKind
from cutwater.stream.limits import Limits
from cutwater.stream.lookout import Lookout
from cutwater.stream.messages import Assembler, Gates, Message, Packed, bare
from cutwater.stream.pace import Pace
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.ticket import Ticket, opening

T = TypeVar("T")
_PING: Final = bare(FrameKind.PING, 0)
_PINGS: Final = 2
"""Round trips that are timed; the shorter one counts, as the first may find the way cold."""
CLOSED: Final = "the stream's client is closed: use it inside its with block"


class SessionConnections:
    """Connects a device with its session; one thread at a time, but any may close it."""

    def __init__(
        self, ticket: Ticket, expect: Expectation, client: str, limits: Limits, *, threads: bool = False
    ) -> None:
        self._ticket, self._client, self._limits, self._threads = ticket, client, limits, threads
        self._nonce, self.openings = secrets.token_bytes(16), 0
        """Connections it took so far."""
        self._assembler = Assembler(expect.at_client)
        self._pace = Pace(ticket.claims.rate_up) if ticket.claims.rate_up else None
        self.connection: Connection | None = None
        self.closed = threading.Event()
        self._heard = time.monotonic()
        self._lookout = Lookout(ticket.claims.address, lambda: self._heard, self._way_is_back)
        self.deadline = time.monotonic() + ticket.claims.session_seconds
        self.round_trip: float | None = None
        """Seconds of a message without content and its answer, over the first connection."""
        self.sent = self.have = 0
        """Parts that were handed over for sending, and replies that have come."""

    def expect(self, gates: Gates) -> None:
        """What the server may send from now on; nothing of it is on its way."""
        self._assembler = Assembler(gates)

    def open(self) -> None:
        """Connect for the first time, with the patience for that."""
        self.persist(self.connected, min(self.deadline, time.monotonic() + self._limits.connect))
        self._lookout.start()

    def connected(self) -> Connection:
        """The connection there is, or a new one, over which the server has said what has arrived."""
        if self.connection is not None:
            return self.connection
        if self.closed.is_set():
            raise EngineError(CLOSED)
        left = self.deadline - time.monotonic()
        if left <= 0:
            reason = f"the session's {self._ticket.claims.session_seconds:g} s are over"
            raise RefusedError(Status.DEADLINE_EXCEEDED, reason)
        self.openings += 1
        metadata = opening(self._ticket, self._client, self._nonce, self.openings, self.have)
        connection = connect(self._ticket, self._limits, metadata, left, threads=self._threads)
        self.connection = connection
        if self.closed.is_set():  # meanwhile, by another thread
            self.hang_up()
            raise EngineError(CLOSED)
        self._welcome(connection)
        if self.round_trip is None:
            self.round_trip = min(self._ping(connection) for _ in range(_PINGS))
        return connection

    def _welcome(self, connection: Connection) -> None:
        # Half a message of a lost connection must not meet the next one's.
        self._assembler.begin_anew()
        self._assembler.expect(1)
        welcome = connection.receive(self._assembler)
        if welcome.kind is not FrameKind.WELCOME or not self.have <= welcome.number <= self.sent:
            raise invalid(
                f"the server says that {welcome.number} parts have arrived, but {self.sent} were sent and "
                f"{self.have} answered"
            )
        connection.received = welcome.number
        self._heard = time.monotonic()

    def _ping(self, connection: Connection) -> float:
        began = time.monotonic()
        connection.send(_PING.frames)
        answer = connection.receive(self._assembler)
        if answer.kind is not FrameKind.PONG:
            raise invalid(f"a PONG was due, but a {answer.kind.name} came")
        return time.monotonic() - began

    def send(self, connection: Connection, packed: Packed, *, asks: bool = False) -> None:
        """Send a message, as fast as the session may; where it ``asks``, none before its answer is there."""
        if self._pace is not None:
            connection.send(partial(self._pace.spread, packed.frames))
        else:
            connection.send(packed.frames, alone=asks and packed.fits(self._limits.frame_bytes))

    def receive(self, connection: Connection, rows: int) -> Message:
        """The next message over a connection: the reply to a part of so many samples, say."""
        self._assembler.expect(rows)
        self._assembler.make_room()
        message = connection.receive(self._assembler)
        self._heard = time.monotonic()
        return message

    def _way_is_back(self) -> None:
        """After a partition: whoever waits over the old connection is told that it is lost."""
        connection = self.connection
        if connection is not None:
            connection.close()

    def persist(self, attempt: Callable[[], T], until: float) -> T:
        """Try until it works: a lost connection is opened again; what is final is raised."""
        waits = self._limits.waits()
        while True:
            try:
                return attempt()
            except LostError as lost:
                self.hang_up()
                left = until - time.monotonic()
                if left <= 0 or self.closed.wait(min(next(waits), left)):
                    reason = f"{self._ticket.claims.address} can't be reached: {lost}"
                    raise RefusedError(Status.UNAVAILABLE, reason) from lost
            except BaseException:
                self.hang_up()
                raise

    def hang_up(self) -> None:
        """Give up the connection there is."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Hang up for good; unfinished, the session stays open at the server until its deadline."""
        self.closed.set()
        self._lookout.close()
        self.hang_up()
