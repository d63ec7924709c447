"""Enforced shares: client k gets f_k / Σf of a server's compute whenever the server is busy (Sec. V).

The plan promises client k the compute f_k^S, so the server's part of its steps, c FLOPs each, may take
c / f_k seconds. Sessions share one device by turns: each hands in work (a function and its FLOPs), one runner
carries out one piece at a time, and a weighted fair queue picks the next.

**The queue** is WF²Q+ (Bennett and Zhang, "Hierarchical packet fair queueing algorithms", IEEE/ACM ToN 5(5),
1997). Every session's next piece has a virtual start S and finish S + c / f; virtual time V advances by the
FLOPs done over Σf and is never behind the smallest S. Of the pieces that may have started by now (S ≤ V),
the one that finishes first goes next. It never idles while there is work, so an unused share goes to the
others; while a session has work, it lags behind its share by no more than about one piece; and a piece is
done at most one (other) piece later than its promise, c / f after it came. Start-time fair queueing is
simpler and as fair in the long run, but there a piece may have to wait for one of every other session, which
breaks the promise for sessions with large shares.

**The charge is FLOPs, not seconds.** The plan divides F^max in FLOPS, and a step's FLOPs are known before it
runs, so the order of service depends on the plan alone and not on the noise of a clock. Where a device does
some layers at fewer FLOPS than others, the FLOPs handed in should be those of the calibrated profile (device
seconds × nominal FLOPS); busy seconds are reported beside FLOPs, so that a difference shows.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from cutwater.errors import EngineError

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
    """WF²Q+ over named flows; knows no clock and no threads."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow[T]] = {}
        self._now = 0.0
        self._weights = 0.0
        self._running = 0.0
        """By how much virtual time will have advanced when the piece being served is done."""
        self._work = self._per_weight = 0.0
        """All that was served, and the same over the sum of weights at the time."""

    def open(self, name: str, weight: float) -> None:
        """Add a flow."""
        if not (math.isfinite(weight) and weight > 0):
            raise EngineError(
                f"the share of {name!r} is {weight}, but must be a finite number of FLOPS above 0"
            )
        if name in self._flows:
            raise EngineError(f"{name!r} has a share already: give each session a name of its own")
        self._flows[name] = _Flow(weight)
        self._sum_up()

    def close(self, name: str) -> list[T]:
        """Take a flow out, with what it had left."""
        flow = self._flows.pop(name)
        self._sum_up()
        return [item for _, item in flow.pieces]

    def _sum_up(self) -> None:
        self._weights = math.fsum(flow.weight for flow in self._flows.values())

    def push(self, name: str, cost: float, item: T) -> None:
        """Queue a piece of work of a flow."""
        if not (math.isfinite(cost) and cost > 0):
            raise EngineError(f"work of {name!r} costs {cost} FLOPs, but must cost more than 0 and be finite")
        flow = self._flows[name]
        if not flow.pieces:
            flow.start = max(flow.start, self._now)
            flow.seen_from = (self._work, self._per_weight)
        flow.pieces.append((cost, item))

    def pop(self, wanted: Callable[[T], bool] = lambda _: True) -> tuple[str, float, T] | None:
        """The piece to serve now that the last is done, or None; what is not wanted is left out for free."""
        self._now += self._running
        self._running = 0.0
        while (chosen := self._choose()) is not None:
            name, flow = chosen
            cost, item = flow.pieces[0]
            if wanted(item):
                self._charge(flow, cost)
                return name, cost, item
            self._shift(flow)
        return None

    def _choose(self) -> tuple[str, _Flow[T]] | None:
        waiting = [(name, flow) for name, flow in self._flows.items() if flow.pieces]
        if not waiting:
            # All work is done, so nobody is owed anything: whoever comes next starts afresh.
            self._now = max([self._now, *(flow.start for flow in self._flows.values())])
            return None
        self._now = max(self._now, min(flow.start for _, flow in waiting))
        eligible = (pair for pair in waiting if pair[1].start <= self._now)
        # Ties go to the flow that was opened first: the order is a function of the work alone.
        return min(eligible, key=lambda pair: pair[1].finish)

    def _charge(self, flow: _Flow[T], cost: float) -> None:
        flow.start = flow.finish
        flow.served += cost
        self._running = cost / self._weights
        self._work += cost
        self._per_weight += self._running
        self._shift(flow)

    def _shift(self, flow: _Flow[T]) -> None:
        flow.pieces.popleft()
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


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a session was promised and what it got."""

    name: str
    share: float
    """f_k in FLOPS, as planned."""
    pieces: int
    flops: float
    busy_seconds: float
    """The device's, with this session's work."""
    waited_seconds: float
    """From handing in to starting, summed over pieces."""
    promised: float
    """f_k / Σf, over the work done while this session had work waiting or starting."""
    delivered: float
    """Its part of that work: at least what was promised, more if others left theirs unused."""


@dataclass(slots=True)
class _Piece:
    work: Callable[[], Any]
    future: Future[Any]
    since: float


def _finish_on(device: str) -> Callable[[], None]:
    """What makes sure that a device has done what it was given."""
    if device == "cpu":
        return lambda: None
    import torch

    place = torch.device(device)
    if place.type != "cuda" or not torch.cuda.is_available():
        raise EngineError(f"device is {device!r}, but this machine has cpu{_cuda_devices()}")
    return lambda: torch.cuda.synchronize(place)


def _cuda_devices() -> str:
    import torch

    return "".join(f", cuda:{index}" for index in range(torch.cuda.device_count()))


class ShareScheduler:
    """One device and the thread that works on it; sessions take turns by their shares."""

    def __init__(self, device: str = "cpu", *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.device = device
        self._settle, self._clock = _finish_on(device), clock
        self._queue: FairQueue[_Piece] = FairQueue()
        self._lanes: dict[str, Lane] = {}
        self._turn = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"cutwater-shares-{device}", daemon=True)
        self._thread.start()

    def lane(self, name: str, share: float) -> "Lane":
        """A session's way in, with its share f_k in FLOPS; close it when the session is over."""
        with self._turn:
            if self._closed:
                raise EngineError("the share scheduler is closed")
            self._queue.open(name, share)
            self._lanes[name] = lane = Lane(self, name, share)
        return lane

    def report(self) -> tuple[Delivery, ...]:
        """The deliveries of all open lanes."""
        with self._turn:
            return tuple(lane._account() for lane in self._lanes.values())

    def close(self) -> None:
        """Finish the piece at hand, drop the rest, end the thread."""
        with self._turn:
            lanes = list(self._lanes.values())
            self._closed = True
            self._turn.notify()
        for lane in lanes:
            lane.close()
        self._thread.join()

    def __enter__(self) -> "ShareScheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> tuple["Lane", float, _Piece] | None:
        """The next piece, its future set running; None when closed."""
        with self._turn:
            while not self._closed:
                chosen = self._queue.pop(lambda piece: piece.future.set_running_or_notify_cancel())
                if chosen is not None:
                    name, cost, piece = chosen
                    return self._lanes[name], cost, piece
                self._turn.wait()
        return None

    def _run(self) -> None:
        while (chosen := self._next()) is not None:
            lane, cost, piece = chosen
            started = self._clock()
            try:
                result = piece.work()
                self._settle()
            except BaseException as error:
                self._book(lane, cost, piece, started)
                piece.future.set_exception(error)
            else:
                self._book(lane, cost, piece, started)
                piece.future.set_result(result)
                del result
            del chosen, piece  # a result may be large, and the next piece may be long in coming

    def _book(self, lane: "Lane", cost: float, piece: _Piece, started: float) -> None:
        with self._turn:
            lane._pieces += 1
            lane._flops += cost
            lane._busy += self._clock() - started
            lane._waited += started - piece.since


