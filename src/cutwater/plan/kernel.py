"""The inner loops of the exact planner, compiled: one pass over clients and cells each.

All of them take the arrays of :class:`~cutwater.plan.tables.ClientTables`, release the interpreter's lock and
are compiled once for each machine.

With x = 1/f, seconds for each FLOP, a session in turn takes a + N·server·x. One whose parts overlap takes the
longest of several such lines: a convex function of x that never falls, whose tangents lie below it. So the x
at which it takes T is found by Newton's method from above, in as many steps as there are lines at most.
"""

from typing import NamedTuple

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.compiled import compiled

PLAIN = 5
"""Rows of a cell in turn that has neither fixed weights nor heads."""
_IN_TURN = 9
"""Weights of a client whose steps all go in turn; there are more where some overlap."""
_DOUBT = 1e-9
"""By how much, relatively, a sum must be clear of the server's compute to decide without adding up anew."""
_SAME = 1e-12
"""Shares that differ by less, relatively, are the same: then the wire that is preferred is taken."""
_MOST = 60
"""Tangents; each is another line, and there are fewer."""


class Clients(NamedTuple):
    """Some clients of a problem beside the cells that are searched; see :mod:`cutwater.plan.tables`."""

    pattern: Ints
    weights: Floats
    alone: Floats
    """A search marks clients that it has settled by minus infinity here: such a client needs nothing."""
    scaled: Floats
    rows: Floats
    turns: int
    seen: Floats


@compiled
def largest(values: Floats, count: int) -> float:
    """The largest of the first values, or 0: four at a time, because each comparison waits for the last."""
    a = b = c = d = 0.0
    for i in range(0, count - 3, 4):
        a, b = max(a, values[i]), max(b, values[i + 1])
        c, d = max(c, values[i + 2]), max(d, values[i + 3])
    for i in range(count - count % 4, count):
        a = max(a, values[i])
    return max(a, b, c, d)


@compiled
def smallest(values: Floats, count: int) -> float:
    """The smallest of the first values, or infinity; in the same way."""
    a = b = c = d = np.inf
    for i in range(0, count - 3, 4):
        a, b = min(a, values[i]), min(b, values[i + 1])
        c, d = min(c, values[i + 2]), min(d, values[i + 3])
    for i in range(count - count % 4, count):
        a = min(a, values[i])
    return min(a, b, c, d)


@compiled
def in_turn(row: Floats, i: int, weight: Floats) -> float:
    """a_k of a cell in turn: all but the server's time."""
    a: float = weight[0] * row[0, i] + weight[1] * row[1, i] + weight[2] * row[2, i] + weight[3] * row[3, i]
    a += weight[5] * row[5, i]
    a += weight[6] * row[6, i] + weight[7] * row[7, i] + weight[8]
    a += weight[8] * row[10, i]
    return a


@compiled
def along_server(row: Floats, i: int, weight: Floats) -> float:
    """The same for the path along the server, which no overlapped session is faster than."""
    a: float = weight[0] * row[0, i] + weight[5] * row[5, i] + weight[9] * row[8, i] + weight[10] * row[2, i]
    a += weight[11] * row[6, i] + weight[12] * row[3, i] + weight[13] * row[9, i]
    a += weight[14] * row[7, i] + weight[15]
    return a


