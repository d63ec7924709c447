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
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from cutwater.engine.fair_queue import FairQueue
from cutwater.errors import EngineError

T = TypeVar("T")


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
        self._following: deque[tuple[Lane, _Piece]] = deque()
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
                chosen = self._choose()
                if chosen is not None:
                    return chosen
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
        return self._lanes[name], cost, piece

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
            lane._busy += self._clock() - started
            if cost:
                lane._pieces += 1
                lane._flops += cost
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
        with self._open_turn():
            scheduler._queue.push(self.name, flops, _Piece(work, future, scheduler._clock()))
        return future

    def follow(self, work: Callable[[], T]) -> "Future[T]":
        """Hand in the rest of what was done last, once its result is out: it goes next and is paid for."""
        scheduler, future = self._scheduler, Future[T]()
        with self._open_turn():
            scheduler._following.append((self, _Piece(work, future, scheduler._clock())))
        return future

    @contextmanager
    def _open_turn(self) -> Iterator[None]:
        with self._scheduler._turn:
            if self._final is not None:
                raise EngineError(f"the lane of {self.name!r} is closed")
            yield
            self._scheduler._turn.notify()

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
