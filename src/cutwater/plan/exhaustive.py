"""Every combination of cuts: an oracle for tiny problems that shares no code with the exact planner."""

from itertools import product

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.base.errors import PlanError
from cutwater.plan.latency import before_server, server_work
from cutwater.plan.problem import Problem
from cutwater.plan.value import Plan, assemble

LIMIT = 300_000
"""Combinations of cuts; more would take minutes."""


def exhaustive(problem: Problem, /) -> Plan:
    """The best of all combinations of cuts, each with its best shares."""
    sizes = problem.allowed.masks.sum(axis=1)[problem.allowed.of]
    digits = float(np.log10(sizes).sum())
    if digits > np.log10(LIMIT) + 1e-9:
        raise PlanError(
            f"exhaustive tries at most {LIMIT:,} combinations of cuts, not 10^{digits:.0f}: use exact"
        )
    combinations = np.array(list(product(*(problem.allowed.cuts(k) for k in range(len(problem))))))
    before, work = before_server(problem, combinations), server_work(problem, combinations)
    latency = _smallest_latency(before, work, problem.server.compute)
    best = int(latency.argmin())
    split = work[best] > 0
    shares = np.zeros(len(problem))
    # Bisection ends a rounding error above or below the root.
    left = np.maximum(latency[best] - before[best][split], np.spacing(latency[best]))
    shares[split] = work[best][split] / left
    shares *= min(1.0, problem.server.compute / max(float(shares.sum()), 1e-300))
    outcome = f"best of {len(combinations)} combinations"
    first, second = problem.places.cuts(combinations[best])
    return assemble(problem, "exhaustive", first, shares, second_cuts=second, outcome=outcome)


def _smallest_latency(before: Floats, work: Floats, F: float) -> Floats:
    """For each row of cuts, the smallest T with Σ s_k / (T - a_k) ≤ F, by bisection."""
    split = work > 0
    low: Floats = before.max(axis=1)
    if F == 0:
        return np.where(split.max(axis=1), np.inf, low)
    with np.errstate(over="ignore"):
        high: Floats = (before + work * work.shape[1] / F).max(axis=1)
    for _ in range(100):
        middle = 0.5 * (low + high)
        left = middle[:, None] - before
        need = np.divide(work, left, out=np.where(split, np.inf, 0.0), where=split & (left > 0))
        feasible = need.sum(axis=1) <= F
        low[~feasible], high[feasible] = middle[~feasible], middle[feasible]
    return high
