"""Prices that add up to one, narrowed down by cutting planes: a point, a line or a triangle."""

import numpy as np

from cutwater.base.arrays import Floats

_SMALL = 1e-13
"""A piece of the simplex this small is a point."""


class Simplex:
    """The part of {π ≥ 0, Σ π = 1} in one to three dimensions that no cut has taken away."""

    def __init__(self, size: int) -> None:
        self._corners: Floats = np.eye(size)

    @property
    def empty(self) -> bool:
        """Whether next to nothing is left."""
        return len(self._corners) == 0 or bool(np.ptp(self._corners, axis=0).max() < _SMALL)

    @property
    def centre(self) -> Floats:
        """The centre of gravity: every cut through it takes at least a third of what is left (Grünbaum)."""
        corners = self._corners
        if len(corners) < 3:
            middle: Floats = corners.mean(axis=0)
            return middle
        first, others = corners[0], corners[1:] - corners[0]
        a, b = others[:-1], others[1:]
        areas = np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
        if areas.sum() == 0:
            flat: Floats = corners.mean(axis=0)
            return flat
        centre: Floats = first + ((a + b) / 3 * areas[:, None]).sum(axis=0) / areas.sum()
        return centre

    def cut(self, normal: Floats, level: float) -> None:
        """Keep what has normal·π ≥ level."""
        corners, height = self._corners, self._corners @ normal - level
        kept: list[Floats] = []
        for i in range(len(corners)):
            j = (i + 1) % len(corners)
            if height[i] >= 0:
                kept.append(corners[i])
            if (height[i] >= 0) != (height[j] >= 0) and i != j:
                way = height[i] / (height[i] - height[j])
                kept.append(corners[i] + way * (corners[j] - corners[i]))
        # A line has both ends as neighbours twice.
        unique = [p for n, p in enumerate(kept) if not any(np.array_equal(p, q) for q in kept[:n])]
        self._corners = np.array(unique).reshape(-1, corners.shape[1])
