"""How a device's parts go out and their replies come in while it computes others.

Two threads do it, over gRPC's public interface: one sends, one receives and connects again when it must. The
thread that trains only hands parts over and takes replies. At most the parts of one mini-batch are kept for a
resend, and at most as many replies wait to be taken: nobody may hand over more (see ``client``).

An emulated link is a function for each direction, which says when bytes that were ready at one time are
there: the sender hands a part to the real network not before that, and a reply is not given out before.
Neither keeps the next message from being on its way: a link may carry one while others are yet to arrive.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from cutwater.base.errors import EngineError
from cutwater.stream.connection import Connection
from cutwater.stream.exchange import Arrival
from cutwater.stream.frames import PARTS, REPLIES
from cutwater.stream.messages import Message, Packed
from cutwater.stream.session_connections import CLOSED, SessionConnections

Delay = Callable[[int, float], float]
"""(bytes of tensors, when they were ready) → when they are at the other end."""


def no_delay(size: int, ready: float) -> float:
    """As soon as the real network has them there."""
    return ready


@dataclass(slots=True, eq=False)
class _Letter:
    """A message that has no answer yet."""

    packed: Packed
    rows: int
    ready: float
    began: float = 0.0


class Overlapped:
    """Messages out and answers in, by threads of their own."""

    def __init__(self, connections: SessionConnections, up: Delay = no_delay, down: Delay = no_delay) -> None:
        self._connections, self._up, self._down = connections, up, down
        self._turn = threading.Condition()
        self._open: deque[_Letter] = deque()
        """Without an answer: sent again over a new connection, if the server lacks them."""
        self._unsent: deque[_Letter] = deque()
        """Of these, what is yet to be sent over the connection there is."""
        self._over: Connection | None = None
        """The connection that it is sent over; broken, it takes what it is given and does nothing."""
        self._answers: deque[tuple[Arrival, float]] = deque()
        """With the time before which each is not there."""
        self._failure: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"cutwater-{name}", daemon=True)
            for name, work in (("send", self._send), ("receive", self._receive))
        ]

    @property
    def kept(self) -> int:
        """Messages that are kept for a resend, and answers that were not taken."""
        with self._turn:
            return len(self._open) + len(self._answers)

    def start(self) -> None:
        """Open the session."""
        self._connections.open()
        self._over = self._connections.connection
        for thread in self._threads:
            thread.start()

    def put(self, packed: Packed, rows: int) -> None:
        """Have a message sent when those before it are."""
        letter = _Letter(packed, rows, time.monotonic())
        with self._turn:
            self._check()
            if packed.kind in PARTS:
                self._connections.sent = packed.number + 1
            self._open.append(letter)
            self._unsent.append(letter)
            self._turn.notify_all()

    def take(self) -> Arrival:
        """The answer that is next, when it is there."""
        with self._turn:
            self._turn.wait_for(lambda: self._answers or self._failure or self._connections.closed.is_set())
            if not self._answers:
                self._check()
            arrival, due = self._answers[0]
        self._wait_until(due)
        with self._turn:
            self._answers.popleft()
        return arrival._replace(came=max(arrival.came, due))

    def close(self) -> None:
        """Hang up; whoever waits for an answer is told."""
        self._connections.close()
        with self._turn:
            self._turn.notify_all()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()

    def _check(self) -> None:
        if self._connections.closed.is_set():
            raise EngineError(CLOSED)
        if self._failure is not None:
            raise self._failure

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            with self._turn:
                self._failure = self._failure or error
                self._turn.notify_all()

    def _send(self) -> None:
        connections = self._connections
        while True:
            with self._turn:
                self._turn.wait_for(lambda: connections.closed.is_set() or self._unsent)
                if connections.closed.is_set():
                    return
                letter, over = self._unsent.popleft(), self._over
            self._wait_until(self._up(letter.packed.outline.tensor_bytes, letter.ready))
            letter.began = time.monotonic()
            assert over is not None
            self._connections.send(over, letter.packed)

    def _receive(self) -> None:
        connections = self._connections
        while True:
            with self._turn:
                self._turn.wait_for(lambda: connections.closed.is_set() or self._open)
                if connections.closed.is_set():
                    return
                letter = self._open[0]
            message = connections.persist(partial(self._once, letter), connections.deadline)
            came = time.monotonic()
            due = self._down(message.tensor_bytes, came)
            with self._turn:
                self._open.popleft()
                connections.have += message.kind in REPLIES
                self._answers.append((Arrival(message, letter.began, came), due))
                self._turn.notify_all()

    def _once(self, letter: _Letter) -> Message:
        connection = self._connections.connected()
        if connection is not self._over:
            with self._turn:
                self._over = connection
                self._unsent = deque(each for each in self._open if _lacks(connection.received, each))
                self._turn.notify_all()
        return self._connections.receive(connection, letter.rows)

    def _wait_until(self, when: float) -> None:
        left = when - time.monotonic()
        if left > 0:
            self._connections.closed.wait(left)


def _lacks(received: int, letter: _Letter) -> bool:
    return letter.packed.kind not in PARTS or letter.packed.number >= received
