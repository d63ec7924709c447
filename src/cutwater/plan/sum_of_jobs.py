"""Several jobs on one server: the weighted sum of their round times, with an interval that holds the optimum.

    minimise Σ_j w_j·T_j   subject to   Σ_j D_j(T_j) ≤ F^max.

For every price λ ≥ 0 of the server, Σ_j min over T of (w_j·T + λ·D_j(T)) - λ·F^max is a lower bound
(Lagrange): whoever keeps to F^max pays no more than this. The best λ makes of every curve its convex hull,
and what remains is a knapsack of straight pieces: take them in the order of seconds for each FLOPS until the
server is used up. At most one job then lies between two corners of its hull, as no real plan does; it is
branched on: either it is done before some T or it is not. Both halves have better bounds, and the smaller of
the two is the new one. The curves themselves are known from below, cell by cell (:mod:`cutwater.plan.curve`);
cells that a bound rests on are made smaller until they are not what keeps it from the best plan found.
"""

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from cutwater.plan.curve import Cell, Corner, Curve, lower_hull
from cutwater.plan.fastest_jobs import Budgets, fastest, share_out

CLOSE = 1e-6
"""How near bound and plan come to each other, relatively, before the search ends."""
MOST_CELLS = 4_000
"""Cells that are made before the search ends with the interval that it has."""
_NARROW = 1e-8
"""Of a sum of weighted times: what a cell may be wide before it is made smaller."""

Node = tuple[tuple[float, float], ...]
"""Of each job, the times between which its round ends."""


@dataclass(frozen=True)
class _Relaxed:
    """The best mixture of corners: a bound, and what it rests on."""

    bound: float
    parts: tuple[float, ...]
    corners: tuple[tuple[Corner, ...], ...]
    """Of each job: the corner that it is at, or the later and the earlier one that it lies between."""


def smallest_sum(curves: Sequence[Curve], weights: Sequence[float], F: float) -> Budgets:
    """How to share a server out so that the sum of weighted round times is smallest, and the interval."""
    return _Search(curves, weights, F).run()


