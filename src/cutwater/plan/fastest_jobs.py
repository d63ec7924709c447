"""Several jobs on one server: the largest of their scaled round times made small, with a certificate.

Job j has a clock of its own: θ = c_j·T_j. With c_j its weight, θ is the weighted time of its round; with c_j
over the time that it would take with the server to itself, its slowdown. For a target θ, job j needs
D_j(θ/c_j) = Σ need_k of its clients, the smallest part of the server by which its round is done in time, so θ
is feasible exactly when

    Σ_j D_j(θ / c_j) ≤ F^max.

The sum falls as θ grows. The smallest feasible θ is the optimum over all cuts, wires and shares of all jobs,
and an infeasible θ just below it is the proof: the argument of :mod:`cutwater.plan.exact`, word for word.

Where that optimum is a jump (one client of job j stays whole), or where no share helps some client of job j,
job j can do no better and needs only D_j(θ/c_j): below θ, all jobs together need more than there is, and all
others need no less there than at θ. So job j is settled and the others go on with the rest, the slowest of
them as early as possible, and so on: the answer is the lexicographic optimum, in at most as many searches as
there are jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.plan.curve import Curve
from cutwater.plan.optimum import Field
from cutwater.plan.problem import Problem
from cutwater.plan.root import jumps_between, smallest_feasible


@dataclass(frozen=True)
class Fastest:
    """The optimum of some jobs with so much of a server."""

    value: float
    """θ."""
    lower: float
    """No allocation has a smaller one."""
    holder: int | None
    """The job that holds θ whatever more it gets; None where all that is there is used."""


@dataclass(frozen=True)
class Budgets:
    """How much of the server each job gets."""

    parts: tuple[float, ...]
    value: float
    """What is made small: θ, or the sum of weighted round times."""
    lower: float
    """No allocation has a smaller one."""


def curve_of(problem: Problem, F: float, scale: float = 1.0) -> Curve:
    """The curve of a job with a clock that runs so many times as fast."""
    if scale != 1.0:
        fleet = problem.fleet
        columns = {name: getattr(fleet, name) / scale for name in ("compute", "up", "down")}
        problem = problem.replace(clients=fleet.replace(**columns, rtt=fleet.rtt * scale))
    return Curve.of(Field.plain(problem).everyone, F, scale)


def fastest(curves: Sequence[Curve], F: float) -> Fastest:
    """The smallest θ by which all jobs can be done."""
    stuck = max(curve.stuck for curve in curves)
    helped = [curve for curve in curves if curve.helps]
    if not helped or F == 0:
        return _stuck(curves, stuck)
    floor = max(curve.floor for curve in helped)
    # Equal parts for all clients of a job, and for all jobs.
    ceiling = _ceiling(curves, F, floor)
    alone = np.concatenate([curve.alone for curve in helped])
    jumps = jumps_between(alone, floor, ceiling)

    def demand(T: float) -> tuple[float, float]:
        at, below = 0.0, 0.0
        for curve in helped:
            more = curve.demand(T)
            at, below = at + more[0], below + more[1]
        return at, below

    found = smallest_feasible(demand, F, floor, ceiling, jumps)
    if stuck >= found.high:
        return _stuck(curves, stuck)
    value, lower = max(stuck, found.high), max(stuck, found.low)
    # Where demand jumps, the first job whose need does holds it.
    jumper = next(j for j, curve in enumerate(curves) if (curve.alone == value).any()) if found.jump else None
    return Fastest(value, lower, jumper)


def _stuck(curves: Sequence[Curve], stuck: float) -> Fastest:
    return Fastest(stuck, stuck, next(j for j, curve in enumerate(curves) if curve.stuck == stuck))


def _ceiling(curves: Sequence[Curve], F: float, floor: float) -> float:
    """A θ that is feasible: some is, where every job's equal part of the server is enough for it."""
    ceiling = max(floor, *(curve.ceiling for curve in curves))
    while sum(curve.demand(ceiling)[0] for curve in curves) > F:
        # A ceiling is for the whole server; a part of it takes at most so many times as long.
        ceiling *= 2
    return ceiling


def share_out(curves: Sequence[Curve], F: float) -> Budgets:
    """The lexicographic optimum: what each job gets, and the certificate of the slowest."""
    left, open_ = F, list(range(len(curves)))
    parts = [0.0] * len(curves)
    first: Fastest | None = None
    while open_:
        active = [curves[j] for j in open_]
        found = fastest(active, left)
        first = first or found
        if found.holder is None:
            needed = [curve.demand(found.value)[0] for curve in active]
            for j, need in zip(open_, needed, strict=True):
                parts[j] = need * (left / sum(needed))
            break
        if len(open_) == 1:
            parts[open_[0]] = left
            break
        j = open_.pop(found.holder)
        parts[j] = min(curves[j].demand(found.value)[0], left)
        left -= parts[j]
    assert first is not None
    return Budgets(tuple(parts), first.value, first.lower)
