"""How a device's parts go out and their replies come in, one part at a time.

The thread that trains does it all: it hands a part over and waits for the reply, which with the call that
needs no threads (``fast_call``) is what makes a part cheap. Where parts overlap, see ``overlap``.
"""

import time
from typing import NamedTuple, Protocol

from cutwater.stream.frames import PARTS, REPLIES
from cutwater.stream.messages import Message, Packed
from cutwater.stream.session_connections import SessionConnections


class Arrival(NamedTuple):
    """What came in reply."""

    message: Message
    began: float
    """When what it answers began to be sent, by the clock of this end."""
    came: float
    """When it was there."""


class Exchange(Protocol):
    """Messages out, and what they are answered with, in the same order."""

    def start(self) -> None:
        """Open the session."""

    def put(self, packed: Packed, rows: int) -> None:
        """Have a message sent; its answer belongs to a part of so many samples."""

    def take(self) -> Arrival:
        """The answer to the first message that has none yet, when it is there; what went wrong is raised."""

    def close(self) -> None:
        """Hang up."""


class InTurn:
    """One message at a time, sent when its answer is asked for; keeps that one for a resend."""

    def __init__(self, connections: SessionConnections) -> None:
        self._connections = connections
        self._packed: Packed | None = None
        self._rows = 0

    def start(self) -> None:
        """Open the session."""
        self._connections.open()

    def put(self, packed: Packed, rows: int) -> None:
        """The message that is next, in place of one whose answer was not waited for."""
        self._packed, self._rows = packed, rows
        if packed.kind in PARTS:
            self._connections.sent = packed.number + 1

    def take(self) -> Arrival:
        """Send it, and wait for the answer."""
        began = time.monotonic()
        message = self._connections.persist(self._once, self._connections.deadline)
        self._packed = None
        self._connections.have += message.kind in REPLIES
        return Arrival(message, began, time.monotonic())

    def _once(self) -> Message:
        # Every part comes this way: while a connection is there, it is taken without a call.
        packed, connection = self._packed, self._connections.connection or self._connections.connected()
        assert packed is not None
        if packed.kind not in PARTS or connection.received == packed.number:
            self._connections.send(connection, packed, asks=True)
            connection.received = packed.number + 1
        return self._connections.receive(connection, self._rows)

    def close(self) -> None:
        """Hang up; whoever waits for an answer is told."""
        self._connections.close()
