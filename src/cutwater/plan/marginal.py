"""First-order values at a plan: what one more unit of server compute, or one second less on a client, saves.

All clients that share the server finish together at T, each at the share that it needs for that. With x = 1/f
and w_k = x·dT_k/dx, the seconds of client k that shrink in proportion as its share grows (its time on the
server, or less of it where parts overlap), and q_k = f_k / w_k,

    dT/dF = -1 / Σ q_k        dT/da_k = q_k / Σ q_k,

where a_k is anything that adds to T_k at the same share. Both hold while cuts, wires and groups stay as they
are. A client with w_k = 0 is one that no share would help.
"""

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan.latency import Phases, latency
from cutwater.plan.problem import Problem

TOGETHER = 1e-6
"""Clients whose latencies differ by less, relatively, finish together."""
_NEARBY = 1e-6
"""A session is a straight line in x nearly everywhere: differences are derivatives but for rounding."""
_ROUNDING = 1e-14
"""Of a latency: what a difference of two of them may be by rounding alone."""


def finish_last(latencies: Floats) -> Bools:
    """Whose session ends with the round: the slowest, and whoever finishes together with it."""
    last: Bools = latencies >= latencies.max() * (1 - TOGETHER)
    return last


def marginal(latencies: Floats, shares: Floats, waits: Floats) -> tuple[float, Floats]:
    """-dT/dF in seconds per FLOPS, and dT/da_k for every client, from its latency, share and w_k."""
    last = finish_last(latencies)
    stuck = last & (waits == 0)
    effect = np.zeros(len(latencies))
    if stuck.any():
        # A client that no share would help holds the round: of two such no one alone can shorten it.
        if np.count_nonzero(stuck) == 1:
            effect[stuck] = 1.0
        return 0.0, effect
    q = np.divide(shares, waits, out=effect, where=last)
    return float(1 / q.sum()), q / q.sum()


def waits(problem: Problem, phases: Phases[Floats], cuts: Ints, shares: Floats, wires: Ints) -> Floats:
    """w_k of every client."""
    found: Floats = phases.server
    some = np.flatnonzero(phases.overlap > 0)
    if not some.size:
        return found
    # A plan may be a trifle off where a line ends, so that the slope is taken beyond that.
    near, far = (
        latency(problem, cuts[some], shares[some] / (1 - nearby), some, wires[some])
        for nearby in (_NEARBY, 2 * _NEARBY)
    )
    found[some] = np.where(near - far > _ROUNDING * near, (near - far) / _NEARBY, 0.0)
    return found
