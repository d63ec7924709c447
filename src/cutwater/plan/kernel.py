"""The inner loops of the exact planner, compiled: one pass over clients and cells each.

All of them take the arrays of :class:`~cutwater.plan.tables.ClientTables`, release the interpreter's lock and
are compiled once for each machine. ``alone`` is passed apart, because a search marks clients that it has
settled by setting theirs to minus infinity: such a client needs nothing.

With x = 1/f, seconds for each FLOP, a session in turn takes a + N·server·x. One whose parts overlap takes the
longest of several such lines: a convex function of x that never falls, whose tangents lie below it. So the x
at which it takes T is found by Newton's method from above, in as many steps as there are lines at most.
"""

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.compiled import compiled

_DOUBT = 1e-9
"""By how much, relatively, a sum must be clear of the server's compute to decide without adding up anew."""
_SAME = 1e-12
"""Shares that differ by less, relatively, are the same: then the wire that is preferred is taken."""
_MOST = 60
"""Tangents; each is another line, and there are fewer."""


def _in_turn(row: Floats, i: int, weight: Floats) -> float:
    """a_k of a cell in turn: all but the server's time."""
    a: float = weight[0] * row[0, i] + weight[1] * row[1, i] + weight[2] * row[2, i] + weight[3] * row[3, i]
    a += weight[5] * row[5, i]
    a += weight[6] * row[6, i] + weight[7] * row[7, i] + weight[8]
    return a


def _along_server(row: Floats, i: int, weight: Floats) -> float:
    """The same for the path along the server, which no overlapped session is faster than."""
    a: float = weight[0] * row[0, i] + weight[5] * row[5, i] + weight[9] * row[8, i] + weight[10] * row[2, i]
    a += weight[11] * row[6, i] + weight[12] * row[3, i] + weight[13] * row[9, i]
    a += weight[14] * row[7, i] + weight[15]
    return a


def _step(
    x: float, t: tuple[float, float, float, float, float, float, float], parts: Floats, rtt: float
) -> tuple[float, float]:
    """Seconds of an overlapped step at x, and how they grow with x (:mod:`cutwater.plan.schedule`).

    ``t`` are client forward, up, head up, server, down, head down and client backward for one sample (heads
    for one part); ``parts`` are n₁, size, n₂, size.
    """
    forward, up, head_up, server, down, head_down, backward = t
    n1, q1, n2, q2 = parts[0], parts[1], parts[2], parts[3]
    there = 1.0 if n2 > 0.0 else 0.0
    large = (q1 * forward, q1 * up + head_up, q1 * server * x, q1 * down + head_down, q1 * backward)
    small = (
        q2 * forward,
        q2 * up + head_up * there,
        q2 * server * x,
        q2 * down + head_down * there,
        q2 * backward,
    )
    client = n1 * (large[0] + large[4]) + n2 * (small[0] + small[4])
    best = slope = -1.0
    for i in range(5):
        total = slowest = rest = slowest_rest = 0.0
        at_server = rest_at_server = False
        for j in range(i + 1):
            total += large[j]
            if large[j] > slowest:
                slowest, at_server = large[j], j == 2
        for j in range(i, 5):
            rest += small[j]
            if small[j] > slowest_rest:
                slowest_rest, rest_at_server = small[j], j == 2
        value = total + (n1 - 1.0) * slowest + rest + (n2 - 1.0) * slowest_rest
        if value > best:
            best = value
            slope = 0.0
            if i >= 2:
                slope += q1 * server
            if at_server:
                slope += (n1 - 1.0) * q1 * server
            if i <= 2:
                slope += q2 * server
            if rest_at_server:
                slope += (n2 - 1.0) * q2 * server
    if client >= best + rtt:
        return client, 0.0
    return best + rtt, slope


step = compiled(_step)


