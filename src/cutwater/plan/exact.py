"""The exact planner: the global optimum of the paper's mixed-integer problem (21), with a certificate.

Fix a target T. The smallest share that has client k done by T is

    need_k(T) = 0                                               if T̃_k ≤ T (no share at all)
              = min over allowed l < L with a_k(l) < T of s_k(l) / (T - a_k(l))   otherwise,

so T is feasible exactly when Σ need_k(T) ≤ F^max. The sum falls as T grows: the smallest feasible T is the
optimum, and an infeasible T just below it proves that. No regression, no alternation, O(K·L) for each step.

Nothing of this depends on what the options of a client are, as long as more of the server is never slower. So
an option may as well be a cut, or a pair of cuts, and a wire (schedule and codecs): the minimum goes over all
of them, and where the parts of a step overlap, the smallest share of an option is the root of a convex
function (:mod:`cutwater.plan.kernel`) in place of a quotient. The optimum is the global one over all options.

Where links are shared, their rates are planned first (:mod:`cutwater.plan.shared_links`), with an interval
that holds the optimum; the plan under these rates is then the exact one.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.plan import kernel
from cutwater.plan.optimum import Field, Optimum, search, solve
from cutwater.plan.problem import Problem
from cutwater.plan.root import TOLERANCE
from cutwater.plan.shared_links import Rates, share_links
from cutwater.plan.tables import ClientTables, CutTables, without_server
from cutwater.plan.value import Plan, assemble

Leftover = Literal["lexicographic", "none"]

ROUNDING = 1e-11
"""What the lower bound gives away, relatively, to the rounding of sums over a million clients."""
ALIKE = 1e-9
"""Plans that differ by less, relatively, are equally fast."""


def exact(problem: Problem, *, leftover: Leftover = "lexicographic") -> Plan:
    """The plan with the smallest round latency of all plans, and the proof.

    Once the bottleneck is fixed, part of the server may be left over. ``leftover="lexicographic"`` gives it
    to the rest so that the second slowest is done as early as possible, then the third, and so on;
    ``leftover="none"`` gives nobody more than it needs to be done with the bottleneck.
    """
    if leftover not in ("lexicographic", "none"):
        raise PlanError(f"leftover is {leftover!r}, but must be 'lexicographic' or 'none'")
    if problem.band.shared:
        return _with_rates(problem, share_links(problem), leftover)
    F = problem.server.compute
    alone, cuts, wires = without_server(problem)
    field = Field.of(problem, alone)
    part = field.needy(F)
    found = solve(part.table, F)
    target, needs = found.latency, part.table.alone
    while leftover == "lexicographic" and F > 0:
        target, needs = _lexicographic(part.table, found, F)
        if target >= part.others:
            break
        # What is left over reaches further down than the clients looked at so far.
        part = field.slowest(8 * len(part.clients))
        found = solve(part.table, F)
    split, cell, share = _assign(part.table.with_alone(needs), field.by_cut, target, F)
    chosen, shares = part.clients[split], np.zeros(len(problem))
    cuts[chosen], wires[chosen], shares[chosen] = field.by_cut.cuts[cell], field.by_cut.wires[cell], share
    bound = found.lower_bound * (1 - ROUNDING)
    first, second = problem.places.cuts(cuts)
    return assemble(
        problem, "exact", first, shares, second_cuts=second, wires=wires, lower_bound=bound, outcome="optimal"
    )


def _with_rates(problem: Problem, rates: Rates, leftover: Leftover) -> Plan:
    """The plan under rates that were planned: of what they leave to choose, the optimum."""
    plan = exact(problem.at_rates(rates.up, rates.down), leftover=leftover)
    bound = min(rates.lower_bound * (1 - ROUNDING), plan.latency)
    near = plan.latency <= bound * (1 + ALIKE)
    return replace(
        plan,
        problem=problem,
        rates=(rates.up, rates.down),
        lower_bound=bound,
        outcome="optimal" if near else "within an interval",
    )


def certified_bound(problem: Problem) -> float:
    """A latency that no plan for this problem can beat, within 1e-9 of the optimum.

    Where links are shared, it is the lower end of the interval.
    """
    if problem.band.shared:
        return share_links(problem).lower_bound * (1 - ROUNDING)
    field = Field.plain(problem)
    F = problem.server.compute
    return solve(field.needy(F).table, F).lower_bound * (1 - ROUNDING)


def _lexicographic(table: ClientTables, found: Optimum, F: float) -> tuple[float, Floats]:
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
    count, visited = kernel.sweep(F, order, split, first.size, table.with_alone(alone).laid_out)
    if visited == 0:
        return T, alone
    sharing = split[:count]
    alone = np.full_like(alone, -np.inf)
    alone[sharing] = np.inf
    ceiling = float(places[visited - 1])
    if not count:
        return (ceiling if visited < len(order) else -np.inf), alone
    floor = float(places[visited]) if visited < len(order) else float(found.least[sharing].max())
    return search(table.with_alone(alone), F, floor, ceiling).high, alone


def _assign(table: ClientTables, cells: CutTables, target: float, F: float) -> tuple[Ints, Ints, Floats]:
    """Which clients are split at the target, in which of all cells, with which share.

    A client with hardly any time left for the server magnifies rounding, so the shares may add up to a trifle
    more than there is; a target that is a trifle later mends that for everyone.
    """
    index = np.empty(len(table.alone), dtype=np.int64)
    shares = np.empty(len(table.alone))
    trifle, every = TOLERANCE / 2, np.unique(cells.cuts)
    among = (np.searchsorted(every, table.by_cut.cuts), len(every), cells.rows, cells.turns)
    while True:
        kernel.assign(target, table.laid_out, *among, index, shares)
        if shares.sum() <= F:
            break
        target *= 1 + trifle
        trifle *= 2
    split = np.flatnonzero(index >= 0)
    return split, index[split], shares[split]
