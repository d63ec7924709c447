"""How far an update is from the global model, and what the numbers of each of its tensors come to.

Both are asked of every update, and most tensors of a model are small: what is done to each of them costs more
than the arithmetic on its numbers. So numbers of many tensors are laid one after the other first.
"""

import math
from collections.abc import Sequence

import numpy as np

from cutwater.train.exactsum import ROOM, Vector, in_rooms
from cutwater.train.expected import flat
from cutwater.train.session import State


class Distance:
    """The Euclidean distance of updates from one model, over some of its tensors.

    It is summed up in one order, whatever the number of threads.
    """

    def __init__(self, reference: State, names: Sequence[str]) -> None:
        self._names = names
        self._reference = [flat(reference[name]) for name in names]
        size = min(ROOM, sum(map(len, self._reference)))
        # Made once: fresh memory costs more than the arithmetic on it.
        self._far, self._room = np.empty(size), np.empty(size)
        squares = (_square(some.astype(np.float64)) for _, some in in_rooms(self._reference))
        self.norm = math.sqrt(sum(squares))
        """That of the model itself."""

    def of(self, state: State) -> float:
        """That of an update."""
        total, numbers = 0.0, in_rooms(flat(state[name]) for name in self._names)
        for (_, theirs), (_, mine) in zip(in_rooms(self._reference), numbers, strict=True):
            far, room = self._far[: len(mine)], self._room[: len(mine)]
            # Types are changed by copying, which is several times as fast as within a subtraction.
            np.copyto(far, mine)
            np.copyto(room, theirs)
            total += _square(np.subtract(far, room, out=far))
        return math.sqrt(total)


class TensorMeans:
    """The mean of each of some tensors, and its smallest number; none of them is empty."""

    def __init__(self, reference: State, names: Sequence[str]) -> None:
        self.names = names
        self._sizes = np.array([reference[name].numel() for name in names], dtype=np.int64)
        self._starts = np.cumsum(self._sizes) - self._sizes

    def numbers(self, state: State) -> Vector:
        """All numbers of all tensors, in float64."""
        parts = [flat(state[name]) for name in self.names]
        return np.concatenate(parts, dtype=np.float64) if parts else np.empty(0)

    def least(self, numbers: Vector) -> list[float]:
        """The smallest number of each tensor."""
        least: list[float] = np.minimum.reduceat(numbers, self._starts).tolist() if self.names else []
        return least

    def means(self, numbers: Vector) -> list[float]:
        """The mean of each tensor."""
        sums = np.add.reduceat(numbers, self._starts) if self.names else numbers
        means: list[float] = (sums / self._sizes).tolist()
        return means


def _square(numbers: Vector) -> float:
    return float(np.square(numbers, out=numbers).sum())