@compiled
def step(
    x: float, t: tuple[float, float, float, float, float, float, float], parts: Floats, rtt: float
) -> tuple[float, float]:
    """Seconds of an overlapped step at x, and how they grow with x (:mod:`cutwater.plan.schedule`).

    ``t`` are client forward, up, head up, server, down, head down and client backward for one sample (heads
    for one part); ``parts`` are n₁, size, n₂, size.
    """
    forward, up, head_up, server, down, head_down, backward = t
    n1, q1, n2, q2 = parts[0], parts[1], parts[2], parts[3]
    there = 1.0 if n2 > 0.0 else 0.0
    a0, a1, a2, a3, a4 = (
        q1 * forward,
        q1 * up + head_up,
        q1 * server * x,
        q1 * down + head_down,
        q1 * backward,
    )
    b0, b1, b2 = q2 * forward, q2 * up + head_up * there, q2 * server * x
    b3, b4 = q2 * down + head_down * there, q2 * backward
    client = n1 * (a0 + a4) + n2 * (b0 + b4)
    # The larger parts up to each station, the smaller ones from there on, and the slowest of both.
    up1 = max(a0, a1)
    up2 = max(up1, a2)
    up3 = max(up2, a3)
    on3 = max(b4, b3)
    on2 = max(on3, b2)
    on1 = max(on2, b1)
    more, rest = n1 - 1.0, n2 - 1.0
    best, station = a0 + more * a0 + (b0 + b1 + b2 + b3 + b4) + rest * max(on1, b0), 0
    value = a0 + a1 + more * up1 + (b1 + b2 + b3 + b4) + rest * on1
    if value > best:
        best, station = value, 1
    value = a0 + a1 + a2 + more * up2 + (b2 + b3 + b4) + rest * on2
    if value > best:
        best, station = value, 2
    value = a0 + a1 + a2 + a3 + more * up3 + (b3 + b4) + rest * on3
    if value > best:
        best, station = value, 3
    value = a0 + a1 + a2 + a3 + a4 + more * max(up3, a4) + b4 + rest * b4
    if value > best:
        best, station = value, 4
    if client >= best + rtt:
        return client, 0.0
    slope = 0.0
    if station >= 2:
        slowest = up2 if station == 2 else up3 if station == 3 else max(up3, a4)
        slope += q1 * (n1 if a2 > up1 and a2 >= slowest else 1.0)
    if station <= 2:
        slowest = on2 if station == 2 else on1 if station == 1 else max(on1, b0)
        slope += q2 * (n2 if b2 > on3 and b2 >= slowest else 1.0)
    return best + rtt, slope * server


@compiled
def overlapped(x: float, row: Floats, i: int, weight: Floats) -> tuple[float, float]:
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


@compiled
def largest_x(T: float, x: float, row: Floats, i: int, weight: Floats) -> float:
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


@compiled
def floors(x: float, row: Floats, weight: Floats, turns: int, least: Floats) -> None:
    """Fill ``least`` with what no overlapped session is faster than at x: the longest of four of its paths.

    They go along the server, the link up, the link down, and the client. Nearly always one of them is the
    longest of all, and they are found without a branch for each cell.
    """
    first, last = weight[29] * x, weight[30] * x
    for i in range(turns, row.shape[1]):
        forward, up = weight[9] * row[8, i], weight[10] * row[2, i] + weight[11] * row[6, i]
        back = weight[12] * row[3, i] + weight[14] * row[7, i]
        end = weight[13] * row[9, i] + weight[15]
        by_server = forward + up + weight[4] * x * row[4, i] + back + end
        by_up = forward + (weight[2] * row[2, i] + weight[6] * row[6, i]) + last * row[4, i] + back + end
        by_down = forward + up + first * row[4, i] + (weight[3] * row[3, i] + weight[7] * row[7, i]) + end
        client = weight[1] * row[1, i]
        longest = by_server if by_server > by_up else by_up
        longest = longest if longest > by_down else by_down
        longest = longest if longest > client else client
        least[i] = weight[0] * row[0, i] + weight[5] * row[5, i] + longest


@compiled
def quickest(x: float, row: Floats, weight: Floats, turns: int, least: Floats) -> tuple[float, int]:
    """The fastest overlapped session at x, and its cell."""
    floors(x, row, weight, turns, least)
    chosen = turns
    for i in range(turns, row.shape[1]):
        if least[i] < least[chosen]:
            chosen = i
    best = overlapped(x, row, chosen, weight)[0]
    for i in range(turns, row.shape[1]):
        if least[i] < best:
            found = overlapped(x, row, i, weight)[0]
            if found < best:
                best, chosen = found, i
    return best, chosen


