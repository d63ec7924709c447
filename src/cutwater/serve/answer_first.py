"""The server's half of a session, which answers as soon as it can: its weights wait, where that helps.

To answer first and see to the weights later (``train.backward``) shortens what the client waits for, by up to
a half, but is some more work in all. So it is done only while nobody else wants the device, and only where
it was seen to help: the answer came sooner, and the rest was done before the client was back. Both ways are
tried in the first steps, and the other one now and then, as networks and devices change. The bits do not
depend on any of this.
"""

import time
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

from torch import Tensor

from cutwater.train.step import Reply, ServerSide, Tensors

_TRIED: Final = 3
"""Steps of either way before one is preferred."""
_REMEMBERED: Final = 5
_AGAIN: Final = 16
"""So many steps after which the other way gets another chance."""


def _lately() -> "deque[float]":
    return deque(maxlen=_REMEMBERED)


class PromptSide:
    """A :class:`ServerSide`, its steps timed."""

    def __init__(self, server: ServerSide, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.server, self._clock = server, clock
        self._first = self._next = False
        """Whether the last step was answered first, and whether the next had better be."""
        self._steps, self._began, self._answered = 0, 0.0, 0.0
        self._answers = {False: _lately(), True: _lately()}
        """Seconds from having a step to having its answer: in one go, and answered first."""
        self._rests, self._absences = _lately(), _lately()
        """Seconds for the weights afterwards, and until the client was back, had it not to wait for that."""

    def differentiate(self, step: int, smashed: Tensors, labels: Tensor, *, alone: bool) -> Reply:
        """Stages 3 and 4, up to what :meth:`update` does; ``alone``: nobody else wants the device."""
        began, before = self._clock(), self._first
        self._first = alone and self._next
        reply = self.server.differentiate(step, smashed, labels, first=self._first)
        if self._steps and not before:
            self._absences.append(began - self._answered)
        self._began, self._answered, self._steps = began, self._clock(), self._steps + 1
        return reply

    def update(self) -> None:
        """What is left of stage 4, due before the next step."""
        began = self._clock()
        self.server.update()
        # Booked here, where nobody waits for it.
        self._answers[self._first].append(self._answered - self._began)
        if self._first:
            self._rests.append(self._clock() - began)
        self._next = self._prefers_first()

    def _prefers_first(self) -> bool:
        at_once, first = self._answers[False], self._answers[True]
        if min(len(at_once), len(first)) < _TRIED:
            return len(first) < len(at_once)
        helps = median(first) < median(at_once) and median(self._rests) <= median(self._absences)
        return helps != (self._steps % _AGAIN == 0)
