"""Answers to a page: the plan as columns, the curve over server compute, the table of planners."""

import csv
import io
import json
import time
from math import isfinite
from typing import Any

import numpy as np

from cutwater.base.errors import PlanError, ScenarioError
from cutwater.codec.words import any_lossy
from cutwater.plan.busy import RESOURCES, Busy
from cutwater.plan.exact import certified_bound
from cutwater.plan.latency import OVERLAP, PHASES, latency_alone
from cutwater.plan.planners import certify, run, standing
from cutwater.plan.problem import Problem
from cutwater.report.knee import knee, server_curve
from cutwater.web.state import PLANNERS, Asked
from cutwater.web.step import client_data, lossy_note, wire_data

COLUMNS = ("cut", "share", "alone", "wire", "waits", "session", *PHASES, OVERLAP)
"""Of each client: ``wire`` and ``waits`` are places in the lists ``wires`` and ``resources``."""
POINTS, FEW_POINTS, MANY = 61, 25, 2000
"""Points of the curve, and how many of them for a large fleet."""
WIDEST = 1e9
"""The largest over the smallest server of a curve."""


def plan_answer(asked: Asked) -> bytes:
    """A line of JSON, padded to eight bytes, and then the columns as little-endian float64.

    Numbers reach the page as they are: ten thousand clients take a millisecond to write and none to parse.
    """
    plan, problem = asked.plan, asked.problem
    alone, waits = latency_alone(problem), Busy.of(plan.phases).places
    told = (plan.cuts, plan.shares, alone, plan.wires, waits, plan.latencies)
    columns = np.array([*told, *plan.phases, plan.phases.overlap], dtype="<f8")
    whole = alone.max()
    head = {
        "columns": COLUMNS,
        "count": len(plan),
        "wires": [wire_data(problem, wire) for wire in plan.options],
        "lossy": lossy_note(plan),
        "resources": RESOURCES,
        "client": client_data(problem, plan, asked.shown),
        "planner": plan.planner,
        "model": plan.model,
        "layers": plan.layers,
        "server_compute": plan.server_compute,
        "latency": plan.latency,
        "lower_bound": plan.lower_bound,
        "outcome": plan.outcome,
        "fedavg": float(whole) if np.isfinite(whole) else None,
        "explanation": plan.explain().splitlines(),
    }
    line = json.dumps(head, allow_nan=False).encode() + b"\n"
    return line.rjust(-(-len(line) // 8) * 8) + columns.tobytes()


def details_answer(asked: Asked, least: float, most: float) -> dict[str, Any]:
    """What may come a moment later: the curve with its knee, the planners side by side, the layers' names."""
    if not 0 < least < most <= least * WIDEST:
        raise ScenarioError(
            f"a curve from {least:g} to {most:g} FLOPS is none: give a low end above 0 and a higher high end"
        )
    problem = asked.problem
    computes = np.geomspace(least, most, POINTS if len(problem) <= MANY else FEW_POINTS).tolist()
    bend = knee(problem, least, most)
    return {
        "curve": {"compute": computes, "latency": server_curve(problem, computes)},
        "knee": None if bend is None else vars(bend),
        "planners": compare(problem),
        "layer_names": [cut.name for cut in problem.profile.cuts],
    }


def compare(problem: Problem) -> list[dict[str, Any]]:
    """All planners of the page, the fastest round first; a planner without a plan says why."""
    bound = certified_bound(problem)
    rows = [_row(problem, name, bound) for name in PLANNERS]
    return sorted(rows, key=lambda row: standing(row["planner"], row["latency"], row.get("gap")))


def _row(problem: Problem, name: str, bound: float) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        plan = run(problem, name)
    except PlanError as error:
        return {"planner": name, "latency": None, "error": str(error)}
    seconds = time.perf_counter() - began
    plan = certify(problem, plan, bound)
    sharing = int((plan.shares > 0).sum())
    gap = plan.gap if isfinite(plan.gap) else None
    return {"planner": name, "latency": plan.latency, "gap": gap, "seconds": seconds, "sharing": sharing}


def plan_csv(asked: Asked) -> str:
    """The plan as a table for spreadsheets: FLOPS and seconds, plain numbers."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    times = (f"{phase}_seconds" for phase in (*PHASES, OVERLAP))
    plain = ("schedule", "up", "down")
    more = (*plain, "lossy", "bytes_up", "bytes_down", "waits_for")
    writer.writerow(["name", "cut", "share_flops", "mode", *more, "latency_seconds", *times])
    for client in asked.plan.clients:
        phases, split = client.phases.to_json(), client.mode == "split"
        how = [getattr(client, key) if split else "" for key in plain]
        lossy = "yes" if split and any_lossy(client.up, client.down) else "no"
        # A name that starts a formula in a spreadsheet is kept from being one.
        name = f"'{client.name}" if client.name[:1] in "=+-@\t" else client.name
        told = [client.cut, client.share, client.mode, *how, lossy, client.bytes_up, client.bytes_down]
        waits_for = Busy.of(client.phases).waits_for
        writer.writerow([name, *told, waits_for, client.latency, *phases.values()])
    return out.getvalue()


def warm_up(asked: Asked) -> None:
    """Load compiled code before the first drag."""
    plan_answer(asked)
    details_answer(asked, 1e11, 1e12)
