"""The inverse of planning: what it takes to have a round over by a given time.

The smallest server is Σ need_k(T), by the definition of a need (:mod:`cutwater.plan.exact`). Where faster
links can be had, too, every client is a problem of its own: with d more bits per second both ways it needs
need_k(T, d) of the server, and the cheapest d minimises

    p_F · need_k(T, d) + p_r · d.

In one cell (cut and wire) that is convex in d, whatever the schedule: a session never takes longer with more
of either, and its time is convex in both. So the smallest of all cells' minima is the cheapest of all mixes.

Where links are shared, the optimum of a server lies in an interval
(:mod:`cutwater.plan.shared_links`), which falls as the server grows. So a search over servers finds one whose
plan is done by T, and one just below it of which the bound proves that none is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Bools, Floats
from cutwater.base.errors import PlanError
from cutwater.base.units import show_seconds
from cutwater.plan import kernel
from cutwater.plan.busy import Busy
from cutwater.plan.fleet import Fleet
from cutwater.plan.latency import latency, session_phases
from cutwater.plan.optimum import Field, interval, refuse_shared
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Band, Problem
from cutwater.plan.tables import without_work

ROUNDING = 1e-11
"""What is added to a server, relatively, so that rounding does not leave the round a trifle late."""
LIMITLESS = 1e30
"""FLOPS of a server that takes no time, whatever the cuts and wires."""
CLOSE_TO = 1e-6
"""How near to the smallest server, relatively, the search among shared links ends."""
_SMALLEST = 1.0
"""FLOPS of a server that is as good as none."""
_STEPS = 100
"""Of a bisection, down to rounding."""
_WIDEST = 1e30
"""Bits per second of a link that takes no time."""


@dataclass(frozen=True)
class Size:
    """What a round of so many seconds takes at least."""

    round: float
    compute: float
    """FLOPS of the server."""
    at_least: float
    """No server with less does; the same as ``compute`` but where links are shared."""
    links: Floats
    """Bits per second that each client's link must be faster, up and down."""
    cost: float | None
    """Of all of the server and of what links are faster by; None without prices."""


def smallest_server(problem: Problem, seconds: float) -> Size:
    """The smallest server with which a round takes at most so long."""
    nothing = np.zeros(len(problem))
    if problem.band.shared:
        compute, at_least = _with_shared_links(problem, seconds)
        return Size(seconds, compute, at_least, nothing, None)
    compute = needed_server(Field.plain(problem), seconds)
    return Size(seconds, compute, compute, nothing, None)


@dataclass(frozen=True)
class Needed:
    """What a round of so many seconds takes, by the server alone and by server and links together."""

    server: Size | None
    """The smallest server; None if none is enough."""
    infeasible: str | None
    """Why none is."""
    mix: Size | None
    """The cheapest mix of server and links; None without prices of both, and where links are shared."""


def needed(problem: Problem, seconds: float, prices: Prices) -> Needed:
    """The smallest server, or why none is enough, and where links can be bought the cheapest mix.

    Where there is no mix either, what is wrong with the server is raised.
    """
    priced = prices.compute is not None and prices.link is not None and not problem.band.shared
    mix = cheapest(problem, seconds, prices) if priced else None
    try:
        return Needed(smallest_server(problem, seconds), None, mix)
    except PlanError as error:
        if mix is None:
            raise
        return Needed(None, str(error), mix)


def _with_shared_links(problem: Problem, seconds: float) -> tuple[float, float]:
    """A server with which a round takes at most so long, and the least that any such server has."""

    def look(compute: float) -> tuple[float, float]:
        return interval(problem.at_compute(compute))

    # With a link of their own for everybody, clients need no more of the server.
    least = needed_server(Field.plain(problem.replace(band=Band())), seconds)
    if look(least)[1] <= seconds:
        return least, least
    bound, latency = look(LIMITLESS)
    if latency > seconds:
        raise PlanError(
            f"no server makes a round take {show_seconds(seconds)}: with all the server that clients could "
            f"use it takes {show_seconds(bound)} at least, as long as they share their links; give them a "
            "wider one, or the round more time"
        )
    enough = _enough(lambda compute: look(compute)[1], seconds, max(least, _SMALLEST))
    # From there down, until a bound proves that so much is not enough.
    below = CLOSE_TO
    while below < 1 and look(enough * (1 - below))[0] <= seconds * (1 + ROUNDING):
        below *= 4
    return enough, max(enough * (1 - below), least) if below < 1 else least


def _enough(latency: Callable[[float], float], seconds: float, least: float) -> float:
    """A server that is enough, near to the smallest; ``least`` may be too little, and a limitless one is not.

    A round takes about a + b / F, so that the line through two servers in 1 / F soon meets the target.
    """
    low, high = 1 / LIMITLESS, 1 / least
    spare, late = seconds - latency(LIMITLESS), latency(least) - seconds
    if late <= 0:
        return least
    last = 0.0
    for _ in range(_STEPS):
        if high <= low * (1 + CLOSE_TO):
            break
        middle = low + (high - low) * spare / (spare + late)
        middle = middle if low < middle < high else 0.5 * (low + high)
        left = seconds - latency(1 / middle)
        # Where one end moves twice, half of the other moves the next guess beyond the root (Illinois).
        part = 0.5 if left * last > 0 else 1.0
        if left >= 0:
            low, spare, late = middle, left, late * part
        else:
            high, late, spare = middle, -left, spare * part
        last = left
    return 1 / low


