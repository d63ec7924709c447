"""Who may stay connected to the page, and for how long: idle and slow connections give way to others.

A connection has seconds to say what it wants, and more to say all of it. Whoever waits without asking may do
so as long as there is room; when there is none, the one that has waited longest is closed. So a person who
asks is served, however many sockets somebody else holds open.
"""

import asyncio
from collections import defaultdict
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
"""For the first line and the headers of a request, and between two requests."""
BODY_SECONDS = 60.0
"""For the rest of it."""
MOST_WAITING = 512
"""Connections that are open without a request that is being answered."""
MOST_OF_ONE = 64
"""Of one address."""


class Doors:
    """The connections of one server that wait, the longest first."""

    def __init__(self, most: int = MOST_WAITING, most_of_one: int = MOST_OF_ONE) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._waiting: dict[GuardedProtocol, str] = {}
        self._of_one: defaultdict[str, dict[GuardedProtocol, None]] = defaultdict(dict)

    def wait(self, connection: "GuardedProtocol", address: str) -> None:
        """A connection is open and asks for nothing yet; if there is no room, the longest to wait goes."""
        self.forget(connection)
        self._waiting[connection] = address
        self._of_one[address][connection] = None
        if len(self._of_one[address]) > self._most_of_one:
            next(iter(self._of_one[address])).shut()
        elif len(self._waiting) > self._most:
            next(iter(self._waiting)).shut()

    def forget(self, connection: "GuardedProtocol") -> None:
        """It is being answered, or gone."""
        address = self._waiting.pop(connection, None)
        if address is not None:
            self._of_one[address].pop(connection, None)
            if not self._of_one[address]:
                del self._of_one[address]

    def protocol(self) -> "type[GuardedProtocol]":
        """What uvicorn makes for every new connection, behind these doors."""
        return type("BehindDoors", (GuardedProtocol,), {"doors": self})


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with the patience of :class:`Doors`."""

    doors: Doors

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._late: asyncio.TimerHandle | None = None
        self._in_body = False

    def connection_made(self, transport: Any) -> None:
        """A connection is there."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Some of a request has come, perhaps the last of it."""
        super().data_received(data)
        if self.transport.is_closing():
            return
        state = self.conn.their_state
        if state is h11.SEND_BODY and not self._in_body:
            self._in_body = True
            self._patience(BODY_SECONDS)
        elif state not in (h11.IDLE, h11.SEND_BODY):
            self._busy()

    def on_response_complete(self) -> None:
        """A request is answered; the next may come."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other end, or this one, has hung up."""
        self._busy()
        super().connection_lost(exc)

    def shut(self) -> None:
        """Close it, whatever is on its way."""
        self._busy()
        self.transport.abort()

    def _wait(self) -> None:
        self._in_body = False
        self._patience(HEADER_SECONDS)
        self.doors.wait(self, self.client[0] if self.client else "")

    def _busy(self) -> None:
        self.doors.forget(self)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _patience(self, seconds: float) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(seconds, self.shut)