@compiled
def extremes(clients: Clients, equal: float, low: Floats) -> float:
    """Fill ``low`` with min over cells of a_k; return T of giving every client the share ``equal``."""
    pattern, weights, alone = clients.pattern, clients.weights, clients.alone
    rows, turns, seen = clients.rows, clients.turns, clients.seen
    slowest = 0.0
    least = np.empty(rows.shape[2])
    for k in range(alone.shape[0]):
        row, weight = rows[pattern[k]], weights[k]
        per_share = weight[4] / equal
        for i in range(turns):
            least[i] = in_turn(row, i, weight)
        low[k] = smallest(least, turns)
        for i in range(turns):
            least[i] += per_share * row[4, i]
        high = smallest(least, turns)
        if turns < row.shape[1]:
            low[k] = min(low[k], quickest(0.0, row, weight, turns, least)[0])
            found, cell = quickest(1.0 / equal, row, weight, turns, least)
            high = min(high, found)
            seen[k, 0], seen[k, 1], seen[k, 2] = cell, 0.0, -np.inf
        slowest = max(slowest, min(high, alone[k]))
    return slowest


@compiled
def along(T: float, weight: Floats, scaled: Floats, i: int) -> float:
    """N·x at which the path along the server takes T."""
    u: float = (
        (T - weight[15]) * scaled[4, i]
        - weight[0] * scaled[0, i]
        - weight[5] * scaled[5, i]
        - weight[9] * scaled[8, i]
        - weight[10] * scaled[2, i]
        - weight[11] * scaled[6, i]
        - weight[12] * scaled[3, i]
        - weight[13] * scaled[9, i]
        - weight[14] * scaled[7, i]
    )
    return u


@compiled
def farthest_along(T: float, weight: Floats, scaled: Floats, turns: int) -> int:
    """The overlapped cell with the largest of these; -1 where none is above 0."""
    chosen, most = -1, 0.0
    for i in range(turns, scaled.shape[1]):
        u = along(T, weight, scaled, i)
        if u > most:
            chosen, most = i, u
    return chosen


@compiled
def shortest_overlapped(
    T: float, x: float, weight: Floats, scaled: Floats, row: Floats, turns: int, seen: Floats, least: Floats
) -> float:
    """The largest x, not below the given one, at which one client is done by T in an overlapped cell.

    ``seen`` is the cell that was the best when this client was last looked at, an x, and what all others took
    at least at that x. A session never takes less at a larger x, nor less by more than all its work at the
    server at a smaller one. So mostly, that cell is known to be the best again without a look at the others.
    """
    chosen = int(seen[0]) if seen[0] >= 0.0 else farthest_along(T, weight, scaled, turns)
    if chosen < 0:
        return x
    start = along(T, weight, scaled, chosen) / weight[4]
    if start > x:
        x = max(x, largest_x(T, start, row, chosen, weight))
    nearer = seen[1] - x
    if (seen[2] if nearer <= 0.0 else seen[2] - nearer * weight[4] * row[4, turns:].max()) > T:
        return x
    floors(x, row, weight, turns, least)
    while True:
        least[chosen] = others = np.inf
        other, most = -1, 0.0
        for i in range(turns, row.shape[1]):
            others = min(others, least[i])
            # The x at which it takes T is larger by this, N times, if the server is all that it waits for.
            room = (T - least[i]) * scaled[4, i] if least[i] < T else 0.0
            if room > most:
                other, most = i, room
        if other < 0:
            break
        least[other] = overlapped(x, row, other, weight)[0]
        if least[other] < T:
            found = largest_x(T, along(T, weight, scaled, other) / weight[4], row, other, weight)
            if found > x:
                x, chosen = found, other
                floors(x, row, weight, turns, least)
            else:
                least[other] = T
    seen[0], seen[1], seen[2] = chosen, x, others
    return x


