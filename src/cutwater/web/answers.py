"""Answers to a page: the plan as columns, the curve over server compute, the table of planners."""

import json
import time
from math import isfinite
from typing import Any

import numpy as np

from cutwater.base.errors import ScenarioError
from cutwater.base.units import parse_time
from cutwater.federate.record import ratio
from cutwater.plan.busy import RESOURCES, Busy
from cutwater.plan.exact import certified_bound
from cutwater.plan.knee import knee, server_curve, with_knee
from cutwater.plan.latency import OVERLAP, PHASES, latency_alone
from cutwater.plan.marginal import finish_last
from cutwater.plan.planners import PlannerResult, judged, standing
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Problem
from cutwater.plan.shared_links import fair_rates
from cutwater.plan.size import Size, faster, needed
from cutwater.plan.table import csv_pieces, json_pieces
from cutwater.web.fleet_text import to_csv
from cutwater.web.state import PLANNERS, Asked
from cutwater.web.step import client_data, lossy_note, wire_data

COLUMNS = (
    *("cut", "second_cut", "share", "alone", "wire", "waits", "session", "last", "rate_up", "rate_down"),
    *(*PHASES, OVERLAP),
)
"""Of each client: ``wire`` and ``waits`` are places in the lists ``wires`` and ``resources``; ``last`` is 1
for those who end the round; rates are those of a client's own link, or what it gets of a shared one."""
POINTS, FEW_POINTS, MANY = 61, 25, 2000
"""Points of the curve, and how many of them for a large fleet."""
SHARED_POINTS = 13
"""The same where lines are shared: each is a search of its own."""
MOST_LINKS = 15
"""Links of a mix that are told one by one."""
WIDEST = 1e9
"""The largest over the smallest server of a curve."""


def plan_answer(asked: Asked) -> bytes:
    """A line of JSON, padded to eight bytes, and then the columns as little-endian float64.

    Numbers reach the page as they are: ten thousand clients take a millisecond to write and none to parse.
    """
    plan, problem = asked.plan, asked.problem
    rates = (problem.fleet.up, problem.fleet.down) if plan.rates is None else plan.rates
    waits = Busy.of(plan.phases).places
    told = (plan.cuts, plan.second_cuts, plan.shares, plan.details.alone, plan.wires, waits, plan.latencies)
    last = finish_last(plan.latencies)
    columns = np.array([*told, last, *rates, *plan.phases, plan.phases.overlap], dtype="<f8")
    fedavg = _fedavg(problem)
    head = {
        "columns": COLUMNS,
        "count": len(plan),
        "wires": [wire_data(problem, wire) for wire in plan.options],
        "lossy": lossy_note(plan),
        "resources": RESOURCES,
        "client": client_data(problem, plan, asked.shown),
        "layers": plan.layers,
        "server_compute": plan.server_compute,
        "latency": plan.latency,
        "gap": _finite(plan.gap),
        "fedavg": fedavg,
        "speed_up": ratio(fedavg, plan.latency),
        "band": {"up": _finite(problem.band.up), "down": _finite(problem.band.down)},
        "explanation": plan.explain().splitlines(),
    }
    line = json.dumps(head, allow_nan=False).encode() + b"\n"
    return line.rjust(-(-len(line) // 8) * 8) + columns.tobytes()


def _fedavg(problem: Problem) -> float | None:
    """The round of FedAvg, at the rates that the planner of that name has; None where it has no plan."""
    fair = problem.at_rates(*fair_rates(problem)) if problem.band.shared else problem
    return _finite(float(latency_alone(fair).max()))


def _finite(value: float) -> float | None:
    """What JSON has a number for: no gap that nothing is known of, no round without an end, no limit."""
    return value if isfinite(value) else None


def details_answer(asked: Asked, least: float, most: float) -> dict[str, Any]:
    """What may come a moment later: the curve with its knee, the planners side by side, the layers' names."""
    if not 0 < least < most <= least * WIDEST:
        raise ScenarioError(
            f"a curve from {least:g} to {most:g} FLOPS is none: give a low end above 0 and a higher high end"
        )
    problem = asked.problem
    points = SHARED_POINTS if problem.band.shared else POINTS if len(problem) <= MANY else FEW_POINTS
    computes = np.geomspace(least, most, points).tolist()
    return {
        "curve": {"compute": computes, "latency": server_curve(problem, computes)},
        **with_knee(knee(problem, least, most)),
        "planners": compare(problem),
        "layer_names": [cut.name for cut in problem.profile.cuts],
    }


def size_answer(asked: Asked, seconds: object) -> dict[str, Any]:
    """What a round that takes at most so long needs: as `cutwater size` tells it, and for a page to use.

    The smallest server, or why none is enough; with prices of both, the cheapest mix of server and links.
    """
    target, problem, prices = parse_time(seconds, "the round"), asked.problem, asked.prices
    found = needed(problem, target, prices)
    smallest, why, mix = found.server, found.infeasible, found.mix
    return {
        "round": target,
        "server": _server(smallest, prices.cost(compute=smallest.compute)) if smallest else None,
        "infeasible": why,
        "cheapest": None if mix is None else _server(mix, mix.cost) | _faster_links(problem, mix, prices),
        "money": prices.money or None,
    }


def _server(found: Size, cost: float | None) -> dict[str, Any]:
    # A server as it is written must not be a trifle smaller than the one that is needed.
    text = f"{found.compute * (1 + 1e-12) / 1e9!r} GFLOPS"
    return {"compute": found.compute, "at_least": found.at_least, "text": text, "cost": cost}


def _faster_links(problem: Problem, mix: Size, prices: Prices) -> dict[str, Any]:
    """Whose links are faster, the most first, and the fleet with them."""
    fleet = faster(problem.fleet, mix.links * (1 + 1e-12))
    order = np.argsort(-mix.links, kind="stable")[: np.count_nonzero(mix.links)]
    return {
        "count": len(order),
        "links": [
            {
                "name": fleet.names[k],
                "more": float(mix.links[k]),
                "up": float(fleet.up[k]),
                "down": float(fleet.down[k]),
                "cost": prices.cost(link=float(mix.links[k])),
            }
            for k in order[:MOST_LINKS].tolist()
        ],
        "csv": to_csv(fleet),
    }


def compare(problem: Problem) -> list[dict[str, Any]]:
    """All planners of the page, the fastest round first; a planner without a plan says why."""
    bound = certified_bound(problem)
    results = [judged(problem, name, bound, time.perf_counter) for name in PLANNERS]
    return [_row(result) for result in sorted(results, key=standing)]


def _row(result: PlannerResult) -> dict[str, Any]:
    found = {"planner": result.planner, "latency": result.latency}
    if result.error is not None:
        return found | {"error": result.error}
    return found | {"gap": result.gap, "seconds": result.planning_seconds, "sharing": result.sharing}


def plan_csv(asked: Asked) -> str:
    """The plan as a table for spreadsheets."""
    return b"".join(csv_pieces(asked.plan)).decode()


def plan_json(asked: Asked) -> str:
    """The plan as `cutwater plan --json` prints it."""
    return b"".join(json_pieces(asked.plan, with_knee(knee(asked.problem)))).decode()
