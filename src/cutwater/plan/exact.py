"""The exact planner: the global optimum of the paper's mixed-integer problem (21), with a certificate.

Fix a target T. The smallest share that has client k done by T is

    need_k(T) = 0                                               if T̃_k ≤ T (no share at all)
              = min over allowed l < L with a_k(l) < T of s_k(l) / (T - a_k(l))   otherwise,

so T is feasible exactly when Σ need_k(T) ≤ F^max. The sum falls as T grows: the smallest feasible T is the
optimum, and an infeasible T just below it proves that. No regression, no alternation, O(K·L) for each step.

Nothing of this depends on what the options of a client are, as long as more of the server is never slower. So
an option may as well be a cut and a wire (schedule and codecs): the minimum goes over all of them, and where
the parts of a step overlap, the smallest share of an option is the root of a convex function
(:mod:`cutwater.plan.kernel`) in place of a quotient. The optimum is the global one over all options.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.plan import kernel
from cutwater.plan.problem import Problem
from cutwater.plan.root import TOLERANCE, Bracket, smallest_feasible
from cutwater.plan.tables import ClientTables, CutTables, undominated, without_server
from cutwater.plan.value import Plan, assemble

Leftover = Literal["lexicographic", "none"]

ROUNDING = 1e-11
"""What the lower bound gives away, relatively, to the rounding of sums over a million clients."""
MANY = 8192
"""From so many clients on, it pays to find out first which ones can need the server at all."""


def exact(problem: Problem, *, leftover: Leftover = "lexicographic") -> Plan:
    """The plan with the smallest round latency of all plans, and the proof.

    Once the bottleneck is fixed, part of the server may be left over. ``leftover="lexicographic"`` gives it
    to the rest so that the second slowest is done as early as possible, then the third, and so on;
    ``leftover="none"`` gives nobody more than it needs to be done with the bottleneck.
    """
    if leftover not in ("lexicographic", "none"):
        raise PlanError(f"leftover is {leftover!r}, but must be 'lexicographic' or 'none'")
    F = problem.server.compute
    alone, cuts, wires = without_server(problem)
    field = _Field.of(problem, alone)
    part = field.needy(F)
    found = _solve(part.table, F)
    target, needs = found.latency, part.table.alone
    while leftover == "lexicographic" and F > 0:
        target, needs = _lexicographic(part.table, found, F)
        if target >= part.others:
            break
        # What is left over reaches further down than the clients looked at so far.
        part = field.slowest(8 * len(part.clients))
        found = _solve(part.table, F)
    split, cell, share = _assign(part.table.with_alone(needs), field.by_cut, target, F)
    chosen, shares = part.clients[split], np.zeros(len(problem))
    cuts[chosen], wires[chosen], shares[chosen] = field.by_cut.cuts[cell], field.by_cut.wires[cell], share
    bound = found.lower_bound * (1 - ROUNDING)
    return assemble(problem, "exact", cuts, shares, wires=wires, lower_bound=bound, outcome="optimal")


def certified_bound(problem: Problem) -> float:
    """A latency that no plan for this problem can beat, within 1e-9 of the optimum."""
    field = _Field.of(problem, without_server(problem)[0])
    F = problem.server.compute
    return _solve(field.needy(F).table, F).lower_bound * (1 - ROUNDING)


@dataclass(frozen=True)
class _Part:
    """The slower clients of a problem, laid out for the inner loops."""

    clients: Ints
    table: ClientTables
    others: float
    """No other client's T̃ is above this."""


