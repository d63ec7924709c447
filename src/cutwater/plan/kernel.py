"""The inner loops of the exact planner, compiled: one pass over clients and cuts each.

All of them take the arrays of :class:`~cutwater.plan.tables.ClientTables`, release the interpreter's lock and
are compiled once for each machine. ``alone`` is passed apart, because a search marks clients that it has
settled by setting theirs to minus infinity: such a client needs nothing.
"""

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.compiled import compiled

_DOUBT = 1e-9
"""By how much, relatively, a sum must be clear of the server's compute to decide without adding up anew."""


def _extremes(
    pattern: Ints, weights: Floats, alone: Floats, rows: Floats, equal: float, least: Floats
) -> float:
    """Fill ``least`` with min over l of a_k(l); return T of giving every client the share ``equal``."""
    slowest = 0.0
    for k in range(alone.shape[0]):
        row, weight = rows[pattern[k]], weights[k]
        link, on_client, on_up, on_down, per_share, once = (
            weight[0],
            weight[1],
            weight[2],
            weight[3],
            weight[4] / equal,
            weight[5],
        )
        low = high = np.inf
        for i in range(row.shape[1]):
            a = link * row[0, i] + on_client * row[1, i] + on_up * row[2, i] + on_down * row[3, i]
            a += once * row[5, i]
            low = min(low, a)
            high = min(high, a + per_share * row[4, i])
        least[k] = low
        slowest = max(slowest, min(high, alone[k]))
    return slowest


def _need(T: float, weight: Floats, scaled: Floats) -> float:
    """need_k(T): the smallest share that has one client done by T, over its allowed cuts."""
    link, on_client, on_up, on_down, once = weight[0], weight[1], weight[2], weight[3], weight[5]
    best = 0.0
    for i in range(scaled.shape[1]):
        u = (
            T * scaled[0, i]
            - link * scaled[1, i]
            - on_client * scaled[2, i]
            - on_up * scaled[3, i]
            - on_down * scaled[4, i]
            - once * scaled[5, i]
        )
        best = max(best, u)
    return weight[4] / best if best > 0.0 else np.inf


need = compiled(_need)


def _demand(T: float, pattern: Ints, weights: Floats, alone: Floats, scaled: Floats) -> tuple[float, float]:
    """Σ need_k at T, and just below T, where clients with T̃_k = T are not done alone any more."""
    at = below = 0.0
    for k in range(alone.shape[0]):
        if alone[k] < T:
            continue
        share = need(T, weights[k], scaled[pattern[k]])
        if alone[k] == T:
            below += share
        else:
            at += share
            if at == np.inf:
                break
    return at, at + below


def _assign(
    T: float,
    pattern: Ints,
    weights: Floats,
    alone: Floats,
    rows: Floats,
    cut: Ints,
    share: Floats,
) -> None:
    """The cut (as an index) and share of every client that needs one at T: least s_k / (T - a_k)."""
    for k in range(alone.shape[0]):
        cut[k], share[k] = -1, 0.0
        if alone[k] <= T:
            continue
        row, weight = rows[pattern[k]], weights[k]
        best = np.inf
        for i in range(row.shape[1]):
            left = T - (
                weight[0] * row[0, i]
                + weight[1] * row[1, i]
                + weight[2] * row[2, i]
                + weight[3] * row[3, i]
                + weight[5] * row[5, i]
            )
            if left > 0.0 and row[4, i] < best * left:
                best = row[4, i] / left
                cut[k] = i
        share[k] = weight[4] * best


def _used(T: float, split: Ints, count: int, pattern: Ints, weights: Floats, scaled: Floats) -> float:
    """What those that share the server need together to be done by T."""
    total = 0.0
    for i in range(count):
        total += need(T, weights[split[i]], scaled[pattern[split[i]]])
        if total == np.inf:
            break
    return total


used = compiled(_used)


def _sweep(
    F: float,
    order: Ints,
    split: Ints,
    count: int,
    pattern: Ints,
    weights: Floats,
    alone: Floats,
    scaled: Floats,
) -> tuple[int, int]:
    """Go down T̃ from client to client: each joins those that share if the server has room, or is settled.

    ``order`` lists the clients still to visit, slowest first; ``split[:count]`` those that share the server
    already. A client that finds no room is done at its T̃_k and marked settled. Returns how many share now and
    how many were visited before the server was too small for those that share at the next client's T̃.

    To add up for every client what the others need at its T̃ would take time quadratic in their number. So it
    is added up at both ends of a block of clients: in between it lies in between, which nearly always decides
    for all of them. Where it does not, the block is made smaller, down to a single client.
    """
    visited, block = 0, 1
    while visited < order.shape[0]:
        last = min(visited + block, order.shape[0])
        early, late = alone[order[visited]], alone[order[last - 1]]
        least = used(early, split, count, pattern, weights, scaled)
        if least > F:
            return count, visited
        most = least if late == early else used(late, split, count, pattern, weights, scaled)
        # Sums of many terms are rounded; only a block at one T̃ is decided to the last bit, as one client is.
        doubt = 0.0 if late == early else _DOUBT * F
        while visited < last and most <= F:
            b = order[visited]
            row = scaled[pattern[b]]
            own = need(alone[b], weights[b], row)
            if least + own > F + doubt:
                alone[b] = -np.inf
            elif most + own <= F - doubt:
                split[count] = b
                count += 1
                least += need(early, weights[b], row)
                most += need(late, weights[b], row)
            else:
                break
            visited += 1
        block = 2 * block if visited == last else max(block // 4, 1)
    return count, visited


extremes = compiled(_extremes)
demand = compiled(_demand)
assign = compiled(_assign)
sweep = compiled(_sweep)