def _overlapped(x: float, row: Floats, i: int, weight: Floats) -> tuple[float, float]:
    """Seconds of an overlapped session at x, the model's transfer included, and how they grow with x."""
    compute, up, rtt, down = weight[16], weight[17], weight[18], weight[5]
    t = (
        row[8, i] * compute,
        row[2, i] * up,
        row[6, i] * up,
        row[4, i],
        row[3, i] * down,
        row[7, i] * down,
        row[9, i] * compute,
    )
    total, slope = weight[0] * row[0, i] + down * row[5, i], 0.0
    for kind in (19, 24):
        if weight[kind] > 0.0:
            seconds, growth = step(x, t, weight[kind + 1 : kind + 5], rtt)
            total += weight[kind] * seconds
            slope += weight[kind] * growth
    return total, slope


in_turn, along_server, overlapped = compiled(_in_turn), compiled(_along_server), compiled(_overlapped)


def _largest_x(T: float, x: float, row: Floats, i: int, weight: Floats) -> float:
    """The largest x at which an overlapped session is done by T, from one that is not below; 0 if none is."""
    for _ in range(_MOST):
        seconds, slope = overlapped(x, row, i, weight)
        if seconds <= T:
            return x
        if slope <= 0.0:
            return 0.0
        nearer = x - (seconds - T) / slope
        if nearer >= x:
            return x
        if nearer <= 0.0:
            return 0.0
        x = nearer
    return x


largest_x = compiled(_largest_x)


def _extremes(
    pattern: Ints, weights: Floats, alone: Floats, rows: Floats, turns: int, equal: float, least: Floats
) -> float:
    """Fill ``least`` with min over cells of a_k; return T of giving every client the share ``equal``."""
    slowest = 0.0
    for k in range(alone.shape[0]):
        row, weight = rows[pattern[k]], weights[k]
        per_share = weight[4] / equal
        low = high = np.inf
        for i in range(turns):
            a = in_turn(row, i, weight)
            low = min(low, a)
            high = min(high, a + per_share * row[4, i])
        for i in range(turns, row.shape[1]):
            bound = along_server(row, i, weight)
            if bound < low:
                low = min(low, overlapped(0.0, row, i, weight)[0])
            if bound + per_share * row[4, i] < high:
                high = min(high, overlapped(1.0 / equal, row, i, weight)[0])
        least[k] = low
        slowest = max(slowest, min(high, alone[k]))
    return slowest


def _need(T: float, weight: Floats, scaled: Floats, row: Floats, turns: int) -> float:
    """need_k(T): the smallest share that has one client done by T, over its allowed cells."""
    link, on_client, on_up, on_down, once = weight[0], weight[1], weight[2], weight[3], weight[5]
    heads_up, heads_down, left = weight[6], weight[7], T - weight[8]
    best = 0.0
    for i in range(turns):
        u = (
            left * scaled[4, i]
            - link * scaled[0, i]
            - on_client * scaled[1, i]
            - on_up * scaled[2, i]
            - on_down * scaled[3, i]
            - once * scaled[5, i]
            - heads_up * scaled[6, i]
            - heads_down * scaled[7, i]
        )
        best = max(best, u)
    for i in range(turns, scaled.shape[1]):
        u = (
            (T - weight[15]) * scaled[4, i]
            - link * scaled[0, i]
            - once * scaled[5, i]
            - weight[9] * scaled[8, i]
            - weight[10] * scaled[2, i]
            - weight[11] * scaled[6, i]
            - weight[12] * scaled[3, i]
            - weight[13] * scaled[9, i]
            - weight[14] * scaled[7, i]
        )
        if u > best:
            best = max(best, weight[4] * largest_x(T, u / weight[4], row, i, weight))
    return weight[4] / best if best > 0.0 else np.inf


need = compiled(_need)


