"""Pacing: a session sends no faster than the rate that the plan gives it of a shared line.

Each end paces what it sends, frame by frame, so that the line itself is never handed more than was promised:
the device by the rate in its ticket, the server by the same for what goes down. A device that does not keep
to it is read no faster, and HTTP/2's flow control then holds it back.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from cutwater.stream.frames import MAX_FRAME, MAX_PART

_GRAIN: Final = 0.02
"""Seconds that a frame of a paced session takes, about: what others on the line wait for at most."""
_LEAST: Final = 4096
"""Bytes of a frame, however slow the line is."""


class Sending:
    """When the frames of messages have passed a line of some rate. Pure: it knows no clock.

    Nothing is saved for later, but who wakes up late within a message makes up for it.

    >>> line = Sending(rate=80.0)
    >>> line.begin(5.0), line.passed(10), line.passed(10), line.begin(6.0), line.passed(10)
    (None, 6.0, 7.0, None, 8.0)
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._free = rate, -float("inf")
        self.size = min(max(int(rate / 8 * _GRAIN), _LEAST), MAX_PART)
        """Bytes that are well sent at once."""

    def begin(self, now: float) -> None:
        """A message is there."""
        self._free = max(self._free, now)

    def passed(self, size: int) -> float:
        """When the next so many bytes of it have passed."""
        self._free += 8 * size / self._rate
        return self._free


class Reading:
    """A token bucket: when bytes that have arrived count as passed. Pure: it knows no clock.

    What was not used is kept for later up to the largest frame, which a device that paces itself never makes.

    >>> line = Reading(rate=80.0, burst=10)
    >>> line.passed(10, 5.0), line.passed(10, 5.0), line.passed(10, 5.0)
    (5.0, 6.0, 7.0)
    """

    def __init__(self, rate: float, burst: int = MAX_FRAME) -> None:
        self._rate, self._burst, self._free = rate, burst, -float("inf")

    def passed(self, size: int, now: float) -> float:
        """When these bytes, which are there now, have passed."""
        self._free = max(self._free, now - 8 * self._burst / self._rate) + 8 * size / self._rate
        return self._free


Frames = Callable[[int], Iterator[bytes]]
"""Makes the frames of a message, with so many bytes of payload in each, one by one as they are sent."""


class Pace:
    """Hands frames on no faster than a line takes them, by sleeping."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._line, self._clock, self._sleep = Sending(rate), clock, sleep

    def spread(self, frames: Frames, frame_bytes: int) -> Iterator[bytes]:
        """A message's frames, smaller ones, each when it has had its time on the line."""
        self._line.begin(self._clock())
        for frame in frames(min(frame_bytes, self._line.size)):
            left = self._line.passed(len(frame)) - self._clock()
            if left > 0:
                self._sleep(left)
            yield frame
