"""Emulation: a machine that is faster than the scenario's devices takes as long as they would.

Stages run for real and then sleep for what is left of the time that the emulated device or link would need:
FLOPs of the profile over f^C, bytes that really cross over r. This is emulation, and called so wherever its
numbers are shown; without it nothing sleeps, and the same stopwatch measures the real device.

Where the parts of a mini-batch overlap, each direction of the link works on its own (:class:`LinkWay`),
beside the device: it carries one part after the other, and sleeping is left to whoever sends and receives.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from cutwater.federate.conditions import Condition
from cutwater.plan.session import part_sizes

Clock = Callable[[], float]
T = TypeVar("T")
_MOST_LENT = 2.0
"""Seconds of a hiccup that later stages may make up for: it is the emulating machine's, not the device's."""


class Pacer:
    """Sleeps so that stages take as long as they should; what one sleeps too long, the next sleeps less."""

    def __init__(self, clock: Clock = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock, self._sleep, self._owed = clock, sleep, 0.0

    def hold(self, least: float, taken: float) -> None:
        """Something took ``taken`` seconds and should have taken ``least``."""
        self._owed = max(self._owed + least - taken, -_MOST_LENT)
        if self._owed > 0:
            began = self._clock()
            self._sleep(self._owed)
            self._owed -= self._clock() - began


class LinkWay:
    """One direction of an emulated link: a line that carries one message at a time, and a way to go.

    A message occupies the line for its bits over the rate, after those before it; it is there half a round
    trip later, which keeps nobody else from the line. Time is computed, not slept: what a machine does late
    is not added up.
    """

    def __init__(self, rate: float, rtt: float = 0.0) -> None:
        self._rate, self._rtt, self._free = rate, rtt, 0.0
        self.busy = 0.0
        """Seconds that it carried something."""

    def __call__(self, bytes_: int, ready: float) -> float:
        """When a message is there that was ready at a time.

        >>> way = LinkWay(rate=8.0, rtt=1.0)
        >>> way(2, 10.0), way(2, 11.0), way(2, 20.0)
        (12.5, 14.5, 22.5)
        """
        taken = 8 * bytes_ / self._rate
        self._free = max(self._free, ready) + taken
        self.busy += taken
        return self._free + self._rtt / 2


@dataclass(frozen=True)
class EmulatedDevice:
    """What is emulated: a client's conditions in a round, and the FLOPs of each stage for one sample."""

    condition: Condition
    client_forward: float
    """F^C."""
    client_backward: float
    """B^C."""
    tail_forward: float = 0.0
    """Of a model in three parts: F of its tail; F^C and B^C are then the head's alone."""
    tail_backward: float = 0.0


_STAGES = ("client_forward", "client_backward", "tail_forward", "tail_backward")
_OF_PARTS = frozenset({"smashed_upload", "gradient_download"})
"""What crosses the stream; the model comes otherwise."""


class Meter:
    """Seconds of a session by phase; slows the session down if a device is emulated."""

    def __init__(self, device: EmulatedDevice | None = None, clock: Clock = time.monotonic) -> None:
        self.device, self.clock = device, clock
        self.seconds: dict[str, float] = defaultdict(float)
        self.micro_batches = 1
        """Parts of every mini-batch."""
        self._pacer = Pacer(clock)
        self.begin(0)

    def begin(self, rows: int) -> None:
        """A mini-batch of so many samples comes next."""
        sizes = part_sizes(rows, self.micro_batches) if rows else []
        self._rows = {stage: iter(sizes) for stage in _STAGES}

    def timed(self, batches: Iterable[T]) -> Iterator[T]:
        """The same mini-batches, with the wall time that whoever takes one spends on it, as "steps"."""
        for batch in batches:
            began = self.clock()
            yield batch
            self.seconds["steps"] += self.clock() - began

    @contextmanager
    def watch(self, stage: str) -> Iterator[None]:
        """Time a stage that computes on the device: of the next part that is due for it."""
        began, rows = self.clock(), next(self._rows[stage], 0)
        yield
        if self.device is not None:
            flops = getattr(self.device, stage) * rows
            self._pacer.hold(flops / self.device.condition.compute, self.clock() - began)
        self.seconds[stage.replace("tail", "client")] += self.clock() - began

    def carry(self, phase: str, bytes_: int, *, up: bool, taken: float = 0.0) -> None:
        """Let the emulated link carry bytes that the real one carried in ``taken`` seconds."""
        self.seconds[phase] += taken
        if self.device is None:
            return
        began, condition = self.clock(), self.device.condition
        delay = condition.rtt / 2 if phase in _OF_PARTS else 0.0
        self._pacer.hold(8 * bytes_ / (condition.up if up else condition.down) + delay, taken)
        if delay:
            self.seconds["round_trips"] += delay
        self.seconds[phase] += max(self.clock() - began - delay, 0.0)

    def link(self) -> tuple[LinkWay, LinkWay] | None:
        """Both ways of the emulated link, for parts that overlap."""
        if self.device is None:
            return None
        condition = self.device.condition
        return LinkWay(condition.up, condition.rtt), LinkWay(condition.down, condition.rtt)
