"""The window of a session at the server: which part may come, and the replies that are kept.

A window is one part where parts come in turn and, where they overlap, all parts of a mini-batch. Replies are
kept until a part of the next window arrives, so there are never more than a window of them.
"""

import asyncio
from typing import NamedTuple

from cutwater.stream.expectation import Expectation, Planned
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import Packed
from cutwater.stream.refusal import invalid, precondition


class Kept(NamedTuple):
    """The reply to a part."""

    packed: Packed
    idle_from: float
    """When it would have been sent, had its part not waited for others since it arrived."""


Answer = asyncio.Future[Kept | None]
"""Of a part: its reply, when it is there; None if the session failed over it."""


class Window:
    """The parts that are on their way; lives in an event loop."""

    def __init__(self, expect: Expectation) -> None:
        self._size = expect.window
        self._coming = expect.parts()
        self._next: Planned | None = next(self._coming)
        self.rows = self._next.rows
        """Samples of the part that is next; after the last part, those of that."""
        self.complete = True
        """Whether what arrived so far ends with a mini-batch."""
        self.received = self.answered = 0
        """Parts that have arrived in full, moves of the cut among them, and those that have a reply."""
        self._moves = 0
        self._first = self._told = 0
        """The first part of the window, and how many replies the client has, or is being sent."""
        self._answers: dict[int, Answer] = {}

    def resume(self, number: int) -> None:
        """Begin with this part, the first of a mini-batch: those before it are done with, replies too."""
        for _ in range(number):
            assert self._next is not None, "a part is next"
            self.rows, self._next = self._next.rows, next(self._coming, None)
        self.rows = self._next.rows if self._next is not None else self.rows
        self.received = self.answered = self._first = self._told = number

    def enter(self, number: int, kind: FrameKind = FrameKind.PART) -> Planned:
        """A part has arrived in full: as the plan has it, if it is the one that is next."""
        planned = self._next
        if number != self.received:
            raise precondition(f"part {number} came, but part {self.received} is next")
        if planned is None:
            raise invalid(f"part {number} came, but the plan has {self.received} parts")
        if kind is not planned.kind:
            raise precondition(f"a {kind.name} came as part {number}, but a {planned.kind.name} is next")
        if self._moves:
            planned = planned._replace(moves=self._moves)
        if planned.opens:
            self._open(number)
        self.received += 1
        self.complete = planned.part.last and planned.completes
        self._next = next(self._coming, None)
        self.rows = self._next.rows if self._next is not None else planned.rows
        self.answer(number)
        return planned

    @property
    def more(self) -> bool:
        """Whether the plan has more parts."""
        return self._next is not None

    def move(self, number: int) -> None:
        """A move of the cut has arrived in full: a window of its own, between two mini-batches."""
        if number != self.received:
            raise precondition(f"move {number} came, but part {self.received} is next")
        self._open(number)
        self.received += 1
        self._moves += 1
        self.answer(number)

    def _open(self, number: int) -> None:
        # In turn, whoever sends ahead is not read: nothing has to be refused.
        if self._told < number and self._size > 1:
            raise precondition(
                f"part {number} came before the reply to part {self._told} was sent, but no more than the "
                f"{number - self._first} parts of the mini-batch before it may be on their way at once"
            )
        for known in range(self._first, number):
            del self._answers[known]
        self._first = number

    def answer(self, number: int) -> Answer:
        """The answer to a part of the window, or to the part that is next."""
        if number not in self._answers:
            self._answers[number] = asyncio.get_running_loop().create_future()
        return self._answers[number]

    def settle(self, number: int, kept: Kept | None) -> None:
        """A part was answered, or will not be."""
        self.answered += kept is not None
        self._answers[number].set_result(kept)

    def tell(self, count: int) -> None:
        """The client has so many replies, or is being sent the last of them."""
        self._told = max(self._told, count)

    def before(self, number: int) -> "asyncio.Future[Kept | None] | None":
        """The answer to the part before one, if that is of the same window."""
        return self._answers[number - 1] if number > self._first else None

    def may_hold(self, have: int) -> bool:
        """Whether a client can hold so many replies, and those that it lacks are kept.

        Nobody holds the reply to a part that still waits or runs.
        """
        return self._first <= have <= self.answered

    async def settled(self) -> None:
        """Wait until every part that arrived is answered or given up, and forget the replies."""
        for number in range(self._first, self.received):
            await asyncio.shield(self._answers[number])
        self._answers.clear()