@compiled
def need_plain(T: float, k: int, pattern: Ints, weights: Floats, scaled: Floats, least: Floats) -> float:
    """need_k(T) where all cells are in turn and there is nothing but the paper's columns.

    A row of an array is not taken out of it here, which would take as long as what is done with it.
    """
    p, work, left = pattern[k], weights[k, 4], T - weights[k, 8]
    link, on_client, on_up, on_down = weights[k, 0], weights[k, 1], weights[k, 2], weights[k, 3]
    for i in range(scaled.shape[2]):
        least[i] = (
            left * scaled[p, 4, i]
            - link * scaled[p, 0, i]
            - on_client * scaled[p, 1, i]
            - on_up * scaled[p, 2, i]
            - on_down * scaled[p, 3, i]
        )
    best = largest(least, scaled.shape[2])
    return work / best if best > 0.0 else np.inf


@compiled
def need_by_wires(
    T: float, weight: Floats, scaled: Floats, row: Floats, turns: int, seen: Floats, least: Floats
) -> float:
    """need_k(T) with all that a cell may have."""
    link, on_client, on_up, on_down, once = weight[0], weight[1], weight[2], weight[3], weight[5]
    heads_up, heads_down, trips = weight[6], weight[7], weight[8]
    left = T - trips
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
            - trips * scaled[10, i]
        )
        best = max(best, u)
    if turns < scaled.shape[1]:
        x = shortest_overlapped(T, best / weight[4], weight, scaled, row, turns, seen, least)
        best = max(best, weight[4] * x)
    return weight[4] / best if best > 0.0 else np.inf


@compiled
def need(T: float, k: int, clients: Clients, least: Floats) -> float:
    """need_k(T): the smallest share that has client k done by T, over its allowed cells."""
    pattern, weights, scaled = clients.pattern, clients.weights, clients.scaled
    rows, turns, seen = clients.rows, clients.turns, clients.seen
    found: float
    if scaled.shape[1] == PLAIN:
        found = need_plain(T, k, pattern, weights, scaled, least)
    else:
        p = pattern[k]
        found = need_by_wires(T, weights[k], scaled[p], rows[p], turns, seen[k], least)
    return found


@compiled
def demand(
    T: float,
    pattern: Ints,
    weights: Floats,
    alone: Floats,
    scaled: Floats,
    rows: Floats,
    turns: int,
    seen: Floats,
) -> tuple[float, float]:
    """Σ need_k at T, and just below T, where clients with T̃_k = T are not done alone any more.

    The fields of :class:`Clients` are handed over one by one, in their order: for few clients this loop is
    shorter than it takes to unpack a tuple on the way into compiled code.
    """
    at = below = 0.0
    plain, least = scaled.shape[1] == PLAIN, np.empty(rows.shape[2])
    for k in range(alone.shape[0]):
        if alone[k] < T:
            continue
        # What ``need`` does, in its own words: the call would take as long as the arithmetic.
        if plain:
            share = need_plain(T, k, pattern, weights, scaled, least)
        else:
            p = pattern[k]
            share = need_by_wires(T, weights[k], scaled[p], rows[p], turns, seen[k], least)
        if alone[k] == T:
            below += share
        else:
            at += share
            if at == np.inf:
                break
    return at, at + below


@compiled
def needs(T: float, done: float, clients: Clients, out: Floats) -> None:
    """Fill ``out`` with need_k(T); clients with T̃_k < ``done`` are done alone, and need nothing.

    With T itself for ``done`` it is what they need just below T, where clients with T̃_k = T are not done
    alone any more; with the next number above T, what they need at T.
    """
    least = np.empty(clients.rows.shape[2])
    for k in range(out.shape[0]):
        out[k] = need(T, k, clients, least) if clients.alone[k] >= done else 0.0


