"""Enforced shares: client k gets f_k / Σf of a server's compute whenever the server is busy (Sec. V).

The plan promises client k the compute f_k^S, so the server's part of its steps, c FLOPs each, may take
c / f_k seconds. Sessions share one device by turns: each hands in work (a function and its FLOPs), one runner
carries out one piece at a time, and a weighted fair queue picks the next (``fair_queue``).

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
from typing import Any, Final, TypeVar

from cutwater.base.errors import EngineError
from cutwater.serve.fair_queue import FairQueue
from cutwater.serve.turns import Turns

T = TypeVar("T")
BRIEF: Final = 0.01
"""Seconds that a session which has the device to itself may keep an event loop from its other business: to be
handed to another thread and back takes half a millisecond, of which longer work takes no notice."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a session was promised and what it got."""

    name: str
    share: float
    """f_k in FLOPS, as planned last."""
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


@dataclass(frozen=True, slots=True)
class Given:
    """What several sessions, of one job say, were promised and got together."""

    promised: float = 0.0
    """FLOPs that their shares entitled them to, of all that the server did while they had work."""
    delivered: float = 0.0
    """FLOPs that they got."""

    def and_also(self, delivery: Delivery) -> "Given":
        """The same with another session."""
        seen = delivery.flops / delivery.delivered if delivery.delivered else 0.0
        return Given(self.promised + delivery.promised * seen, self.delivered + delivery.flops)


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
        others = "".join(f", cuda:{index}" for index in range(torch.cuda.device_count()))
        raise EngineError(f"device is {device!r}, but this machine has cpu{others}")
    return lambda: torch.cuda.synchronize(place)


class ShareScheduler:
    """One device and the thread that works on it; sessions take turns by their shares."""

    def __init__(
        self,
        device: str = "cpu",
        *,
        before: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
        turns: Turns | None = None,
    ) -> None:
        self._turns, self._before, self._settle, self._clock = turns, before, _finish_on(device), clock
        """What is done before and after each piece, in the thread that carries it out."""
        self._queue: FairQueue[_Piece] = FairQueue()
        self._following: deque[tuple[Lane, _Piece]] = deque()
        self._lanes: dict[str, Lane] = {}
        # On the way of every part: to take the lock runs no Python, to take the condition does.
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._taken = False
        """Whether a piece is being carried out."""
        self._last: Lane | None = None
        """Whose piece was the last."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"cutwater-shares-{device}", daemon=True)
        self._thread.start()

    def lane(self, name: str, share: float) -> "Lane":
        """A session's way in, with its share f_k in FLOPS; close it when the session is over."""
        with self._lock:
            if self._closed:
                raise EngineError("the share scheduler is closed")
            self._queue.open(name, share)
            self._lanes[name] = lane = Lane(self, name, share)
        return lane

    def report(self) -> tuple[Delivery, ...]:
        """The deliveries of all open lanes."""
        with self._lock:
            return tuple(lane._account() for lane in self._lanes.values())

    def close(self) -> None:
        """Finish the piece at hand, drop the rest, end the thread."""
        with self._lock:
            lanes = list(self._lanes.values())
            self._closed = True
            self._turn.notify()
        for lane in lanes:
            lane.close()
        self._thread.join()
        if self._turns is not None:
            self._turns.close()

    def __enter__(self) -> "ShareScheduler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self) -> tuple["Lane", float, _Piece] | None:
        """The next piece, its future set running; None when closed."""
        with self._lock:
            while not self._closed:
                chosen = None if self._taken else self._choose()
                if chosen is not None:
                    self._taken = True
                    return chosen
                if self._turns is not None:
                    self._turns.give()
                self._turn.wait()
        return None

    def _choose(self) -> tuple["Lane", float, _Piece] | None:
        while self._following:
            lane, piece = self._following.popleft()
            if piece.future.set_running_or_notify_cancel():
                return lane, 0.0, piece
        chosen = self._queue.pop(lambda piece: piece.future.set_running_or_notify_cancel())
        if chosen is None:
            return None
        name, cost, piece = chosen
        lane = self._lanes[name]
        lane.alone, self._last = self._last is lane and not self._queue.waiting, lane
        return lane, cost, piece

    def _belongs_to(self, lane: "Lane") -> bool:
        """Whether nobody else uses the device, or has since this session did."""
        if self._turns is not None:  # perhaps another process does
            return False
        return self._last is lane and not (self._taken or self._following or self._queue.waiting)

    def _run(self) -> None:
        while (chosen := self._next()) is not None:
            self._carry_out(*chosen)
            del chosen  # a result may be large, and the next piece may be long in coming

    def _carry_out(self, lane: "Lane", cost: float, piece: _Piece) -> None:
        try:
            result = self._timed(lane, cost, piece.since, piece.work)
        except BaseException as error:
            piece.future.set_exception(error)
            del piece  # which the error's traceback would keep, and with it the error
        else:
            piece.future.set_result(result)

    def _timed(self, lane: "Lane", cost: float, since: float, work: Callable[[], T]) -> T:
        """Do a lane's work on the device, which it has taken, and book it."""
        started = self._clock()
        try:
            if self._turns is not None:
                self._turns.take(max(cost, 1.0))  # what follows a piece was paid with it
                started = self._clock()
            self._before()
            result = work()
            self._settle()
            return result
        finally:
            with self._lock:
                self._taken = False
                if self._following or self._queue.waiting:
                    self._turn.notify()
                else:
                    self._queue.idle()
                lane._book(cost, self._clock() - started, started - since)


