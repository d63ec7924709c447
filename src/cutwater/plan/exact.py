"""The exact planner: the global optimum of the paper's mixed-integer problem (21), with a certificate.

Fix a target T. The smallest share that has client k done by T is

    need_k(T) = 0                                               if T̃_k ≤ T (no share at all)
              = min over allowed l < L with a_k(l) < T of s_k(l) / (T - a_k(l))   otherwise,

so T is feasible exactly when Σ need_k(T) ≤ F^max. The sum falls as T grows: the smallest feasible T is the
optimum, and an infeasible T just below it proves that. No regression, no alternation, O(K·L) for each step.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cutwater.errors import PlanError
from cutwater.plan import kernel
from cutwater.plan.fleet import Floats, Ints
from cutwater.plan.problem import Problem
from cutwater.plan.root import Bracket, smallest_feasible
from cutwater.plan.tables import Tables, tables
from cutwater.plan.value import Plan, assemble

Leftover = Literal["lexicographic", "none"]

ROUNDING = 1e-11
"""What the lower bound gives away, relatively, to the rounding of sums over a million clients."""


def exact(problem: Problem, *, leftover: Leftover = "lexicographic") -> Plan:
    """The plan with the smallest round latency of all plans, and the proof.

    Once the bottleneck is fixed, part of the server may be left over. ``leftover="lexicographic"`` gives it
    to the rest so that the second slowest is done as early as possible, then the third, and so on;
    ``leftover="none"`` gives nobody more than it needs to be done with the bottleneck.
    """
    if leftover not in ("lexicographic", "none"):
        raise PlanError(f"leftover is {leftover!r}, but must be 'lexicographic' or 'none'")
    table = tables(problem)
    found = _solve(table, problem.server.compute)
    if leftover == "lexicographic":
        target, alone = _lexicographic(table, found, problem.server.compute)
    else:
        target, alone = found.latency, table.alone
    cuts, shares = _assign(table, target, alone, problem.server.compute)
    bound = found.lower_bound * (1 - ROUNDING)
    return assemble(problem, "exact", cuts, shares, lower_bound=bound, outcome="optimal")


def certified_bound(problem: Problem) -> float:
    """A latency that no plan for this problem can beat, within 1e-9 of the optimum."""
    return _solve(tables(problem), problem.server.compute).lower_bound * (1 - ROUNDING)


@dataclass(frozen=True)
class _Optimum:
    latency: float
    lower_bound: float
    shared: Bracket | None
    """The optimum among clients that the server can help at all, if there are any."""
    least: Floats
    """min over l of a_k(l): below this no share helps client k."""


def _solve(table: Tables, F: float) -> _Optimum:
    if F == 0:
        slowest = float(table.alone.max())
        return _Optimum(slowest, slowest, None, np.full_like(table.alone, np.inf))
    least = np.empty_like(table.alone)
    ceiling = kernel.extremes(
        table.pattern, table.weights, table.alone, table.rows, F / len(table.alone), least
    )
    helped = table.alone > least
    slowest = float(table.alone.max(where=~helped, initial=0.0))
    if not helped.any():
        return _Optimum(slowest, slowest, None, least)
    floor = float(least.max(where=helped, initial=0.0))
    alone = np.where(helped, table.alone, -np.inf)
    shared = _search(table, alone, F, floor, ceiling)
    return _Optimum(max(slowest, shared.high), max(slowest, shared.low), shared, least)


def _search(table: Tables, alone: Floats, F: float, floor: float, ceiling: float) -> Bracket:
    jumps = np.sort(alone[(alone > floor) & (alone < ceiling)])
    return smallest_feasible(_Demand(table, alone, F, floor), F, floor, ceiling, jumps)


class _Demand:
    """Σ need_k as a function of T, which drops the clients that can need nothing in the rest of a search."""

    def __init__(self, table: Tables, alone: Floats, F: float, floor: float) -> None:
        self._F, self._scaled = F, table.scaled
        self._columns = (table.pattern, table.weights, alone)
        self._only_above(floor)

    def __call__(self, T: float) -> tuple[float, float]:
        at, below = kernel.demand(T, *self._columns, self._scaled)
        if at > self._F:
            self._only_above(T)
        return float(at), float(below)

    def _only_above(self, T: float) -> None:
        """T is infeasible, so the search goes on above it, where clients with a smaller T̃ need nothing."""
        needy = self._columns[2] >= T
        if 4 * np.count_nonzero(needy) < 3 * len(needy):
            pattern, weights, alone = self._columns
            self._columns = (pattern[needy], weights[needy], alone[needy])


def _lexicographic(table: Tables, found: _Optimum, F: float) -> tuple[float, Floats]:
    """The target of those that share the server in the end, and T̃ with everyone else marked as settled.

    Where the optimum is a jump, its client stays whole and leaves room on the server. The next slowest gets
    its turn, and so on down, until those that share use the server up (clients with equal T̃ in fleet order).
    """
    alone = np.where(table.alone > found.least, table.alone, -np.inf)
    if found.shared is None or not found.shared.jump:
        return found.latency if found.shared is None else found.shared.high, alone
    T = found.shared.high
    split = np.empty(len(alone), dtype=np.int64)
    first = np.flatnonzero(alone > T)
    split[: first.size] = first
    rest = np.flatnonzero(np.isfinite(alone) & (alone <= T))
    order = rest[np.argsort(-alone[rest], kind="stable")]
    places = alone[order]
    count, visited = kernel.sweep(
        F, order, split, first.size, table.pattern, table.weights, alone, table.scaled
    )
    if visited == 0:
        return T, alone
    sharing = split[:count]
    alone = np.full_like(alone, -np.inf)
    alone[sharing] = np.inf
    ceiling = float(places[visited - 1])
    if not count:
        return ceiling, alone
    floor = float(places[visited]) if visited < len(order) else float(found.least[sharing].max())
    return _search(table, alone, F, floor, ceiling).high, alone


def _assign(table: Tables, target: float, alone: Floats, F: float) -> tuple[Ints, Floats]:
    index = np.empty(len(alone), dtype=np.int64)
    shares = np.empty(len(alone))
    kernel.assign(target, table.pattern, table.weights, alone, table.rows, index, shares)
    split = index >= 0
    cuts = table.alone_cut.copy()
    cuts[split] = table.cuts[index[split]]
    used = float(shares.sum())
    # Shares that fill the server exactly may add up to a rounding error more than it has.
    return cuts, shares * (F / used) if used > F else shares