class _Search:
    """A best-first search that owns the cells of all jobs."""

    def __init__(self, curves: Sequence[Curve], weights: Sequence[float], F: float) -> None:
        self._curves, self._weights, self._F = curves, weights, F
        self._cells: list[list[Cell]] = []
        self._made = 0
        self._parts = share_out(curves, F).parts
        self._value = self._worth(self._parts)
        self._ended = float("inf")
        """The smallest bound of a node that can't be looked into any further."""

    def run(self) -> Budgets:
        """Go on with the node that has the smallest bound until that is close to the best plan."""
        number = count()
        root = self._root()
        heap: list[tuple[float, int, Node]] = [(0.0, next(number), root)]
        while heap and heap[0][0] < self._value * (1 - CLOSE) and self._made < MOST_CELLS:
            bound, _, node = heapq.heappop(heap)
            for better, part in self._look_into(bound, node):
                heapq.heappush(heap, (better, next(number), part))
        lower = min([self._value, self._ended, *(bound for bound, *_ in heap[:1])])
        return Budgets(self._parts, self._value, lower)

    def _root(self) -> Node:
        """No job is sooner than with the whole server, nor later than without it or the best sum allows."""
        earliest = [fastest([curve], self._F).lower for curve in self._curves]
        spare = self._value - sum(w * T for w, T in zip(self._weights, earliest, strict=True))
        node = []
        for curve, w, first in zip(self._curves, self._weights, earliest, strict=True):
            last = max(min(curve.last, first + max(spare, 0.0) / w), first)
            cells = [Cell.of(curve, first, last)] if last > first else []
            self._cells.append([*cells, Cell.point(curve, last)])
            node.append((first, last))
        return tuple(node)

    def _look_into(self, bound: float, node: Node) -> list[tuple[float, Node]]:
        """Make cells smaller until the bound of a node is as good as it gets, then branch."""
        while True:
            found = self._relax(node)
            if found is None:
                return []
            bound = max(bound, found.bound)
            value = self._worth(found.parts)
            if value < self._value:
                self._parts, self._value = found.parts, value
            if bound >= self._value * (1 - CLOSE) or self._made >= MOST_CELLS:
                return [(bound, node)]
            # Split the cells that the bound rests on, if there are any wide enough.
            loose = [(j, corner.cell) for j, corners in enumerate(found.corners) for corner in corners]
            wide = [self._split(j, cell) for j, cell in loose if cell is not None]
            if not any(wide):
                break
        parts = self._branch(node, found)
        if not parts:
            self._ended = min(self._ended, bound)
        return [(bound, part) for part in parts]

    def _relax(self, node: Node) -> _Relaxed | None:
        """The bound of a node; None if its jobs can't be done together."""
        hulls = [lower_hull(self._corners(j, *span)) for j, span in enumerate(node)]
        parts = [hull[0].need for hull in hulls]
        left = self._F - sum(parts)
        if left < -1e-9 * self._F:
            return None
        value = sum(w * hull[0].time for w, hull in zip(self._weights, hulls, strict=True))
        at = [hull[:1] for hull in hulls]
        for slope, j, i in sorted(self._pieces(hulls)):
            late, early = hulls[j][i : i + 2]
            needed = early.need - late.need
            taken = max(min(left, needed), 0.0)
            value += slope * taken
            parts[j] += taken
            left -= taken
            if taken < needed:
                at[j] = [late, early] if taken > 0 else [late]
                break
            at[j] = [early]
        return _Relaxed(value, tuple(parts), tuple(map(tuple, at)))

    def _corners(self, j: int, first: float, last: float) -> list[Corner]:
        cells = self._cells[j]
        return [
            corner for cell in cells if first <= cell.start and cell.end <= last for corner in cell.corners()
        ]

    def _pieces(self, hulls: list[list[Corner]]) -> list[tuple[float, int, int]]:
        """Seconds for each FLOPS along the pieces of all hulls, which fall."""
        return [
            (self._weights[j] * (early.time - late.time) / (early.need - late.need), j, i)
            for j, hull in enumerate(hulls)
            for i, (late, early) in enumerate(pairwise(hull))
        ]

    def _worth(self, parts: Sequence[float]) -> float:
        """The sum that jobs reach with these parts of the server."""
        return sum(
            w * fastest([curve], part).value if part > 0 else w * curve.last
            for curve, w, part in zip(self._curves, self._weights, parts, strict=True)
        )

    def _split(self, j: int, cell: Cell) -> bool:
        if self._weights[j] * (cell.end - cell.start) <= _NARROW * self._value:
            return False
        cells = self._cells[j]
        i = bisect_left(cells, cell.start, key=lambda each: each.start)
        if cells[i] is not cell:  # both corners that a job lies between were of this cell
            return True
        cells[i : i + 1] = cell.split(self._curves[j])
        self._made += 2
        return True

    def _branch(self, node: Node, found: _Relaxed) -> list[Node]:
        """Two nodes for one whose bound rests on two corners of a job; none where nothing is between."""
        for j, corners in enumerate(found.corners):
            if len(corners) == 2:
                late, early = (corner.time for corner in corners)
                middle = self._boundary(j, early, late)
                if middle is None:
                    return []
                first, last = node[j]
                return [
                    (*node[:j], (first, middle), *node[j + 1 :]),
                    (*node[:j], (middle, last), *node[j + 1 :]),
                ]
        return []

    def _boundary(self, j: int, early: float, late: float) -> float | None:
        """A boundary of cells between two times, near their middle; a cell is split to get one."""
        middle = 0.5 * (early + late)
        while True:
            inside = [cell.end for cell in self._cells[j] if early < cell.end < late]
            if inside:
                return min(inside, key=lambda T: abs(T - middle))
            around = next(cell for cell in self._cells[j] if cell.start < late <= cell.end)
            if not self._split(j, around):
                return None
