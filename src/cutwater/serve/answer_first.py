"""Answer first: a step's gradients go out before all of its work is done, where that helps.

A client waits for the gradients of its smashed data, and for nothing else that the server computes. So the
update of the server's weights waits until they are out, and so may the gradients of these weights
(``two_part_backward``). To leave these for later shortens the client's wait by up to a half, but is some
more work in all, and holds a step's memory meanwhile. So it is done only while nobody else wants the device,
by one session at a time, and only where it was seen to help: the answer came sooner, and the rest was done
before the client was back. Both ways are tried in the first steps, and the other one now and then, as
networks and devices change. The bits do not depend on any of this.

All that knows of it is here. ``Hosting(..., answer_first=False)`` does without: each step then is
:meth:`~cutwater.train.step.ServerSide.step`, and its answer goes out when all is done.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from statistics import median
from typing import Final

from torch import Tensor

from cutwater.serve.shares import Lane
from cutwater.serve.two_part_backward import backward_first
from cutwater.train.step import Reply, ServerSide, Tensors, backward_in_one_go

_TRIED: Final = 3
"""Steps of either way before one is preferred."""
_REMEMBERED: Final = 5
_AGAIN: Final = 16
"""So many steps after which the other way gets another chance."""


def _lately() -> "deque[float]":
    return deque(maxlen=_REMEMBERED)


class AnswerFirst:
    """The steps of one session: each is answered by :meth:`differentiate` and completed by :meth:`update`."""

    def __init__(
        self,
        side: ServerSide,
        holders: "set[AnswerFirst] | None" = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.side, self._clock = side, clock
        self._holders = set() if holders is None else holders
        """Which sessions of the device hold a step's memory; shared by all of them."""
        self._rest: Callable[[], None] | None = None
        self._over = False
        self._updated: Future[None] | None = None
        """The update that follows the last answer."""
        self.seconds_after = 0.0
        """That were worked after answers."""
        self._first = self._next = False
        """Whether the last step's weights waited, and whether those of the next had better."""
        self._steps, self._began, self._answered = 0, 0.0, 0.0
        self._answers = {False: _lately(), True: _lately()}
        """Seconds from having a step to having its answer: in one go, and with weights that wait."""
        self._rests, self._absences = _lately(), _lately()
        """Seconds for the weights afterwards, and until the client was back, had it not to wait for that."""

    @property
    def holds_graph(self) -> bool:
        """Whether the last step still takes the memory of its backward pass."""
        return self in self._holders

    def differentiate(self, step: int, smashed: Tensors, labels: Tensor, *, alone: bool) -> Reply:
        """Stages 3 and 4, up to what :meth:`update` does; ``alone``: nobody else wants the device."""
        if self._updated is not None:
            self._updated.result(timeout=0)  # raises what went wrong; it is done, as steps come one by one
        began, before = self._clock(), self._first
        self._first = alone and self._next and not self._holders
        reply = self.side.differentiate(
            step, smashed, labels, self._backward_first if self._first else backward_in_one_go
        )
        if self._steps and not before:
            self._absences.append(began - self._answered)
        self._began, self._answered, self._steps = began, self._clock(), self._steps + 1
        return reply

    def _backward_first(self, value: Tensor, wanted: Sequence[Tensor]) -> None:
        self._rest = backward_first(value, wanted)
        if self._rest is not None:
            self._holders.add(self)
        if self._over:  # since the step began, as seen by another thread
            self.give_up()

    def update_in(self, lane: Lane) -> None:
        """The answer is out: have :meth:`update` done next in the lane that the step was done in."""
        self._updated = lane.follow(self.update)

    def update(self) -> None:
        """What is left of stage 4, due before the next step."""
        began, (rest, self._rest) = self._clock(), (self._rest, None)
        if rest is not None:
            with self.side.watch("server_backward"):
                rest()
        self._holders.discard(self)
        self.side.update()
        # Booked here, where nobody waits for it.
        self._answers[self._first].append(self._answered - self._began)
        taken = self._clock() - began
        self.seconds_after += taken
        if self._first:
            self._rests.append(taken)
        self._next = self._prefers_first()

    async def updated(self) -> None:
        """Wait for the update that follows the last answer, and raise what went wrong in it."""
        if self._updated is not None:
            await asyncio.wrap_future(self._updated)

    def give_up(self) -> None:
        """The session is over: what it holds is free, whether its last update was done or not."""
        self._over = True
        self._rest = None
        self._holders.discard(self)

    def _prefers_first(self) -> bool:
        at_once, first = self._answers[False], self._answers[True]
        if min(len(at_once), len(first)) < _TRIED:
            return len(first) < len(at_once)
        helps = median(first) < median(at_once) and median(self._rests) <= median(self._absences)
        return helps != (self._steps % _AGAIN == 0)
