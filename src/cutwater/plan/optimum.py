"""The smallest feasible T of a problem, and the proof: what the exact planner makes its plan at.

Which clients matter, what their needs add up to, and where that meets the server's compute; see
:mod:`cutwater.plan.exact` for why that is the optimum.
"""

from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.plan.curve import Curve
from cutwater.plan.problem import Problem
from cutwater.plan.root import Bracket, jumps_between, smallest_feasible
from cutwater.plan.shared_links import CLOSE, share_links
from cutwater.plan.tables import ClientTables, CutTables, undominated, without_server

MANY = 8192
"""From so many clients on, it pays to find out first which ones can need the server at all."""
MOST_SHARED = 50
"""Clients that share links and of which much is planned anew to tell what changes are worth."""
WORTH = 1e-9
"""Of the round: what a change must save to be worth anything. Less is lost in the rounding of large sums."""


def optimum(problem: Problem) -> float:
    """The smallest round latency of all plans; where links are shared, that under the rates planned."""
    return interval(problem)[1]


def interval(problem: Problem) -> tuple[float, float]:
    """A round latency that no plan is below, and one that a plan has; the same where no links are shared."""
    if not problem.band.shared:
        found = _of_own_links(problem)
        return found, found
    rates = share_links(problem)
    found = _of_own_links(problem.at_rates(rates.up, rates.down))
    return min(rates.lower_bound, found), found


def _of_own_links(problem: Problem) -> float:
    return Field.plain(problem).optimum(problem.server.compute)


def noise(problem: Problem) -> float:
    """Of the round: two optima that differ by less may be the same."""
    return 2 * CLOSE if problem.band.shared else WORTH


def refuse_shared(problem: Problem, what: str) -> None:
    """Refuse what is not told where links are shared."""
    if problem.band.shared:
        raise PlanError(f"{what} is not told where links are shared: leave out [uplink] and [downlink]")


@dataclass(frozen=True)
class SlowestClients:
    """The slower clients of a problem, laid out for the inner loops."""

    clients: Ints
    table: ClientTables
    others: float
    """No other client's T̃ is above this."""


@dataclass(frozen=True)
class Field:
    """All clients of a problem, of which tables are laid out only for those that matter."""

    problem: Problem
    alone: Floats
    by_cut: CutTables
    """All cells."""
    searched: CutTables
    """Those of them that can be the best for somebody, which is all that a search needs to look at."""

    @classmethod
    def of(cls, problem: Problem, alone: Floats) -> "Field":
        """A problem's cells, and what its clients take without the server."""
        cells = CutTables.of(problem)
        return cls(problem, alone, cells, cells.only(undominated(problem, cells)))

    @classmethod
    def plain(cls, problem: Problem) -> "Field":
        """The same from the problem alone."""
        return cls.of(problem, without_server(problem)[0])

    def optimum(self, F: float) -> float:
        """The smallest round latency of all plans with a server of so much compute."""
        return solve(self.needy(F).table, F).latency

    @property
    def everyone(self) -> ClientTables:
        """All clients, laid out."""
        return self.slowest(len(self.alone)).table

    def slowest(self, count: int) -> SlowestClients:
        """So many clients with the largest T̃."""
        if count >= len(self.alone):
            return self._part(np.arange(len(self.alone)), -np.inf)
        order = np.argpartition(self.alone, -count)
        return self._part(np.sort(order[-count:]), float(self.alone[order[:-count]].max()))

    def needy(self, F: float) -> SlowestClients:
        """The clients that may need a share at the optimum; the others have T̃_k below it.

        The optimum of a few clients with the whole server for themselves is a lower bound of the optimum of
        all, so whoever is done alone by then needs nothing. The slowest few give the best bound.
        """
        if len(self.alone) < MANY or F == 0:
            return self.slowest(len(self.alone))
        bound = solve(self.slowest(max(len(self.alone) // 64, 1)).table, F).lower_bound
        return self._part(np.flatnonzero(self.alone >= bound), bound)

    def _part(self, clients: Ints, others: float) -> SlowestClients:
        return SlowestClients(
            clients, ClientTables.of(self.problem, self.searched, self.alone, clients), others
        )


@dataclass(frozen=True)
class Optimum:
    """The smallest feasible T, and what proves it."""

    latency: float
    lower_bound: float
    shared: Bracket | None
    """The optimum among clients that the server can help at all, if there are any."""
    least: Floats
    """min over l of a_k(l): below this no share helps client k; T̃ of all where there is no server."""


def solve(table: ClientTables, F: float) -> Optimum:
    """The optimum of some clients with so much of the server."""
    curve = Curve.of(table, F)
    if not curve.helps:
        return Optimum(curve.stuck, curve.stuck, None, curve.least)
    shared = search(curve.table, F, curve.floor, curve.ceiling)
    return Optimum(max(curve.stuck, shared.high), max(curve.stuck, shared.low), shared, curve.least)


def search(table: ClientTables, F: float, floor: float, ceiling: float) -> Bracket:
    """The smallest T between two that these clients can all be done by."""
    jumps, left = jumps_between(table.alone, floor, ceiling), table

    def only_above(T: float) -> None:
        """T is infeasible, so the search goes on above it, where clients with a smaller T̃ need nothing."""
        nonlocal left
        needy = left.alone >= T
        if 4 * np.count_nonzero(needy) < 3 * len(needy):
            left = left.take(needy)

    def demand(T: float) -> tuple[float, float]:
        at, below = left.demand(T)
        if at > F:
            only_above(T)
        return at, below

    only_above(floor)
    return smallest_feasible(demand, F, floor, ceiling, jumps)
