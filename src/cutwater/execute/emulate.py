"""Emulation: a machine that is faster than the scenario's devices takes as long as they would.

Stages run for real and then sleep for what is left of the time that the emulated device or link would need:
FLOPs of the profile over f^C, bytes that really cross over r. This is emulation, and called so wherever its
numbers are shown; without it nothing sleeps, and the same stopwatch measures the real device.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cutwater.federate.conditions import Condition

Clock = Callable[[], float]
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


@dataclass(frozen=True)
class EmulatedDevice:
    """What is emulated: a client's conditions in a round, and the FLOPs of its cut for one sample."""

    condition: Condition
    forward: float
    """F^C."""
    backward: float
    """B^C."""


_STAGES = {"client_forward": "forward", "client_backward": "backward"}


class Meter:
    """Seconds of a session by phase; slows the session down if a device is emulated."""

    def __init__(self, device: EmulatedDevice | None = None, clock: Clock = time.monotonic) -> None:
        self.device, self.clock = device, clock
        self.seconds: dict[str, float] = defaultdict(float)
        self.rows = 0
        """Samples of the mini-batch at hand."""
        self._pacer = Pacer(clock)

    def begin(self, rows: int) -> None:
        """A mini-batch of so many samples comes next."""
        self.rows = rows

    @contextmanager
    def watch(self, stage: str) -> Iterator[None]:
        """Time a stage that computes on the device."""
        began = self.clock()
        yield
        if self.device is not None:
            flops = getattr(self.device, _STAGES[stage]) * self.rows
            self._pacer.hold(flops / self.device.condition.compute, self.clock() - began)
        self.seconds[stage] += self.clock() - began

    def carry(self, phase: str, bytes_: int, *, up: bool, taken: float = 0.0) -> None:
        """Let the emulated link carry bytes that the real one carried in ``taken`` seconds."""
        self.seconds[phase] += taken
        if self.device is None:
            return
        began = self.clock()
        rate = self.device.condition.up if up else self.device.condition.down
        self._pacer.hold(8 * bytes_ / rate, taken)
        self.seconds[phase] += self.clock() - began
