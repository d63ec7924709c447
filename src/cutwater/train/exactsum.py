"""Sums of many vectors that come out the same in any order: whole numbers, held in float64.

A term is rounded once, to a multiple of 2^-60, and cut into parts: one of multiples of 2^-20, one of the
multiples of 2^-60 below that, and, where the sum may grow beyond 2^32, one of multiples of 2^20 above. Each
part is added to a sum of its own, of which float64 holds every bit, so that all additions are exact. Floats,
because processors convert and add them several times as fast as 64-bit integers.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_UNITS: Final = (2.0**-60, 2.0**-20, 2.0**20)
"""What the numbers of each sum are multiples of, the lowest first."""
_REACH: Final = 2**32
"""What two sums hold; beyond it they are three, which hold 2^72."""
_SETTLE_EVERY: Final = 4_000
"""Additions after which a sum hands on what is beyond its bits. A part has up to 2^39 units and float64 holds
2^53 of them, so 2^14 additions would do no harm."""
ROOM: Final = 1 << 16
"""Numbers worked on at a time, so that they stay in the processor's cache."""


class ExactSum:
    """Σ of vectors times whole numbers; memory is two sums (at most three), whatever the number of terms."""

    def __init__(self, size: int) -> None:
        self._sums: list[Vector] = [np.zeros(size), np.zeros(size)]
        self._reach = self._additions = 0
        # Made once: fresh memory costs more than the arithmetic on it.
        self._terms, self._part = np.empty(min(size, ROOM)), np.empty(min(size, ROOM))

    def __len__(self) -> int:
        return len(self._sums[0])

    def add(self, parts: Iterable[npt.NDArray[Any]], factor: int, largest: float) -> None:
        """Take in one vector, given in parts of any size, times ``factor``; none of it above ``largest``."""
        self._prepare(factor * int(np.ceil(largest)))
        for place, numbers in in_rooms(parts):
            terms = self._terms[: len(numbers)]
            np.copyto(terms, numbers)
            np.multiply(terms, factor, out=terms)
            self._spread(place, terms, self._part[: len(terms)])

    def means(self, place: slice, count: int) -> Iterator[tuple[slice, Vector]]:
        """The sum at a place over ``count``, a cacheful at a time: where in that place, and the numbers.

        They lie in memory that the next ones overwrite.
        """
        if len(self._sums) > 2:
            # Of two sums, any share-out between them has the same total, rounded once; of three it has not.
            self._settle()
        for start in range(place.start, place.stop, ROOM):
            here = slice(start, min(start + ROOM, place.stop))
            total = self._terms[: here.stop - start]
            # The largest first: what cancels does so before anything is rounded.
            np.add(self._sums[-1][here], self._sums[-2][here], out=total)
            for lower in self._sums[-3::-1]:
                total += lower[here]
            total /= count
            yield slice(start - place.start, here.stop - place.start), total

    def _spread(self, place: slice, terms: Vector, part: Vector) -> None:
        for unit, total in reversed(list(zip(_UNITS, self._sums, strict=False))):
            _round(terms, unit, part)
            total[place] += part
            if total is not self._sums[0]:
                terms -= part

    def _prepare(self, reach: int) -> None:
        """Make sure that the sums can hold what comes next; the same for the same terms in any order."""
        self._reach += reach
        if self._reach > _REACH and len(self._sums) == 2:
            self._sums.append(np.zeros(len(self)))
            self._settle()
        if self._additions == _SETTLE_EVERY:
            self._settle()
        self._additions += 1

    def _settle(self) -> None:
        """Hand what is beyond a sum's bits on to the next; a given total is then held in one way only."""
        for unit, low, high in zip(_UNITS[1:], self._sums, self._sums[1:], strict=False):
            for start in range(0, len(self), ROOM):
                place = slice(start, start + ROOM)
                beyond = np.floor(low[place] / unit) * unit
                low[place] -= beyond
                high[place] += beyond
        self._additions = 0


def _round(terms: Vector, unit: float, out: Vector) -> None:
    """To multiples of ``unit``: a float64 of this size has its last bit there, so additions round to it."""
    size = 1.5 * 2.0**52 * unit
    np.add(terms, size, out=out)
    np.subtract(out, size, out=out)


def in_rooms(parts: Iterable[npt.NDArray[Any]]) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
    """The numbers of all parts one after the other, a roomful at a time: where they lie, and they.

    Small parts are put together, since what is done to each of many costs more than the arithmetic on them.
    """
    start, filled, pieces = 0, 0, list[npt.NDArray[Any]]()
    for part in parts:
        taken = 0
        while taken < len(part):
            piece = part[taken : taken + ROOM - filled]
            taken, filled = taken + len(piece), filled + len(piece)
            pieces.append(piece)
            if filled == ROOM:
                yield slice(start, start + filled), _joined(pieces)
                start, filled, pieces = start + filled, 0, []
    if filled:
        yield slice(start, start + filled), _joined(pieces)


def _joined(pieces: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
