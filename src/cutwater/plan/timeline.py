"""One step of one client, drawn out: when each part of a full mini-batch is at which station.

The stations are those of :mod:`cutwater.plan.schedule`, which has the length of the same step in closed form;
the round trip is half on the way up and half on the way down. A client with the whole model passes forward
and backward with one part after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.base.errors import PlanError
from cutwater.plan import latency
from cutwater.plan.busy import NOTHING, RESOURCES, ROUND_TRIP
from cutwater.plan.problem import Problem
from cutwater.plan.schedule import STATIONS
from cutwater.plan.session import Wire, part_sizes

if TYPE_CHECKING:  # a plan explains itself by this module
    from cutwater.plan.value import Plan

_CLIENT, _LINK_UP, _SERVER_SIDE, _LINK_DOWN, _ = RESOURCES
LANES = dict(zip(STATIONS, (_CLIENT, _LINK_UP, _SERVER_SIDE, _LINK_DOWN, _CLIENT), strict=True))
"""What works at each station, for people."""
_FORWARD, _UP, _SERVER, _DOWN, _BACKWARD = STATIONS
THREE_PARTS = (_FORWARD, _UP, _SERVER, _DOWN, _FORWARD, _BACKWARD, _UP, _SERVER, _DOWN, _BACKWARD)
"""What a part passes where the tail stays on the client: head, middle, tail, and all the way back."""


@dataclass(frozen=True)
class Stay:
    """One part at one station."""

    part: int
    """0, 1, …"""
    station: str
    """Of :data:`cutwater.plan.schedule.STATIONS`."""
    begin: float
    end: float
    arrives: float
    """When what comes of it is at the next station: later than the end by half a round trip, on a link."""
    critical: bool = False
    """Whether it is on the longest path: the step ends so late because of it."""

    @property
    def lane(self) -> str:
        """What works on it."""
        return LANES[self.station]


@dataclass(frozen=True)
class Timeline:
    """One step of one client, from 0 on."""

    name: str
    """The name of the client whose step it is."""
    cut: int
    wire: Wire | None
    """None where the client has the whole model."""
    sizes: tuple[int, ...]
    """Samples of each part."""
    rtt: float
    stays: tuple[Stay, ...]
    """In the order that they begin in; none for stations that a client with the whole model does not have."""
    second_cut: int = 0
    """Of a client with a tail."""

    @property
    def seconds(self) -> float:
        """When the step is over."""
        return max(stay.end for stay in self.stays)

    @property
    def critical(self) -> dict[str, float]:
        """Seconds on the longest path, by resource; they add up to the whole step."""
        spent = dict.fromkeys(RESOURCES, 0.0)
        for stay in self.stays:
            if stay.critical:
                spent[stay.lane] += stay.end - stay.begin
        # A path that goes over the link goes up once, and then down once: from part to part only in turn.
        crossings = sum(stay.critical and stay.station == _UP for stay in self.stays)
        overlapped = self.wire is not None and self.wire.schedule == "overlapped"
        spent[ROUND_TRIP] = self.rtt * (min(crossings, 1) if overlapped else crossings)
        return spent

    @property
    def waits_for(self) -> str:
        """What takes most of the longest path, in a word for people."""
        spent = self.critical
        return max(spent, key=lambda name: spent[name]) if any(spent.values()) else NOTHING


def timeline(problem: Problem, plan: "Plan", client: int | str) -> Timeline:
    """One step of one client of a plan for this problem: a full mini-batch, or its only one if smaller."""
    k = plan.place(client)
    cut, second_cut, full = int(plan.cuts[k]), int(plan.second_cuts[k]), problem.steps.full
    size = int(problem.batch_size[k] if full.count[k] > 0 else problem.fleet.samples[k])
    sizes = part_sizes(size, problem.session.micro_batches)
    split = cut != problem.layers
    wire, rtt = (plan.options[plan.wires[k]], float(problem.fleet.rtt[k])) if split else (None, 0.0)
    if wire is None:
        both = [(each[0], each[-1]) for each in _stations(problem, plan, k, wire, sizes)]
        stays = _in_turn(both, rtt, (_FORWARD, _BACKWARD))
    elif second_cut:
        stays = _in_turn(_three_parts(problem, plan, k, wire, sizes), rtt, THREE_PARTS)
    elif wire.schedule == "overlapped":
        stays = _overlapped(_stations(problem, plan, k, wire, sizes), rtt)
    else:
        stays = _in_turn(_stations(problem, plan, k, wire, sizes), rtt)
    return Timeline(problem.fleet.names[k], cut, wire, tuple(sizes), rtt, tuple(stays), second_cut)


def _stations(
    problem: Problem, plan: "Plan", k: int, wire: Wire | None, sizes: Sequence[int]
) -> list[list[float]]:
    """Seconds of every part at every station."""
    fleet, costs, crossing = problem.fleet, problem.costs, problem.wire_costs
    row, size = int(plan.cuts[k]) - 1, np.array(sizes, dtype=np.float64)
    if wire is not None and wire not in problem.options:
        raise PlanError(f"the plan crosses the cut by {wire}, which is no option of this problem")
    way = 0 if wire is None else problem.options.index(wire)
    bits_up, heads_up = crossing.up(way, row, problem.fresh.at(k))
    columns = (
        latency.client_forward(costs.client_forward[row], size, fleet.compute[k]),
        latency.smashed_upload(bits_up, size, fleet.up[k], heads_up),
        latency.server_forward(costs.server[row], size, plan.shares[k]),
        latency.gradient_download(
            crossing.gradient[way, row], size, fleet.down[k], crossing.gradient_message[way, row]
        ),
        latency.client_backward(costs.client_backward[row], size, fleet.compute[k]),
    )
    return np.array(columns).T.tolist()  # type: ignore[no-any-return]


def _three_parts(
    problem: Problem, plan: "Plan", k: int, wire: Wire, sizes: Sequence[int]
) -> list[list[float]]:
    """Seconds of every part at every station of a client with a tail; see :data:`THREE_PARTS`."""
    fleet, costs, crossing = problem.fleet, problem.costs, problem.wire_costs
    way, size = problem.options.index(wire), np.array(sizes, dtype=np.float64)
    # Rows of the head alone, as if it were cut there and no more, and of head and tail.
    head, both = int(plan.cuts[k]) - 1, int(plan.places[k]) - 1
    compute, share = fleet.compute[k], plan.shares[k]

    def rest(column: Floats) -> float:
        return float(column[both] - column[head])

    up, up_heads = crossing.up(way, np.arange(len(problem.places)), problem.fresh.at(k))
    down, down_heads = crossing.gradient[way], crossing.gradient_message[way]
    columns = (
        latency.client_forward(costs.client_forward[head], size, compute),
        latency.smashed_upload(up[head], size, fleet.up[k], up_heads[head]),
        latency.server_forward(costs.server_forward[both], size, share),
        latency.gradient_download(rest(down), size, fleet.down[k], rest(down_heads)),
        latency.client_forward(rest(costs.client_forward), size, compute),
        latency.client_backward(rest(costs.client_backward), size, compute),
        latency.smashed_upload(rest(up), size, fleet.up[k], rest(up_heads)),
        latency.server_backward(costs.server_backward[both], size, share),
        latency.gradient_download(down[head], size, fleet.down[k], down_heads[head]),
        latency.client_backward(costs.client_backward[head], size, compute),
    )
    return np.array(columns).T.tolist()  # type: ignore[no-any-return]


def _in_turn(
    seconds: Sequence[Sequence[float]], rtt: float, stations: Sequence[str] = STATIONS
) -> list[Stay]:
    found, now = [], 0.0
    for part, times in enumerate(seconds):
        for station, taken in zip(stations, times, strict=True):
            begin, end = now, now + taken
            now = end + _way(station, rtt)
            found.append(Stay(part, station, begin, end, now, critical=True))
    return found


def _way(station: str, rtt: float) -> float:
    return rtt / 2 if station in (_UP, _DOWN) else 0.0


_Cell = tuple[int, int]
"""A part and a station, by place."""


def _overlapped(seconds: Sequence[Sequence[float]], rtt: float) -> list[Stay]:
    """Stations take the parts as they come; the client goes forward with all before it goes backward."""
    parts, last = len(seconds), len(STATIONS) - 1
    begins: dict[_Cell, float] = {}
    ends: dict[_Cell, float] = {}
    arrives: dict[_Cell, float] = {}
    before: dict[_Cell, _Cell | None] = {}
    # All of one station before the next: backward passes need the end of the last forward one.
    for place, station in enumerate(STATIONS):
        for part in range(parts):
            ready: list[tuple[float, _Cell | None]] = [(0.0, None)]
            if part:
                ready.append((ends[part - 1, place], (part - 1, place)))
            if place:
                ready.append((arrives[part, place - 1], (part, place - 1)))
            if place == last:
                ready.append((ends[parts - 1, 0], (parts - 1, 0)))
            begin, cause = max(ready, key=lambda one: one[0])
            begins[part, place], before[part, place] = begin, cause
            ends[part, place] = begin + seconds[part][place]
            arrives[part, place] = ends[part, place] + _way(station, rtt)
    critical, cell = set(), (parts - 1, last) if parts else None
    while cell is not None:
        critical.add(cell)
        cell = before[cell]
    found = [
        Stay(part, STATIONS[place], begin, ends[part, place], arrives[part, place], (part, place) in critical)
        for (part, place), begin in begins.items()
    ]
    return sorted(found, key=lambda stay: (stay.begin, STATIONS.index(stay.station), stay.part))