def needed_server(field: Field, seconds: float) -> float:
    """FLOPS of the smallest server with which a round takes at most so long."""
    shares = field.everyone.needs(seconds)
    total = float(shares.sum()) * (1 + ROUNDING)
    if not np.isfinite(total):
        raise PlanError(_floor(field, seconds))
    return total


def _floor(field: Field, seconds: float) -> str:
    """Why no server makes the round so short: who would be last, and what it waits for."""
    problem, table = field.problem, field.everyone
    best = np.minimum(table.extremes(1.0)[1], table.alone)
    k = int(best.argmax())
    name, waits = problem.fleet.names[k], _waits_for(problem, k)
    late = int(np.count_nonzero(best > seconds))
    more = f" ({late} clients are above {show_seconds(seconds)})" if late > 1 else ""
    return (
        f"no server makes a round take {show_seconds(seconds)}: {name!r} takes "
        f"{show_seconds(float(best[k]))} with all the server it could use, most of it for its {waits}{more}; "
        "give it a faster one, or the round more time"
    )


def _waits_for(problem: Problem, k: int) -> str:
    """What a client with a server without limits waits for most, at its best cut and wire."""
    allowed = problem.allowed.cells[problem.allowed.of[k]]
    wires, rows = np.nonzero(allowed)
    phases = session_phases(problem, rows + 1, np.inf, np.full(len(rows), k), wires)
    best = int(phases.total.argmin())
    busy = Busy.of(phases.at(best))
    parts = {"link": busy.link_up + busy.link_down, "device": busy.client, "round trips": busy.round_trip}
    return max(parts, key=lambda part: parts[part])


def cheapest(problem: Problem, seconds: float, prices: Prices) -> Size:
    """The cheapest server and faster links with which a round takes at most so long."""
    refuse_shared(problem, "the cheapest mix")
    if prices.compute is None or prices.link is None:
        raise PlanError("the cheapest mix of server and links needs both prices: [prices] compute and link")
    if not (prices.compute.amount > 0 and prices.link.amount > 0):
        raise PlanError("a price of [prices] is 0, but what costs nothing has no limit: leave it out")
    share, more, cost = _cheapest(problem, seconds, prices.compute.amount, prices.link.amount)
    worst = int(cost.argmax())
    if not np.isfinite(cost[worst]):
        raise PlanError(
            f"no server and no links make a round take {show_seconds(seconds)}: "
            f"{problem.fleet.names[worst]!r} takes longer even with both without limits; give it a faster "
            "device, or the round more time"
        )
    compute = float(share.sum()) * (1 + ROUNDING)
    return Size(seconds, compute, compute, more, prices.cost(compute=compute, link=float(more.sum())))


def _cheapest(
    problem: Problem, seconds: float, per_share: float, per_rate: float
) -> tuple[Floats, Floats, Floats]:
    """Of every client: its cheapest share, how much faster its link is then, and what both cost."""
    more = np.full(len(problem), np.inf)
    for cut, wire in without_work(problem):
        able = problem.allowed.by(wire, cut)
        more = np.where(able, np.minimum(more, _without_server(problem, seconds, cut, wire)), more)
    share, cost = np.zeros(len(problem)), per_rate * more
    table, fleet = Field.plain(problem).everyone, problem.fleet
    kernel.cheapest(seconds, per_share, per_rate, fleet.up, fleet.down, table.laid_out, share, more, cost)
    return share, more, cost


def _without_server(problem: Problem, seconds: float, cut: int, wire: int) -> Floats:
    """How much faster each link must be for a session that leaves the server nothing; infinite if none is."""
    fleet, everyone = problem.fleet, np.zeros(len(problem))
    phases = session_phases(problem, cut, 0.0, wires=wire)
    up, down = phases.smashed_upload + phases.model_upload, phases.gradient_download + phases.model_download
    rest = phases.total - up - down

    def late(more: Floats) -> Bools:
        if phases.overlap.any():
            return latency(problem.replace(clients=faster(fleet, more)), cut, 0.0, wires=wire) > seconds
        moved = up * (fleet.up / (fleet.up + more)) + down * (fleet.down / (fleet.down + more))
        return rest + moved > seconds

    low, high = everyone, fleet.up * 1.0
    for _ in range(_STEPS):
        far = late(high)
        if not far.any():
            break
        high = np.where(far & (high < _WIDEST), high * 4, high)
    never = late(high)
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        behind = late(middle)
        low, high = np.where(behind, middle, low), np.where(behind, high, middle)
    high = np.where(late(everyone), high, 0.0)
    return np.where(never, np.inf, high)


def faster(fleet: Fleet, more: Floats) -> Fleet:
    """The fleet with links that are faster by so much, up and down."""
    return fleet.replace(up=fleet.up + more, down=fleet.down + more)
