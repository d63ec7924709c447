"""The smallest feasible T, where demand falls as T grows: smoothly, but for jumps at known places."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutwater.plan.fleet import Floats

Demand = Callable[[float], tuple[float, float]]
"""Demand at T and just below T; they differ only where T is a jump."""

TOLERANCE = 1e-12
"""The bracket's final width, relative to T."""
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
class _Ends:
    """Both ends of the bracket with y = supply/demand - 1, which is close to a straight line in T.

    The end that stays while the other moves has its y damped (Anderson and Björck's rule), so that steps
    converge faster than linearly from both sides.
    """

    low: float
    high: float
    y_low: float
    y_high: float
    last: int = 0

    def secant(self) -> float:
        if not np.isfinite(self.y_high):
            return 0.5 * (self.low + self.high)
        return self.low - self.y_low * (self.high - self.low) / (self.y_high - self.y_low)

    def raise_low(self, T: float, y: float) -> None:
        if self.last < 0:
            self.y_high *= _damping(y, self.y_low)
        self.low, self.y_low, self.last = T, y, -1

    def lower_high(self, T: float, y: float) -> None:
        if self.last > 0:
            self.y_low *= _damping(y, self.y_high)
        self.high, self.y_high, self.last = T, y, 1


def smallest_feasible(demand: Demand, supply: float, low: float, high: float, jumps: Floats) -> Bracket:
    """Find the smallest T in (low, high] with demand(T) ≤ supply.

    ``low`` must be infeasible, or the limit of infeasible T; ``high`` feasible but for rounding; ``jumps``
    sorted. Every step is safe: it halves the bracket at least once in three.
    """
    at, below = demand(high)
    step = TOLERANCE
    while at > supply:
        high *= 1 + step
        step *= 2
        at, below = demand(high)
    if below > supply:
        return Bracket(high, high, jump=True)
    ends = _Ends(low, high, -1.0, _excess(supply, below))
    slow = 0
    while ends.high - ends.low > TOLERANCE * ends.high:
        width = ends.high - ends.low
        T = _propose(ends, jumps, stalled=slow >= 2)
        at, below = demand(T)
        if at > supply:
            ends.raise_low(T, _excess(supply, at))
        elif below > supply:
            return Bracket(T, T, jump=True)
        else:
            ends.lower_high(T, _excess(supply, below))
        slow = slow + 1 if ends.high - ends.low > 0.5 * width else 0
    return Bracket(ends.low, ends.high, jump=False)


def _propose(ends: _Ends, jumps: Floats, *, stalled: bool) -> float:
    first, last = (
        np.searchsorted(jumps, ends.low, side="right"),
        np.searchsorted(jumps, ends.high, side="left"),
    )
    inside = jumps[first:last]
    guess = 0.5 * (ends.low + ends.high) if stalled else ends.secant()
    if inside.size and stalled:
        return float(inside[inside.size // 2])
    if 0 < inside.size <= FEW:
        return float(inside[min(int(np.searchsorted(inside, guess)), inside.size - 1)])
    # A step at least this long from either end closes the bracket as soon as the guess is that good.
    margin = min(0.5 * TOLERANCE * ends.high, 0.25 * (ends.high - ends.low))
    return min(max(guess, ends.low + margin), ends.high - margin)


def _excess(supply: float, demand: float) -> float:
    return supply / demand - 1 if demand > 0 else np.inf


def _damping(new: float, old: float) -> float:
    ratio = 1 - new / old if np.isfinite(new) and old else 0.0
    return ratio if ratio > 0 else 0.5
