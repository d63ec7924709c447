"""The inner loop of planning with shared links, compiled: what all clients pay to be done by T.

Client k's option o (a cut and a wire) takes ``fixed`` seconds whatever it is given, and then work/f on the
server, up/b on its way there and down/d on its way back. At prices p for what it is given, the cheapest way
to be done by T, with τ = T - fixed and no more of each than its ``most``, is

    x_i = min(most_i, √(w_i / p_i)·Σ √(p_j·w_j) / τ'),

where both the sum and τ', the time that is left, are over those that are not at their most; without any most
the price is (Σ √(p_i·w_i))² / τ (Cauchy and Schwarz). Putting one at its most leaves the others less time, so
they are given more: whoever is once at its most stays there, and three looks are enough.
"""

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.compiled import compiled

LINKS = 3
"""What a client is given: a share of the server, a rate up, a rate down."""


@compiled
def cheapest(left: float, work: Floats, prices: Floats, most: Floats, given: Floats) -> float:
    """The price of one option, and what it is given for that; infinite if no amount is enough."""
    full = 0
    for _ in range(LINKS + 1):
        root, rest = 0.0, left
        for i in range(LINKS):
            if work[i] == 0.0:
                given[i] = 0.0
            elif full >> i & 1 or prices[i] == 0.0:
                given[i] = most[i]
                rest -= work[i] / most[i] if most[i] > 0.0 else np.inf
            else:
                root += np.sqrt(prices[i] * work[i])
        if rest < 0.0 or (rest == 0.0 and root > 0.0):
            return np.inf
        before = full
        for i in range(LINKS):
            if work[i] > 0.0 and prices[i] > 0.0 and not full >> i & 1:
                given[i] = np.sqrt(work[i] / prices[i]) * root / rest
                if given[i] > most[i]:
                    full |= 1 << i
        if full == before:
            break
    cost = 0.0
    for i in range(LINKS):
        cost += prices[i] * given[i]
    return cost


@compiled
def price(
    T: float, prices: Floats, most: Floats, fixed: Floats, work: Floats, chosen: Ints, given: Floats
) -> float:
    """What all clients pay to be done by T at these prices: fill the option and the amounts of each.

    ``fixed`` is clients × options, infinite where an option is not allowed; ``work`` has LINKS more columns.
    """
    total = 0.0
    amounts = np.empty(LINKS)
    for k in range(fixed.shape[0]):
        best = np.inf
        for o in range(fixed.shape[1]):
            left = T - fixed[k, o]
            if left < 0.0:
                continue
            if best < np.inf:
                # Without any most it would cost no more than this.
                root = 0.0
                for i in range(LINKS):
                    root += np.sqrt(prices[i] * work[k, o, i])
                if root * root >= best * left:
                    continue
            cost = cheapest(left, work[k, o], prices, most[k], amounts)
            if cost < best:
                best, chosen[k] = cost, o
                given[k] = amounts
        total += best
        if total == np.inf:
            break
    return total