@compiled
def best_in_turn(T: float, weight: Floats, scaled: Floats, values: Floats) -> int:
    """The cell in turn with the least share at T, and in ``values`` N over the share of every cell."""
    left = T - weight[8]
    for i in range(scaled.shape[1]):
        values[i] = (
            left * scaled[4, i]
            - weight[0] * scaled[0, i]
            - weight[1] * scaled[1, i]
            - weight[2] * scaled[2, i]
            - weight[3] * scaled[3, i]
        )
    if scaled.shape[0] > PLAIN:
        for i in range(scaled.shape[1]):
            values[i] -= weight[5] * scaled[5, i] + weight[6] * scaled[6, i] + weight[7] * scaled[7, i]
            values[i] -= weight[8] * scaled[10, i]
    chosen = 0
    for i in range(scaled.shape[1]):
        if values[i] > values[chosen]:
            chosen = i
    return chosen


@compiled
def lines(low: float, high: float, clients: Clients, slope: Floats, level: Floats) -> None:
    """Where all cells are in turn: N over the share of every client from ``low`` to ``high``, as a line in T.

    N over the share in a cell is a line, and the largest of lines that is the same at both ends is it in
    between. ``level`` is that at ``high``, NaN where the cell is not the same.
    """
    pattern, weights, alone, scaled = clients.pattern, clients.weights, clients.alone, clients.scaled
    values = np.empty(scaled.shape[2])
    for k in range(alone.shape[0]):
        slope[k] = level[k] = 0.0
        if alone[k] < low or not values.shape[0]:
            continue
        fit, weight = scaled[pattern[k]], weights[k]
        first = best_in_turn(low, weight, fit, values)
        last = best_in_turn(high, weight, fit, values)
        slope[k], level[k] = fit[4, last], values[last] if first == last else np.nan


@compiled
def demand_on_lines(
    T: float, high: float, work: Floats, alone: Floats, slope: Floats, level: Floats
) -> tuple[float, float]:
    """Σ need_k at T and just below it, from such lines."""
    at = below = 0.0
    for k in range(alone.shape[0]):
        if alone[k] < T:
            continue
        most = level[k] - (high - T) * slope[k]
        share = work[k] / most if most > 0.0 else np.inf
        if alone[k] == T:
            below += share
        else:
            at += share
    return at, at + below


@compiled
def share_in(T: float, row: Floats, i: int, turns: int, weight: Floats) -> float:
    """The share by which a client is done by T in a cell; infinite if none is."""
    if i < turns:
        left = T - in_turn(row, i, weight)
        return weight[4] * (row[4, i] / left) if left > 0.0 else np.inf
    left = T - along_server(row, i, weight)
    if left <= 0.0:
        return np.inf
    x = largest_x(T, left / (weight[4] * row[4, i]), row, i, weight)
    return 1.0 / x if x > 0.0 else np.inf


@compiled
def with_link(weight: Floats, up: float, down: float, more: float, found: Floats) -> None:
    """Fill ``found`` with the weights of a client whose link is faster by so much."""
    by_up, by_down = up / (up + more), down / (down + more)
    found[:] = weight
    found[0] = 1.0 / (up + more) + 1.0 / (down + more)
    for i in (2, 6):
        found[i] *= by_up
    for i in (3, 5, 7):
        found[i] *= by_down
    if found.shape[0] > _IN_TURN:
        for i in (10, 11, 17):
            found[i] *= by_up
        for i in (12, 14):
            found[i] *= by_down


@compiled
def paid(  # noqa: PLR0917
    T: float,
    per_share: float,
    per_rate: float,
    up: float,
    down: float,
    more: float,
    row: Floats,
    i: int,
    turns: int,
    weight: Floats,
    scratch: Floats,
) -> float:
    """What a client that is done by T in a cell costs with a link that is faster by so much."""
    with_link(weight, up, down, more, scratch)
    share: float = share_in(T, row, i, turns, scratch)
    return per_share * share + per_rate * more