def _demand(
    T: float, pattern: Ints, weights: Floats, alone: Floats, scaled: Floats, rows: Floats, turns: int
) -> tuple[float, float]:
    """Σ need_k at T, and just below T, where clients with T̃_k = T are not done alone any more."""
    at = below = 0.0
    for k in range(alone.shape[0]):
        if alone[k] < T:
            continue
        share = need(T, weights[k], scaled[pattern[k]], rows[pattern[k]], turns)
        if alone[k] == T:
            below += share
        else:
            at += share
            if at == np.inf:
                break
    return at, at + below


def _share(T: float, row: Floats, i: int, turns: int, weight: Floats, enough: float) -> float:
    """The share by which a client is done by T in a cell; infinite if none is, or none below ``enough``."""
    if i < turns:
        left = T - in_turn(row, i, weight)
        return weight[4] * (row[4, i] / left) if left > 0.0 else np.inf
    left = T - along_server(row, i, weight)
    if left <= 0.0:
        return np.inf
    x = left / (weight[4] * row[4, i])
    if 1.0 / x > enough:
        return np.inf
    x = largest_x(T, x, row, i, weight)
    return 1.0 / x if x > 0.0 else np.inf


share_in = compiled(_share)


def _assign(  # noqa: PLR0917 - compiled code takes its arrays one by one
    T: float,
    pattern: Ints,
    weights: Floats,
    alone: Floats,
    rows: Floats,
    turns: int,
    wires: Ints,
    cell: Ints,
    share: Floats,
) -> None:
    """The cell (as an index) and share of every client that needs one at T: the least share.

    Of cells with the same share, that of the wire that comes first.
    """
    for k in range(alone.shape[0]):
        cell[k], share[k] = -1, 0.0
        if alone[k] <= T:
            continue
        row, weight = rows[pattern[k]], weights[k]
        best = np.inf
        for i in range(row.shape[1]):
            found = share_in(T, row, i, turns, weight, best)
            if found < best:
                best = found
                cell[k] = i
        chosen = cell[k]
        if chosen >= 0:
            for i in range(row.shape[1]):
                if wires[i] >= wires[chosen]:
                    break
                found = share_in(T, row, i, turns, weight, best * (1.0 + _SAME))
                if found <= best * (1.0 + _SAME):
                    cell[k] = i
                    best = found
                    break
        share[k] = best if chosen >= 0 else np.inf


def _used(
    T: float,
    split: Ints,
    count: int,
    pattern: Ints,
    weights: Floats,
    scaled: Floats,
    rows: Floats,
    turns: int,
) -> float:
    """What those that share the server need together to be done by T."""
    total = 0.0
    for i in range(count):
        k = split[i]
        total += need(T, weights[k], scaled[pattern[k]], rows[pattern[k]], turns)
        if total == np.inf:
            break
    return total


used = compiled(_used)


def _sweep(  # noqa: PLR0917
    F: float,
    order: Ints,
    split: Ints,
    count: int,
    pattern: Ints,
    weights: Floats,
    alone: Floats,
    scaled: Floats,
    rows: Floats,
    turns: int,
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
        least = used(early, split, count, pattern, weights, scaled, rows, turns)
        if least > F:
            return count, visited
        most = least if late == early else used(late, split, count, pattern, weights, scaled, rows, turns)
        # Sums of many terms are rounded; only a block at one T̃ is decided to the last bit, as one client is.
        doubt = 0.0 if late == early else _DOUBT * F
        while visited < last and most <= F:
            b = order[visited]
            fit, row = scaled[pattern[b]], rows[pattern[b]]
            own = need(alone[b], weights[b], fit, row, turns)
            if least + own > F + doubt:
                alone[b] = -np.inf
            elif most + own <= F - doubt:
                split[count] = b
                count += 1
                least += need(early, weights[b], fit, row, turns)
                most += need(late, weights[b], fit, row, turns)
            else:
                break
            visited += 1
        block = 2 * block if visited == last else max(block // 4, 1)
    return count, visited


extremes = compiled(_extremes)
demand = compiled(_demand)
assign = compiled(_assign)
sweep = compiled(_sweep)
