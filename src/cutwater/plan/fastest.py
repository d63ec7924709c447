"""Which n of K clients make the fastest round, exactly.

By T, some n clients can be done exactly when the n smallest needs at T (:mod:`cutwater.plan.exact`) add up to
no more than the server has. That sum falls as T grows, so the smallest such T is found by bisection, and the
n clients with the smallest needs there are the fastest choice of all.
"""

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.plan.optimum import Field, refuse_shared
from cutwater.plan.problem import Problem
from cutwater.plan.root import TOLERANCE


def fastest(problem: Problem, count: int) -> Ints:
    """The places of so many clients whose round together is the shortest, in the fleet's order.

    Of clients that need the same, those that are quicker by themselves come first, then in fleet order.
    """
    if not 1 <= count <= len(problem):
        raise PlanError(f"{count} clients are to be chosen, but the fleet has {len(problem)}")
    refuse_shared(problem, "the fastest choice of clients")
    field = Field.plain(problem)
    table, F = field.everyone, problem.server.compute

    def least(T: float) -> Floats:
        return np.partition(table.needs(T), count - 1)[:count]

    # The round of all clients is one that any choice of them can keep.
    low, high = 0.0, field.optimum(F)
    while high - low > TOLERANCE * high:
        middle = 0.5 * (low + high)
        if least(middle).sum() <= F:
            high = middle
        else:
            low = middle
    chosen = np.lexsort((table.alone, table.needs(high)))[:count]
    return np.sort(chosen)
