"""What a whole job needs of the server to have its round done by T: D(T) = Σ need_k(T).

The curve falls as T grows, with a jump at every T̃_k, where client k stops needing a share. It is all that a
server with several jobs has to know of one of them (:mod:`cutwater.plan.fastest_jobs` and
:mod:`cutwater.plan.sum_of_jobs`).
"""

from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.plan.optimum import Field
from cutwater.plan.problem import Problem
from cutwater.plan.tables import ClientTables


@dataclass(frozen=True)
class Curve:
    """D(T) of one job, with its time measured in a unit of its own: T stands for ``scale`` times the seconds.

    A fleet whose devices and links are slower by ``scale`` takes ``scale`` times as long with shares that are
    smaller by as much. So the curve of the slower fleet, times ``scale``, is the job's own over the longer
    time, and jumps lie at numbers that are exact in that unit.
    """

    scale: float
    table: ClientTables
    """Those that the server can help; T̃ of the others is minus infinity: they need nothing."""
    least: Floats
    """min over l of a_k(l): below this no share helps client k."""
    stuck: float
    """The largest T̃ of a client that no share helps; 0 if there is none."""
    floor: float
    """The largest ``least`` of a client that the server can help: D is infinite there; 0 if there is none."""
    ceiling: float
    """The job is done by then if every client has an equal part of the server."""
    convex: bool
    """Whether 1/need_k is convex in T, as it is where all steps go in turn: the largest of straight lines."""

    @classmethod
    def of(cls, problem: Problem, F: float, scale: float = 1.0) -> "Curve":
        """The curve of a problem's fleet, of which equal parts of F are one way to be done."""
        slower = problem if scale == 1.0 else _slower(problem, scale)
        table = Field.plain(slower).everyone
        alone, cells = table.alone, table.by_cut
        if F == 0:
            settled = np.full_like(alone, -np.inf)
            slowest = float(alone.max())
            return cls(scale, table.with_alone(settled), alone, slowest, 0.0, slowest, convex=True)
        ceiling, least = table.extremes(F / len(problem) / scale)
        helped = alone > least
        return cls(
            scale,
            table.with_alone(np.where(helped, alone, -np.inf)),
            least,
            float(alone.max(where=~helped, initial=0.0)),
            float(least.max(where=helped, initial=0.0)),
            ceiling,
            convex=cells.turns == len(cells.cuts),
        )

    @property
    def alone(self) -> Floats:
        """T̃ of those that the server can help."""
        return self.table.alone

    @property
    def last(self) -> float:
        """From here on, the job needs nothing."""
        return max(self.stuck, float(self.alone.max(initial=0.0)))

    def demand(self, T: float) -> tuple[float, float]:
        """D at T, and just below it; the two differ where T is a jump."""
        at, below = self.table.demand(T)
        return self.scale * at, self.scale * below

    def needs(self, T: float) -> Floats:
        """need_k of every client just below T."""
        return self.scale * self.table.needs(T, done=T)


def _slower(problem: Problem, scale: float) -> Problem:
    fleet = problem.fleet
    columns = {"compute": fleet.compute / scale, "up": fleet.up / scale, "down": fleet.down / scale}
    return problem.replace(clients=fleet.replace(**columns, rtt=fleet.rtt * scale))