@dataclass(frozen=True)
class _Field:
    """All clients of a problem, of which tables are laid out only for those that matter."""

    problem: Problem
    alone: Floats
    by_cut: CutTables
    """All cells."""
    searched: CutTables
    """Those of them that can be the best for somebody, which is all that a search needs to look at."""

    @classmethod
    def of(cls, problem: Problem, alone: Floats) -> "_Field":
        """A problem's cells, and what its clients take without the server."""
        cells = CutTables.of(problem)
        return cls(problem, alone, cells, cells.only(undominated(problem, cells)))

    def slowest(self, count: int) -> _Part:
        """So many clients with the largest T̃."""
        if count >= len(self.alone):
            return self._part(np.arange(len(self.alone)), -np.inf)
        order = np.argpartition(self.alone, -count)
        return self._part(np.sort(order[-count:]), float(self.alone[order[:-count]].max()))

    def needy(self, F: float) -> _Part:
        """The clients that may need a share at the optimum; the others have T̃_k below it.

        The optimum of a few clients with the whole server for themselves is a lower bound of the optimum of
        all, so whoever is done alone by then needs nothing. The slowest few give the best bound.
        """
        if len(self.alone) < MANY or F == 0:
            return self.slowest(len(self.alone))
        bound = _solve(self.slowest(max(len(self.alone) // 64, 1)).table, F).lower_bound
        return self._part(np.flatnonzero(self.alone >= bound), bound)

    def _part(self, clients: Ints, others: float) -> _Part:
        return _Part(clients, ClientTables.of(self.problem, self.searched, self.alone, clients), others)


@dataclass(frozen=True)
class _Optimum:
    latency: float
    lower_bound: float
    shared: Bracket | None
    """The optimum among clients that the server can help at all, if there are any."""
    least: Floats
    """min over l of a_k(l): below this no share helps client k."""


def _solve(table: ClientTables, F: float) -> _Optimum:
    alone = table.alone
    if F == 0:
        slowest = float(alone.max())
        return _Optimum(slowest, slowest, None, np.full_like(alone, np.inf))
    least = np.empty_like(alone)
    cells, equal = table.by_cut, F / len(alone)
    ceiling = kernel.extremes(
        table.pattern, table.weights, alone, cells.rows, cells.turns, equal, least, table.seen
    )
    helped = alone > least
    slowest = float(alone.max(where=~helped, initial=0.0))
    if not helped.any():
        return _Optimum(slowest, slowest, None, least)
    floor = float(least.max(where=helped, initial=0.0))
    shared = _search(table.with_alone(np.where(helped, alone, -np.inf)), F, floor, ceiling)
    return _Optimum(max(slowest, shared.high), max(slowest, shared.low), shared, least)


def _search(table: ClientTables, F: float, floor: float, ceiling: float) -> Bracket:
    alone = table.alone
    jumps = np.sort(alone[(alone > floor) & (alone < ceiling)])
    return smallest_feasible(_Demand(table, F, floor), F, floor, ceiling, jumps)


class _Demand:
    """Σ need_k as a function of T, which drops the clients that can need nothing in the rest of a search."""

    def __init__(self, table: ClientTables, F: float, floor: float) -> None:
        self._F, self._table = F, table
        self._only_above(floor)

    def __call__(self, T: float) -> tuple[float, float]:
        table, cells = self._table, self._table.by_cut
        at, below = kernel.demand(
            T, table.pattern, table.weights, table.alone, cells.scaled, cells.rows, cells.turns, table.seen
        )
        if at > self._F:
            self._only_above(T)
        return float(at), float(below)

    def _only_above(self, T: float) -> None:
        """T is infeasible, so the search goes on above it, where clients with a smaller T̃ need nothing."""
        needy = self._table.alone >= T
        if 4 * np.count_nonzero(needy) < 3 * len(needy):
            self._table = self._table.take(needy)


def _lexicographic(table: ClientTables, found: _Optimum, F: float) -> tuple[float, Floats]:
    """The target of those that share the server in the end, and T̃ with everyone else marked as settled.

    Where the optimum is a jump, its client stays whole and leaves room on the server. The next slowest gets
    its turn, and so on down, until those that share use the server up (clients with equal T̃ in fleet order).
    """
    alone = np.where(table.alone > found.least, table.alone, -np.inf)
    if found.shared is None or not found.shared.jump:
        return -np.inf if found.shared is None else found.shared.high, alone
    T = found.shared.high
    split = np.empty(len(alone), dtype=np.int64)
    first = np.flatnonzero(alone > T)
    split[: first.size] = first
    rest = np.flatnonzero(np.isfinite(alone) & (alone <= T))
    order = rest[np.argsort(-alone[rest], kind="stable")]
    places = alone[order]
    cells = (table.by_cut.scaled, table.by_cut.rows, table.by_cut.turns, table.seen)
    count, visited = kernel.sweep(F, order, split, first.size, table.pattern, table.weights, alone, *cells)
    if visited == 0:
        return T, alone
    sharing = split[:count]
    alone = np.full_like(alone, -np.inf)
    alone[sharing] = np.inf
    ceiling = float(places[visited - 1])
    if not count:
        return (ceiling if visited < len(order) else -np.inf), alone
    floor = float(places[visited]) if visited < len(order) else float(found.least[sharing].max())
    return _search(table.with_alone(alone), F, floor, ceiling).high, alone


def _assign(table: ClientTables, cells: CutTables, target: float, F: float) -> tuple[Ints, Ints, Floats]:
    """Which clients are split at the target, in which of all cells, with which share.

    A client with hardly any time left for the server magnifies rounding, so the shares may add up to a trifle
    more than there is; a target that is a trifle later mends that for everyone.
    """
    index = np.empty(len(table.alone), dtype=np.int64)
    shares = np.empty(len(table.alone))
    trifle, searched = TOLERANCE / 2, table.by_cut
    clients = (table.pattern, table.weights, table.alone)
    looked_at = (searched.scaled, searched.rows, searched.turns)
    cut = np.searchsorted(np.unique(cells.cuts), searched.cuts)
    while True:
        kernel.assign(target, *clients, *looked_at, cut, table.seen, cells.rows, cells.turns, index, shares)
        if shares.sum() <= F:
            break
        target *= 1 + trifle
        trifle *= 2
    split = np.flatnonzero(index >= 0)
    return split, index[split], shares[split]
