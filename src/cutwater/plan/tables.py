"""A problem as the few arrays that the exact planner's inner loops run over.

With the weights of client k,

    link = 1/up + 1/down,  on_client = N/f^C,  on_up = N/up,  on_down = N/down,  once = 1/down,

what no share of the server can shorten is a_k(l) = link·bits + on_client·client + on_up·smashed +
on_down·gradient + once·fixed, five products with rows that only depend on the cut, and on which fixed weights
a client holds already.
"""

from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan.latency import latency
from cutwater.plan.problem import Problem


@dataclass(frozen=True)
class CutTables:
    """What depends on the cut alone, once for each pattern of allowed cuts."""

    cuts: Ints
    """The cuts that leave work to the server."""
    rows: Floats
    """Patterns × 6 × cuts: bits (infinite where forbidden), client, smashed, gradient, server, fixed."""
    scaled: Floats
    """Patterns × 6 × cuts: 1, bits, client, smashed, gradient, fixed, all over server; 0 where forbidden.

    Then N / max over l of (T·scaled[0] - weights·scaled[1:]) is need_k(T): the smallest share that has client
    k done by T is found without a division for each cut, and a forbidden cut never wins.
    """

    @classmethod
    def of(cls, problem: Problem) -> "CutTables":
        """Lay out the costs of a problem's cuts."""
        costs = problem.costs
        busy = np.flatnonzero(costs.server > 0)
        masks = problem.allowed.masks[:, busy]
        columns = (costs.bits, costs.client, costs.smashed, costs.gradient, costs.server)
        plain = np.array([column[busy] for column in columns])
        rows = np.empty((len(masks), 6, busy.size))
        rows[:, :5] = plain
        rows[:, 0][~masks] = np.inf
        rows[:, 5] = costs.once_after(busy, problem.allowed.holds[:, None])
        scaled = np.empty_like(rows)
        scaled[:, 0] = 1 / plain[4]
        scaled[:, 1:5] = plain[:4] / plain[4]
        scaled[:, 5] = rows[:, 5] / plain[4]
        scaled[np.broadcast_to(~masks[:, None], scaled.shape)] = 0.0
        return cls(busy + 1, rows, scaled)


@dataclass(frozen=True)
class ClientTables:
    """Some clients of a problem, beside the cuts."""

    by_cut: CutTables
    pattern: Ints
    weights: Floats
    """Clients × 6: link, on_client, on_up, on_down, N, once."""
    alone: Floats
    """T̃_k: the best latency without any share; infinite if the client can't do without."""

    @classmethod
    def of(cls, problem: Problem, by_cut: CutTables, alone: Floats, clients: Ints) -> "ClientTables":
        """Lay out some of the clients; ``alone`` is for all of them."""
        fleet, work = problem.fleet, problem.work[clients]
        up, down = fleet.up[clients], fleet.down[clients]
        weights = np.empty((len(work), 6))
        weights[:, 0] = 1 / up + 1 / down
        weights[:, 1] = work / fleet.compute[clients]
        weights[:, 2] = work / up
        weights[:, 3] = work / down
        weights[:, 4] = work
        weights[:, 5] = 1 / down
        return cls(by_cut, problem.allowed.of[clients], weights, alone[clients])

    def take(self, clients: Ints | Bools) -> "ClientTables":
        """Some of these clients."""
        return ClientTables(self.by_cut, self.pattern[clients], self.weights[clients], self.alone[clients])

    def with_alone(self, alone: Floats) -> "ClientTables":
        """The same clients with other T̃, by which a search marks what it has settled."""
        return ClientTables(self.by_cut, self.pattern, self.weights, alone)


def without_server(problem: Problem) -> tuple[Floats, Ints]:
    """T̃_k and its cut: eq. (19), or a cut whose remaining layers cost no FLOPs, where that is quicker.

    Infinite, and cut 0, for a client that can't do without the server.
    """
    best = np.full(len(problem), np.inf)
    cuts = np.zeros(len(problem), dtype=np.int64)
    for cut in np.flatnonzero(problem.costs.server == 0)[::-1] + 1:
        seconds = latency(problem, cut, 0.0)
        better = problem.allowed.at(int(cut)) & (seconds < best)
        best[better], cuts[better] = seconds[better], cut
    return best, cuts
