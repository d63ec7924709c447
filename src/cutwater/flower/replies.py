"""Looking for the replies to messages with a few threads, however many messages there are.

Flower's grid is asked for replies, it does not announce them, and it waits minutes inside the asking for the
rest of a reply whose upload broke off. So each reply is asked for by itself, in turns, by a small pool of
threads. One that does not come back soon is left behind, and another takes its place.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Iterable

from flwr.app import Message

from cutwater.flower.patient_grid import PatientGrid

POOL = 16
"""Threads that look for replies."""
LEFT_BEHIND = 48
"""Threads that may hang besides; once so many do, nobody takes the place of the next."""
HANGS = 1.0
"""Seconds after which the place of a thread that waits for Flower is taken by another."""


class ReplyPool:
    """Looks for the replies to some messages until it is closed."""

    def __init__(self, grid: PatientGrid, ids: Iterable[str], pause: float) -> None:
        self._grid, self._pause = grid, pause
        began = time.monotonic()
        self._due = deque((began, id_) for id_ in ids)
        """When each is next looked for: in order, as the pause between two looks is the same for all."""
        self._asking: dict[threading.Thread, float] = {}
        """Since when threads wait for an answer of Flower's."""
        self._threads = 0
        self._closed = False
        self._turn = threading.Condition()
        self._found: queue.SimpleQueue[Message | BaseException] = queue.SimpleQueue()
        with self._turn:
            self._staff()

    def get(self, timeout: float) -> Message | None:
        """The next reply, or None if there is none in so many seconds; what went wrong is raised."""
        with self._turn:
            self._staff()
        try:
            found = self._found.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """Look no further; a thread that hangs ends when Flower lets go of it."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _places(self) -> int:
        """How many threads there may be: the pool's, and as many as hang."""
        late = time.monotonic() - HANGS
        return POOL + min(LEFT_BEHIND, sum(since < late for since in self._asking.values()))

    def _staff(self) -> None:
        """Start as many threads as there is work and room for."""
        idle = self._threads - len(self._asking)
        for _ in range(min(len(self._due) - idle, self._places() - self._threads)):
            self._threads += 1
            threading.Thread(target=self._look, name="cutwater-replies", daemon=True).start()

    def _look(self) -> None:
        try:
            while (id_ := self._take()) is not None:
                self._put(id_, next(iter(self._grid.pull_messages([id_])), None))
        except BaseException as error:
            self._found.put(error)

    def _take(self) -> str | None:
        """What to look for now; None if this thread is not needed any more."""
        with self._turn:
            while not self._closed and self._threads <= self._places():
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    self._asking[threading.current_thread()] = time.monotonic()
                    return self._due.popleft()[1]
                self._turn.wait(wait)
            self._threads -= 1
            return None

    def _put(self, id_: str, reply: Message | None) -> None:
        """What came of a look: a reply, or another look later."""
        with self._turn:
            del self._asking[threading.current_thread()]
            if reply is None:
                self._due.append((time.monotonic() + self._pause, id_))
                self._turn.notify()
        if reply is not None:
            self._found.put(reply)
