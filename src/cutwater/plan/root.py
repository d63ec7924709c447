"""The smallest feasible T, where demand falls as T grows: smoothly, but for jumps at known places."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from cutwater.base.arrays import Floats

Demand = Callable[[float], tuple[float, float]]
"""Demand at T and just below T; they differ only where T is a jump."""

TOLERANCE = 1e-12
"""The bracket's final width, relative to T."""
AT_OPTIMUM = 1e-9
"""A plan so near the lower bound, relatively, is optimal: the bound itself is no nearer to the optimum."""
FEW = 32
"""With at most so many jumps in the bracket, step from jump to jump; between more, demand looks smooth."""


@dataclass(frozen=True)
class Bracket:
    """Nothing below ``low`` is feasible, ``high`` is."""

    low: float
    high: float
    jump: bool
    """The optimum is a jump: ``low == high``, and demand leaps over the supply right below it."""


@dataclass
class _Search:
    """A bracket that closes: nothing below ``low`` is feasible, ``high`` is.

    Near its pole, the largest time that no share can shorten, demand is close to a straight line in
    z = 1/(T - pole): exactly so if one client makes all of it, or one of them with the rest constant. So the
    next guess is the secant's through the last two points in z.
    """

    supply: float
    pole: float
    low: float
    high: float
    points: list[tuple[float, float]]
    """The last two (z, demand) with a finite demand."""

    def note(self, T: float, demand: float) -> None:
        # At the pole itself, where rounding can put T, demand says nothing about its slope.
        if isfinite(demand) and self.pole < T:
            self.points = [*self.points[-1:], (1 / (T - self.pole), demand)]

    def guess(self) -> float:
        """Where demand should meet supply; NaN if the points don't tell."""
        if not self.points:
            return np.nan
        (z1, d1), (z2, d2) = self.points if len(self.points) == 2 else ((0.0, 0.0), *self.points)
        if d1 == d2:
            return np.nan
        z = z2 + (self.supply - d2) * (z2 - z1) / (d2 - d1)
        return self.pole + 1 / z if z > 0 else np.nan


def jumps_between(alone: Floats, low: float, high: float) -> Floats:
    """The T̃ between two times, in order: where a client stops needing a share."""
    return np.sort(alone[(alone > low) & (alone < high)])


def smallest_feasible(
    demand: Demand, supply: float, low: float, high: float, jumps: Floats, pole: float | None = None
) -> Bracket:
    """Find the smallest T in (low, high] with demand(T) ≤ supply.

    ``low`` must be infeasible, or the limit of infeasible T where demand has its pole, unless that is told
    apart; ``high`` feasible but for rounding; ``jumps`` sorted. Every step is safe: the bracket halves at
    least once in three.
    """
    at, below = demand(high)
    step = TOLERANCE
    while at > supply:
        high *= 1 + step
        step *= 2
        at, below = demand(high)
    if below > supply:
        return Bracket(high, high, jump=True)
    search = _Search(supply, low if pole is None else pole, low, high, [])
    search.note(high, below)
    slow = 0
    while search.high - search.low > TOLERANCE * search.high:
        width = search.high - search.low
        T = _propose(search, jumps, stalled=slow >= 2)
        at, below = demand(T)
        if at > supply:
            search.low = T
            search.note(T, at)
        elif below > supply:
            return Bracket(T, T, jump=True)
        else:
            search.high = T
            search.note(T, below)
        slow = slow + 1 if search.high - search.low > 0.5 * width else 0
    return Bracket(search.low, search.high, jump=False)


def _propose(search: _Search, jumps: Floats, *, stalled: bool) -> float:
    low, high = search.low, search.high
    guess = search.guess()
    if stalled or not low <= guess <= high:
        guess = 0.5 * (low + high)
    inside = jumps[jumps.searchsorted(low, side="right") : jumps.searchsorted(high, side="left")]
    if inside.size and stalled:
        return float(inside[inside.size // 2])
    if 0 < inside.size <= FEW:
        return float(inside[min(int(inside.searchsorted(guess)), inside.size - 1)])
    # A step at least this long from either end closes the bracket as soon as the guess is that good.
    margin = min(0.5 * TOLERANCE * high, 0.25 * (high - low))
    return min(max(guess, low + margin), high - margin)
