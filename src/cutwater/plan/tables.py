"""A problem as the few arrays that the exact planner's inner loops run over.

With the weights of client k,

    link = 1/up + 1/down,  on_client = N/f^C,  on_up = N/up,  on_down = N/down,

what no share of the server can shorten is a_k(l) = link·bits + on_client·client + on_up·smashed +
on_down·gradient, four products with rows that only depend on the cut.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cutwater.plan.fleet import Floats, Ints
from cutwater.plan.problem import Problem


@dataclass(frozen=True)
class Tables:
    """The arrays of one problem."""

    cuts: Ints
    """The cuts that leave work to the server."""
    rows: Floats
    """Patterns × 5 × cuts: bits (infinite where forbidden), client, smashed, gradient, server."""
    scaled: Floats
    """Patterns × 5 × cuts: 1, bits, client, smashed, gradient, all over server; zeros where forbidden.

    Then N / max over l of (T·scaled[0] - weights·scaled[1:]) is need_k(T): the smallest share that has client
    k done by T is found without a division for each cut, and a forbidden cut never wins.
    """
    pattern: NDArray[np.int64]
    weights: Floats
    """Clients × 5: link, on_client, on_up, on_down, N."""
    alone: Floats
    """T̃_k: the best latency without any share; infinite if the client can't do without."""
    alone_cut: Ints
    """The cut that ``alone`` is for; 0 where it is infinite."""


def tables(problem: Problem) -> Tables:
    """Lay a problem out for the inner loops."""
    costs, fleet, work = problem.costs, problem.fleet, problem.work
    busy = np.flatnonzero(costs.server > 0)
    masks = problem.allowed.masks[:, busy]
    columns = (costs.bits, costs.client, costs.smashed, costs.gradient, costs.server)
    plain = np.array([column[busy] for column in columns])
    rows = np.repeat(plain[None], len(masks), axis=0)
    rows[:, 0][~masks] = np.inf
    scaled = np.repeat(
        (np.concatenate([np.ones((1, busy.size)), plain[:4]]) / plain[4])[None], len(masks), axis=0
    )
    scaled[np.broadcast_to(~masks[:, None], scaled.shape)] = 0.0
    weights = np.empty((len(problem), 5))
    weights[:, 0] = 1 / fleet.up + 1 / fleet.down
    weights[:, 1] = work / fleet.compute
    weights[:, 2] = work / fleet.up
    weights[:, 3] = work / fleet.down
    weights[:, 4] = work
    alone, alone_cut = _without_server(problem, weights)
    return Tables(busy + 1, rows, scaled, problem.allowed.of, weights, alone, alone_cut)


def _without_server(problem: Problem, weights: Floats) -> tuple[Floats, Ints]:
    """T̃_k and its cut: eq. (19), or a cut whose remaining layers cost no FLOPs, where that is quicker."""
    costs = problem.costs
    best = np.full(len(problem), np.inf)
    cut = np.zeros(len(problem), dtype=np.int64)
    for i in np.flatnonzero(costs.server == 0)[::-1]:
        amounts = np.array([costs.bits[i], costs.client[i], costs.smashed[i], costs.gradient[i], 0.0])
        latency = weights @ amounts
        better = problem.allowed.at(int(i) + 1) & (latency < best)
        best[better], cut[better] = latency[better], i + 1
    return best, cut