@compiled
def cheapest(  # noqa: PLR0917
    T: float,
    per_share: float,
    per_rate: float,
    up: Floats,
    down: Floats,
    clients: Clients,
    share: Floats,
    more: Floats,
    cost: Floats,
) -> None:
    """Improve every client's cost by a share of the server and a faster link, where some cell allows for it.

    In a cell the cost is convex in how much faster the link is, and infinite below some speed: a golden
    section finds its least. No cell costs less than its share with a link that takes no time.
    """
    pattern, weights, rows, turns = clients.pattern, clients.weights, clients.rows, clients.turns
    golden, scratch = 0.6180339887498949, np.empty(weights.shape[1])
    for k in range(cost.shape[0]):
        row, weight, u, d = rows[pattern[k]], weights[k], up[k], down[k]
        for i in range(row.shape[1]):
            if not row[0, i] < np.inf:
                continue
            with_link(weight, u, d, np.inf, scratch)
            least = per_share * share_in(T, row, i, turns, scratch)
            if not least < cost[k]:
                continue
            at, first = 0.0, paid(T, per_share, per_rate, u, d, 0.0, row, i, turns, weight, scratch)
            while first == np.inf and least + per_rate * at < cost[k]:
                at = 2.0 * at if at > 0.0 else 1e-3 * min(u, d)
                first = paid(T, per_share, per_rate, u, d, at, row, i, turns, weight, scratch)
            low, high = 0.0, (min(first, cost[k]) - least) / per_rate
            x1, x2 = high - golden * (high - low), low + golden * (high - low)
            f1 = paid(T, per_share, per_rate, u, d, x1, row, i, turns, weight, scratch)
            f2 = paid(T, per_share, per_rate, u, d, x2, row, i, turns, weight, scratch)
            for _ in range(120):
                if f1 == np.inf or f1 > f2:
                    low, x1, f1 = x1, x2, f2
                    x2 = low + golden * (high - low)
                    f2 = paid(T, per_share, per_rate, u, d, x2, row, i, turns, weight, scratch)
                else:
                    high, x2, f2 = x2, x1, f1
                    x1 = high - golden * (high - low)
                    f1 = paid(T, per_share, per_rate, u, d, x1, row, i, turns, weight, scratch)
            for x, value in ((0.0, first if at == 0.0 else np.inf), (at, first), (x1, f1), (x2, f2)):
                # A link that is faster by rounding alone is as it was.
                if value < cost[k] * (1.0 - _SAME):
                    cost[k], more[k] = value, x
                    with_link(weight, u, d, x, scratch)
                    share[k] = share_in(T, row, i, turns, scratch)


@compiled
def within(
    T: float, x: float, row: Floats, turns: int, weight: Floats, cut: Ints, least: Floats, near: Ints
) -> int:
    """List the cuts at which a session may be done by T at x; return how many they are."""
    for i in range(turns):
        least[i] = in_turn(row, i, weight) + weight[4] * x * row[4, i]
    if turns < row.shape[1]:
        floors(x, row, weight, turns, least)
    count = 0
    for i in range(row.shape[1]):
        if least[i] <= T and cut[i] not in near[:count]:
            near[count] = cut[i]
            count += 1
    if count > 1:
        near[:count].sort()
    return count


@compiled
def closest(
    T: float, x: float, row: Floats, turns: int, weight: Floats, near: Ints, cuts: int, shares: Floats
) -> tuple[int, float]:
    """Of all cells at some cuts that are done by T at x, the one with the least share, and that share.

    Of those with the same share, the first. Cells have all cuts by the first wire, then by the next.
    """
    least = np.inf
    for wire in range(0, row.shape[1], cuts):
        for cut in near:
            i = wire + cut
            shares[i] = np.inf
            if i < turns or overlapped(x, row, i, weight)[0] <= T * (1.0 + _SAME):
                shares[i] = share_in(T, row, i, turns, weight)
            least = min(least, shares[i])
    if least < np.inf:
        for wire in range(0, row.shape[1], cuts):
            for cut in near:
                if shares[wire + cut] <= least * (1.0 + _SAME):
                    return wire + cut, shares[wire + cut]
    return -1, np.inf


