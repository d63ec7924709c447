"""A weighted fair queue: whose work comes next. Pure: it knows no clock and no threads.

It is WF²Q+ (Bennett and Zhang, "Hierarchical packet fair queueing algorithms", IEEE/ACM ToN 5(5),
1997). Every session's next piece has a virtual start S and finish S + c / f; virtual time V advances by the
FLOPs done over Σf and is never behind the smallest S. Of the pieces that may have started by now (S ≤ V),
the one that finishes first goes next. It never idles while there is work, so an unused share goes to the
others; while a session has work, it lags behind its share by no more than about one piece; and a piece is
done at most one (other) piece later than its promise, c / f after it came. Start-time fair queueing is
simpler and as fair in the long run, but there a piece may have to wait for one of every other session, which
breaks the promise for sessions with large shares.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from cutwater.base.errors import EngineError

T = TypeVar("T")


class _Flow(Generic[T]):
    """A session's work in a fair queue."""

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.start = 0.0
        """S of the first piece in the queue; when the queue is empty, the finish of the last."""
        self.pieces: deque[tuple[float, T]] = deque()
        self.seen_from: tuple[float, float] | None = None
        self.served = self.seen = self.entitled = 0.0

    @property
    def finish(self) -> float:
        return self.start + self.pieces[0][0] / self.weight


class FairQueue(Generic[T]):
    """WF²Q+ over named flows."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow[T]] = {}
        self._now = 0.0
        self._weights = 0.0
        self._running = 0.0
        """By how much virtual time will have advanced when the piece being served is done."""
        self._work = self._per_weight = 0.0
        """All that was served, and the same over the sum of weights at the time."""
        self.waiting = 0
        """Pieces of work that were not served yet."""

    def open(self, name: str, weight: float) -> None:
        """Add a flow."""
        _check_weight(name, weight)
        if name in self._flows:
            raise EngineError(f"{name!r} has a share already: give each session a name of its own")
        self._flows[name] = _Flow(weight)
        self._sum_up()

    def reweigh(self, name: str, weight: float) -> None:
        """Give a flow another weight from now on; what it was entitled to so far stays as it was.

        What it is ahead of its weight, or behind, stays the same amount of work: nobody gains by a change.
        """
        _check_weight(name, weight)
        flow = self._flows[name]
        if flow.seen_from is not None:
            self._look_away(flow)
            flow.seen_from = (self._work, self._per_weight)
        flow.start = self._now + (flow.start - self._now) * (flow.weight / weight)
        flow.weight = weight
        self._sum_up()

    def close(self, name: str) -> list[T]:
        """Take a flow out, with what it had left."""
        flow = self._flows.pop(name)
        self.waiting -= len(flow.pieces)
        self._sum_up()
        return [item for _, item in flow.pieces]

    def _sum_up(self) -> None:
        self._weights = math.fsum(flow.weight for flow in self._flows.values())

    def push(self, name: str, cost: float, item: T) -> None:
        """Queue a piece of work of a flow."""
        self._check(name, cost)
        flow = self._flows[name]
        if not flow.pieces:
            flow.start = max(flow.start, self._now)
            flow.seen_from = (self._work, self._per_weight)
        flow.pieces.append((cost, item))
        self.waiting += 1

    def _check(self, name: str, cost: float) -> None:
        if not (math.isfinite(cost) and cost > 0):
            raise EngineError(f"work of {name!r} costs {cost} FLOPs, but must cost more than 0 and be finite")

    def serve(self, name: str, cost: float) -> None:
        """Charge a flow for a piece that is served at once: :meth:`push` and :meth:`pop` where none waits."""
        self._check(name, cost)
        flow = self._flows[name]
        flow.start = max(flow.start, self._now)
        self._bill(flow, cost)
        flow.seen += cost
        flow.entitled += flow.weight * self._running

    def idle(self) -> None:
        """All work is done, so nobody is owed anything: whoever comes next starts afresh."""
        self._advance()
        self._now = max([self._now, *(flow.start for flow in self._flows.values())])

    def pop(self, wanted: Callable[[T], bool] = lambda _: True) -> tuple[str, float, T] | None:
        """The piece to serve now that the last is done, or None; what is not wanted is left out for free."""
        self._advance()
        while (chosen := self._choose()) is not None:
            name, flow = chosen
            cost, item = flow.pieces[0]
            if wanted(item):
                self._bill(flow, cost)
                self._shift(flow)
                return name, cost, item
            self._shift(flow)
        return None

    def _choose(self) -> tuple[str, _Flow[T]] | None:
        waiting = [(name, flow) for name, flow in self._flows.items() if flow.pieces]
        if not waiting:
            self.idle()
            return None
        self._now = max(self._now, min(flow.start for _, flow in waiting))
        eligible = (pair for pair in waiting if pair[1].start <= self._now)
        # Ties go to the flow that was opened first: the order is a function of the work alone.
        return min(eligible, key=lambda pair: pair[1].finish)

    def _advance(self) -> None:
        """The piece that was served is done."""
        self._now += self._running
        self._running = 0.0

    def _bill(self, flow: _Flow[T], cost: float) -> None:
        flow.start += cost / flow.weight
        flow.served += cost
        self._running = cost / self._weights
        self._work += cost
        self._per_weight += self._running

    def _shift(self, flow: _Flow[T]) -> None:
        flow.pieces.popleft()
        self.waiting -= 1
        if not flow.pieces:
            self._look_away(flow)

    def _look_away(self, flow: _Flow[T]) -> None:
        assert flow.seen_from is not None
        flow.seen += self._work - flow.seen_from[0]
        flow.entitled += flow.weight * (self._per_weight - flow.seen_from[1])
        flow.seen_from = None

    def account(self, name: str) -> tuple[float, float, float]:
        """(served, seen, entitled): what a flow got, what was served while it had work, its share of that."""
        flow = self._flows[name]
        if flow.seen_from is None:
            return flow.served, flow.seen, flow.entitled
        seen, per_weight = self._work - flow.seen_from[0], self._per_weight - flow.seen_from[1]
        return flow.served, flow.seen + seen, flow.entitled + flow.weight * per_weight


def _check_weight(name: str, weight: float) -> None:
    if not (math.isfinite(weight) and weight > 0):
        raise EngineError(f"the share of {name!r} is {weight}, but must be a finite number of FLOPS above 0")
