"""Shares of the server for given cuts: problem (32), solved by the root of eq. (36) for T_θ.

The paper hands this to "the CVX tool"; it is one root of a falling function of one variable.
"""

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.plan.root import jumps_between, smallest_feasible


def allocate(before: Floats, work: Floats, alone: Floats, F: float) -> tuple[float, Floats]:
    """T_θ and the shares of eq. (35).

    ``before`` is a_k and ``work`` is s_k at each client's cut; ``alone`` is T̃_k, infinite for a client that
    may not train the whole model. Clients with T̃_k ≤ T_θ are on FedAvg and get nothing; so θ, the first SFL
    client in ascending order of T̃, is K - count + 1 for a count of non-zero shares (the paper's step 8 says
    count). A client without work for the server (cut L) is done at ``before`` whatever it gets.
    """
    none = np.zeros_like(before)
    idle = work == 0
    useless = ~idle & (alone <= before)
    slowest = max(before.max(where=idle, initial=0.0), alone.max(where=useless, initial=0.0))
    active = np.flatnonzero(~idle & ~useless)
    if not active.size:
        return float(slowest), none
    a, s, t = before[active], work[active], alone[active]
    if F == 0:
        return float(max(slowest, t.max())), none

    def demand(T: float) -> tuple[float, float]:
        left = np.maximum(T - a, 0.0)
        need = np.divide(s, left, out=np.full_like(s, np.inf), where=left > 0)
        return float(need.sum(where=t > T)), float(need.sum(where=t >= T))

    low = float(a.max())
    high = float(np.minimum(t, a + s * (active.size / F)).max())
    found = smallest_feasible(demand, F, low, high, jumps_between(t, low, high))
    T = max(float(slowest), found.high)
    sharing = active[t > T]
    shares = none
    shares[sharing] = work[sharing] / (T - before[sharing])
    return T, shares