@compiled
def assign(
    T: float,
    clients: Clients,
    cut: Ints,
    cuts: int,
    all_rows: Floats,
    all_turns: int,
    cell: Ints,
    share: Floats,
) -> None:
    """The cell and share of every client that needs one at T: the least share.

    The least share is that of a cell that is searched, so that only the cuts of those are looked at by every
    wire: ``cut`` is the place of a searched cell's cut among the ``cuts`` of ``all_rows``.
    """
    pattern, weights, alone, scaled = clients.pattern, clients.weights, clients.alone, clients.scaled
    rows, turns, seen = clients.rows, clients.turns, clients.seen
    plain, near = scaled.shape[1] == PLAIN, np.empty(cuts, dtype=np.int64)
    least, shares = np.empty(rows.shape[2]), np.empty(all_rows.shape[2])
    for k in range(alone.shape[0]):
        cell[k], share[k] = -1, 0.0
        if alone[k] <= T:
            continue
        row, weight = rows[pattern[k]], weights[k]
        if plain:  # what ``need`` does; here, too, the call would take as long as the arithmetic
            share[k] = need_plain(T, k, pattern, weights, scaled, least)
        else:
            share[k] = need_by_wires(T, weight, scaled[pattern[k]], row, turns, seen[k], least)
        if share[k] < np.inf:
            x = (1.0 - _DOUBT) / share[k]
            count = within(T * (1.0 + _SAME), x, row, turns, weight, cut, least, near)
            of_all = all_rows[pattern[k]]
            cell[k], share[k] = closest(T, x, of_all, all_turns, weight, near[:count], cuts, shares)


@compiled
def used(T: float, split: Ints, count: int, clients: Clients) -> float:
    """What those that share the server need together to be done by T."""
    total = 0.0
    least = np.empty(clients.rows.shape[2])
    for i in range(count):
        total += need(T, split[i], clients, least)
        if total == np.inf:
            break
    return total


@compiled
def sweep(F: float, order: Ints, split: Ints, count: int, clients: Clients) -> tuple[int, int]:
    """Go down T̃ from client to client: each joins those that share if the server has room, or is settled.

    ``order`` lists the clients still to visit, slowest first; ``split[:count]`` those that share the server
    already. A client that finds no room is done at its T̃_k and marked settled. Returns how many share now and
    how many were visited before the server was too small for those that share at the next client's T̃.

    To add up for every client what the others need at its T̃ would take time quadratic in their number. So it
    is added up at both ends of a block of clients: in between it lies in between, which nearly always decides
    for all of them. Where it does not, the block is made smaller, down to a single client.
    """
    alone = clients.alone
    visited, block = 0, 1
    floor = np.empty(clients.rows.shape[2])
    while visited < order.shape[0]:
        last = min(visited + block, order.shape[0])
        early, late = alone[order[visited]], alone[order[last - 1]]
        least = used(early, split, count, clients)
        if least > F:
            return count, visited
        most = least
        if late != early:
            most = used(late, split, count, clients)
        # Sums of many terms are rounded; only a block at one T̃ is decided to the last bit, as one client is.
        doubt = 0.0 if late == early else _DOUBT * F
        while visited < last and most <= F:
            b = order[visited]
            own = need(alone[b], b, clients, floor)
            if least + own > F + doubt:
                alone[b] = -np.inf
            elif most + own <= F - doubt:
                split[count] = b
                count += 1
                least += need(early, b, clients, floor)
                most += need(late, b, clients, floor)
            else:
                break
            visited += 1
        block = 2 * block if visited == last else max(block // 4, 1)
    return count, visited