class Lane:
    """A session's share of a device."""

    def __init__(self, scheduler: ShareScheduler, name: str, share: float) -> None:
        self.name, self.share = name, share
        self.alone = False
        """Whether, when its last piece began, nobody else had work or had had some since the one before."""
        self._scheduler = scheduler
        self._pieces, self._flops, self._busy, self._waited = 0, 0.0, 0.0, 0.0
        self._latest = self._latest_rest = math.inf
        """Seconds of the last piece and of what followed it; unknown, they may be long."""
        self._final: Delivery | None = None

    def reshare(self, share: float) -> None:
        """Give the session another share f_k from now on."""
        with self._scheduler._lock:
            self._check_open()
            self._scheduler._queue.reweigh(self.name, share)
            self.share = share

    def submit(self, work: Callable[[], T], flops: float) -> "Future[T]":
        """Hand in work that costs this many FLOPs; what it returns or raises is the future's."""
        with self._scheduler._lock:
            return self._enqueue(work, flops)

    def follow(self, work: Callable[[], object]) -> "Future[object] | None":
        """Hand in the rest of what was done last, once its result is out: it goes next and is paid for.

        Done here and now under the same conditions as in :meth:`run`; None if it is done, and well.
        """
        scheduler = self._scheduler
        with scheduler._lock:
            self._check_open()
            at_once = self._latest_rest <= BRIEF and scheduler._belongs_to(self)
            if not at_once:
                piece = _Piece(work, Future[object](), scheduler._clock())
                scheduler._following.append((self, piece))
                scheduler._turn.notify()
                return piece.future
            scheduler._taken = True
        try:
            scheduler._timed(self, 0.0, scheduler._clock(), work)
        except BaseException as error:
            failed = Future[object]()
            failed.set_exception(error)
            return failed
        return None

    async def run(self, work: Callable[[], T], flops: float) -> T:
        """The same for an event loop; cancelled before its turn, the work is never done nor charged.

        Brief pieces of a session that has the device to itself are done here and now.
        """
        scheduler = self._scheduler
        with scheduler._lock:
            at_once = self._latest <= BRIEF and scheduler._belongs_to(self)
            if at_once:
                self._check_open()
                scheduler._queue.serve(self.name, flops)
                self.alone = scheduler._taken = True
            else:
                future = self._enqueue(work, flops)
        if at_once:
            return scheduler._timed(self, flops, scheduler._clock(), work)
        return await asyncio.wrap_future(future)

    def _enqueue(self, work: Callable[[], T], flops: float) -> "Future[T]":
        self._check_open()
        scheduler, future = self._scheduler, Future[T]()
        scheduler._queue.push(self.name, flops, _Piece(work, future, scheduler._clock()))
        scheduler._turn.notify()
        return future

    def _check_open(self) -> None:
        if self._final is not None:
            raise EngineError(f"the lane of {self.name!r} is closed")

    def _book(self, cost: float, busy: float, waited: float) -> None:
        self._busy += busy
        if cost:
            self._pieces += 1
            self._flops += cost
            self._latest = busy
            self._waited += waited
        else:
            self._latest_rest = busy

    def delivery(self) -> Delivery:
        """What this session got so far."""
        with self._scheduler._lock:
            return self._final or self._account()

    def close(self) -> Delivery:
        """Drop what is still waiting and give the share back to the others."""
        scheduler = self._scheduler
        with scheduler._lock:
            if self._final is None:
                self._final = self._account()
                dropped = scheduler._queue.close(self.name)
                dropped += [piece for lane, piece in scheduler._following if lane is self]
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