class Lane:
    """A session's share of a device."""

    def __init__(self, scheduler: ShareScheduler, name: str, share: float) -> None:
        self.name, self.share = name, share
        self._scheduler = scheduler
        self._pieces, self._flops, self._busy, self._waited = 0, 0.0, 0.0, 0.0
        self._final: Delivery | None = None

    def submit(self, work: Callable[[], T], flops: float) -> "Future[T]":
        """Hand in work that costs this many FLOPs; what it returns or raises is the future's."""
        scheduler, future = self._scheduler, Future[T]()
        with scheduler._turn:
            if self._final is not None:
                raise EngineError(f"the lane of {self.name!r} is closed")
            scheduler._queue.push(self.name, flops, _Piece(work, future, scheduler._clock()))
            scheduler._turn.notify()
        return future

    async def run(self, work: Callable[[], T], flops: float) -> T:
        """The same for an event loop; cancelled before its turn, the work is never done nor charged."""
        return await asyncio.wrap_future(self.submit(work, flops))

    def delivery(self) -> Delivery:
        """What this session got so far."""
        with self._scheduler._turn:
            return self._final or self._account()

    def close(self) -> Delivery:
        """Drop what is still waiting and give the share back to the others."""
        scheduler = self._scheduler
        with scheduler._turn:
            if self._final is None:
                self._final = self._account()
                dropped = scheduler._queue.close(self.name)
                del scheduler._lanes[self.name]
                for piece in dropped:
                    piece.future.cancel()
        return self._final

    def _account(self) -> Delivery:
        served, seen, entitled = self._scheduler._queue.account(self.name)
        return Delivery(
            name=self.name,
            share=self.share,
            pieces=self._pieces,
            flops=self._flops,
            busy_seconds=self._busy,
            waited_seconds=self._waited,
            promised=entitled / seen if seen else 0.0,
            delivered=served / seen if seen else 0.0,
        )
