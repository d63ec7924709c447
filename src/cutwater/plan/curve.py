"""What some clients need of the server to have their round done by T: D(T) = Σ need_k(T).

The curve falls as T grows, with a jump at every T̃_k, where client k stops needing a share. It is all that a
server with several jobs has to know of one of them (:mod:`cutwater.plan.fastest_jobs` and
:mod:`cutwater.plan.sum_of_jobs`), which look at it from below, too: in cells of T, each with a polygon that
the curve lies above. On a cell [T1, T2] every client that needs the server throughout (T̃_k ≥ T2) has

    1/need_k(T) ≤ the chord between its values at both ends,

because 1/need_k is the largest of straight lines (T - a_k(l)) / s_k(l), which is convex. So need_k lies above
1/chord, which is convex and touches it at both ends, and thus above the tangents of 1/chord there. With n1
and n2 the needs at both ends, the sum over those clients is

    D(T) ≥ max( Σ n1 - (T - T1)·Σ n1·(n1 - n2)/n2 / (T2 - T1),
                Σ n2 + (T2 - T)·Σ n2·(n1 - n2)/n1 / (T2 - T1) ).

Other clients (T̃_k within the cell) need at least nothing. The error is of second order in the width of a
cell without jumps. Where parts of a step overlap, 1/need_k is not convex; there the curve lies above the
corner (T1, Σ n2), as any curve that falls does.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.plan.root import jumps_between
from cutwater.plan.tables import ClientTables


@dataclass(frozen=True)
class Curve:
    """D(T) of some clients, with time in a unit of its own: T stands for ``scale`` times the seconds.

    A fleet whose devices and links are slower by ``scale`` takes ``scale`` times as long with shares that are
    smaller by as much. So the curve of the slower fleet, times ``scale``, is the fleet's own over the longer
    time, and jumps lie at numbers that are exact in that unit.
    """

    scale: float
    table: ClientTables
    """Those that the server can help; T̃ of the others is minus infinity: they need nothing."""
    least: Floats
    """min over l of a_k(l): below this no share helps client k; T̃ of all where there is no server."""
    stuck: float
    """The largest T̃ of a client that no share helps; 0 if there is none."""
    floor: float
    """The largest ``least`` of a client that the server can help: D is infinite there; 0 if there is none."""
    ceiling: float
    """The round is done by then if every client has an equal part of the server."""
    convex: bool
    """Whether 1/need_k is convex in T, as it is where all steps go in turn: the largest of straight lines."""

    @classmethod
    def of(cls, table: ClientTables, F: float, scale: float = 1.0) -> "Curve":
        """The curve of these clients, of which equal parts of F are one way to be done.

        They are slower by ``scale`` already (:func:`cutwater.plan.fastest_jobs.curve_of`).
        """
        alone, cells = table.alone, table.by_cut
        if F == 0:
            settled = np.full_like(alone, -np.inf)
            slowest = float(alone.max())
            return cls(scale, table.with_alone(settled), alone, slowest, 0.0, slowest, convex=True)
        ceiling, least = table.extremes(F / len(alone) / scale)
        helped = alone > least
        return cls(
            scale,
            table.with_alone(np.where(helped, alone, -np.inf)),
            least,
            float(alone.max(where=~helped, initial=0.0)),
            float(least.max(where=helped, initial=0.0)),
            ceiling,
            convex=cells.turns == len(cells.cuts),
        )

    @property
    def alone(self) -> Floats:
        """T̃ of those that the server can help."""
        return self.table.alone

    @property
    def helps(self) -> bool:
        """Whether the server can help anybody."""
        return bool((self.alone > -np.inf).any())

    @property
    def last(self) -> float:
        """From here on, nobody needs anything."""
        return max(self.stuck, float(self.alone.max(initial=0.0)))

    def demand(self, T: float) -> tuple[float, float]:
        """D at T, and just below it; the two differ where T is a jump."""
        at, below = self.table.demand(T)
        return self.scale * at, self.scale * below

    def needs(self, T: float) -> Floats:
        """need_k of every client just below T."""
        return self.scale * self.table.needs(T, done=T)


@dataclass(frozen=True)
class Corner:
    """A point that a curve lies above or on."""

    need: float
    """What the job's clients need of the server together to be done by then, D(T)."""
    time: float
    """The round latency T that they need it for."""
    cell: "Cell | None" = None
    """Where it is of, if the curve may lie well above it: a smaller cell has a better one."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A piece of a curve: from ``start`` on, up to but not at ``end``."""

    start: float
    end: float
    points: tuple[tuple[float, float, bool], ...]
    """D and T of the corners of what the curve lies above, and whether it really goes through them."""

    @classmethod
    def of(cls, curve: Curve, start: float, end: float) -> "Cell":
        """Look at both ends of a piece."""
        throughout = curve.alone >= end
        n2 = curve.needs(end)[throughout]
        low = float(n2.sum())
        last = (low, end, True)
        if not curve.convex:
            return cls(start, end, ((low, start, False), last))
        n1 = np.maximum(curve.needs(start)[throughout], n2)
        with np.errstate(all="ignore"):
            falls = float((n1 * (n1 - n2) / n2).sum())
            rises = float(np.where(np.isfinite(n1), n2 * (n1 - n2) / n1, n2).sum())
        high = float(n1.sum())
        if not (np.isfinite(high) and np.isfinite(falls)):
            return cls(start, end, ((low + rises, start, False), last))
        first = (high, start, not jumps_between(curve.alone, start, end).size)
        if falls <= rises:
            return cls(start, end, (first, last))
        # Where both tangents meet, as a part of the way from the start.
        way = min(max((high - low - rises) / (falls - rises), 0.0), 1.0)
        return cls(start, end, (first, (high - way * falls, start + way * (end - start), False), last))

    @classmethod
    def point(cls, curve: Curve, time: float) -> "Cell":
        """The curve at one time."""
        return cls(time, time, ((curve.demand(time)[0], time, True),))

    def corners(self) -> list[Corner]:
        """The points that the curve lies above or on."""
        return [Corner(D, T, None if met else self) for D, T, met in self.points]

    def split(self, curve: Curve) -> tuple["Cell", "Cell"]:
        """Two cells in place of this one: at the jump in the middle, if there are any."""
        jumps = jumps_between(curve.alone, self.start, self.end)
        middle = float(jumps[jumps.size // 2]) if jumps.size else 0.5 * (self.start + self.end)
        return Cell.of(curve, self.start, middle), Cell.of(curve, middle, self.end)


def lower_hull(corners: Iterable[Corner]) -> list[Corner]:
    """The corners of the convex hull seen from the origin: D grows, T falls, ever less steeply."""
    kept: list[Corner] = []
    for corner in sorted(corners, key=lambda corner: (corner.need, corner.time)):
        if kept and corner.time >= kept[-1].time:
            continue
        while len(kept) > 1 and _above(kept[-2], kept[-1], corner):
            kept.pop()
        if kept and kept[-1].need == corner.need:
            kept.pop()
        kept.append(corner)
    return kept


def _above(first: Corner, second: Corner, third: Corner) -> bool:
    """Whether the second point lies on or above the line between the others."""
    rise, run = third.time - first.time, third.need - first.need
    return (second.time - first.time) * run >= rise * (second.need - first.need)
