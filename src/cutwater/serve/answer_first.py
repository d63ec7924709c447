"""Answer first: a part's gradients go out before all of its work is done, where that helps.

A client waits for the gradients of its smashed data, and for nothing else that the server computes. So the
update of the server's weights waits until they are out, and so may the gradients of these weights
(``two_part_backward``). To leave these for later shortens the client's wait by up to a half, but is some
more work in all, and holds a part's memory meanwhile. So it is done only while nobody else wants the device,
by one session at a time, and only where it was seen to help: the answer came sooner, and the rest was done
before the client was back. Both ways are tried in the first parts, and the other one now and then, as
networks and devices change. What is left of a part is always done before the next one begins, so gradients
are added up in the order of the parts, and the bits do not depend on any of this.

All that knows of it is here. ``Hosting(..., answer_first=False)`` does without: each part then is
:meth:`~cutwater.train.step.ServerSide.send`, and its answer goes out when all is done.
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
from cutwater.train.step import Part, Reply, ServerSide, Tensors, backward_in_one_go

_TRIED: Final = 3
"""Parts of either way before one is preferred."""
_REMEMBERED: Final = 5
_AGAIN: Final = 16
"""So many parts after which the other way gets another chance."""


def _lately() -> "deque[float]":
    return deque(maxlen=_REMEMBERED)


class AnswerFirst:
    """The parts of one session: each is answered by :meth:`differentiate` and completed by :meth:`update`."""

    def __init__(
        self,
        side: ServerSide,
        holders: "set[AnswerFirst] | None" = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.side, self._clock = side, clock
        self._holders = set() if holders is None else holders
        """Which sessions of the device hold a part's memory; shared by all of them."""
        self._rest: Callable[[], None] | None = None
        self._over = self._due = self._last = False
        """Whether the session is over, the last part has something left, and it ends a mini-batch."""
        self._updated: Future[object] | None = None
        """What follows the last answer, unless it was done at once."""
        self.seconds_after = 0.0
        """That were worked after answers."""
        self._first = self._next = False
        """Whether the last part's weights waited, and whether those of the next had better."""
        self._parts, self._began, self._answered = 0, 0.0, 0.0
        self._answers = {False: _lately(), True: _lately()}
        """Seconds from having a part to having its answer: in one go, and with weights that wait."""
        self._rests, self._absences = _lately(), _lately()
        """Seconds for the weights afterwards, and until the client was back, had it not to wait for that."""

    @property
    def holds_graph(self) -> bool:
        """Whether the last part still takes the memory of its backward pass."""
        return self in self._holders

    def differentiate(self, part: Part, smashed: Tensors, labels: Tensor, *, alone: bool) -> Reply:
        """Stages 3 and 4, up to what :meth:`update` does; ``alone``: nobody else wants the device."""
        if self._updated is not None and self._updated.done():
            self._updated.result()  # raises what went wrong
        self._complete()  # if nobody has: this part was handed in before the last answer was out
        began, before = self._clock(), self._first
        self._first = alone and self._next and not self._holders
        reply = self.side.differentiate(
            part, smashed, labels, self._backward_first if self._first else backward_in_one_go
        )
        self._due, self._last = True, part.last
        if self._parts and not before:
            self._absences.append(began - self._answered)
        self._began, self._answered, self._parts = began, self._clock(), self._parts + 1
        return reply

    def _backward_first(self, value: Tensor, wanted: Sequence[Tensor]) -> None:
        self._rest = backward_first(value, wanted)
        if self._rest is not None:
            self._holders.add(self)
        if self._over:  # since the part began, as seen by another thread
            self.give_up()

    def update_in(self, lane: Lane) -> None:
        """The answer is out: have :meth:`update` done next in the lane that the part was done in."""
        self._updated = lane.follow(self.update)

    def update(self) -> None:
        """What is left of stage 4, due before the next part: its update, if it ends a mini-batch."""
        self.seconds_after += self._complete()

    def _complete(self) -> float:
        """Do what is left, if it is; the seconds that took."""
        if not self._due:
            return 0.0
        began, (rest, self._rest), self._due = self._clock(), (self._rest, None), False
        if rest is not None:
            with self.side.watch("server_backward"):
                rest()
        self._holders.discard(self)
        if self._last:
            self.side.update()
        # Booked here, where nobody waits for it.
        self._answers[self._first].append(self._answered - self._began)
        taken = self._clock() - began
        if self._first:
            self._rests.append(taken)
        self._next = self._prefers_first()
        return taken

    async def updated(self) -> None:
        """Wait for what follows the last answer, and raise what went wrong in it."""
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
        return helps != (self._parts % _AGAIN == 0)
