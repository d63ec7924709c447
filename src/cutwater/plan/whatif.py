"""What a change of the fleet would be worth: the marginal value of server compute, links and devices.

Two ways, and every answer says which. *Analytic*: first-order values (:mod:`cutwater.plan.marginal`), which
hold while cuts and groups stay as they are. *Re-solved*: the exact planner's answer to the changed problem,
whatever changes with it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cutwater.plan.exact import exact
from cutwater.plan.marginal import TOGETHER, room, saved
from cutwater.plan.problem import Problem, Server
from cutwater.plan.value import Plan

Method = Literal["analytic", "re-solved"]
Resource = Literal["server compute", "link", "device compute"]

SMALL = 500
"""Up to so many clients, all changed problems are solved in a second or so."""


@dataclass(frozen=True)
class Change:
    """One thing that could be better, and what that is worth."""

    kind: Resource
    client: str | None
    """Whose link or device; None for the server."""
    amount: float
    """How much more: FLOPS, or bits per second both up and down."""
    saved: float
    """Seconds off the round."""
    latency: float
    """The round with the change."""
    method: Method


@dataclass(frozen=True)
class Increment:
    """How much more of each thing is asked about."""

    compute: float = 1e9
    """FLOPS, at the server and at each device."""
    rate: float = 8e6
    """Bits per second, up and down, on each link."""


def analytic(problem: Problem, plan: Plan, step: Increment) -> list[Change]:
    """First-order values of one step of everything.

    A step changes a time in proportion to 1 / (what there is + the step), which is taken as it is: to first
    order in the step itself, a large one would save more than the round takes.
    """
    per_flops, effect = plan.marginal
    fleet, phases = problem.fleet, plan.phases
    upward = (phases.smashed_upload + phases.model_upload) / (fleet.up + step.rate)
    downward = (phases.gradient_download + phases.model_download) / (fleet.down + step.rate)
    link = step.rate * (upward + downward)
    device = step.compute * phases.client / (fleet.compute + step.compute)
    # Where parts overlap, stages don't add up: there, the whole session is worked out anew.
    some = np.flatnonzero(phases.overlap > 0)
    if some.size:
        shares = room(plan.shares, plan.gains.waits)
        at = (plan.cuts[some], shares[some], some, plan.wires[some])
        link[some] = saved(problem, *at, up=fleet.up + step.rate, down=fleet.down + step.rate)
        device[some] = saved(problem, *at, compute=fleet.compute + step.compute)
    more = step.compute * (problem.server.compute / (problem.server.compute + step.compute))

    def change(kind: Resource, client: str | None, amount: float, saved: float) -> Change:
        return Change(kind, client, amount, float(saved), plan.latency - float(saved), "analytic")

    changes = [change("server compute", None, step.compute, per_flops * more)]
    for k, name in enumerate(plan.names):
        changes.append(change("link", name, step.rate, effect[k] * link[k]))
        changes.append(change("device compute", name, step.compute, effect[k] * device[k]))
    return changes


def resolved(
    problem: Problem, plan: Plan, step: Increment, progress: Callable[[int], None] = lambda _: None
) -> list[Change]:
    """The same by solving each changed problem; ``progress`` hears how many are done."""
    changes = []
    for done, (kind, client, amount, changed) in enumerate(_changed(problem, plan, step), start=1):
        latency = exact(changed, leftover="none").latency if changed else plan.latency
        saved = max(plan.latency - latency, 0.0)
        changes.append(Change(kind, client, amount, saved, min(latency, plan.latency), "re-solved"))
        progress(done)
    return changes


def _changed(
    problem: Problem, plan: Plan, step: Increment
) -> Iterator[tuple[Resource, str | None, float, Problem | None]]:
    """Every changed problem; None where the optimum can't change.

    Only a client that finishes with the last can shorten the round when it alone gets better.
    """
    server = Server(problem.server.compute + step.compute)
    yield "server compute", None, step.compute, problem.replace(server=server)
    fleet = problem.fleet
    last = plan.latencies >= plan.latency * (1 - TOGETHER)
    for k, name in enumerate(fleet.names):
        faster = stronger = None
        if last[k]:
            one = np.arange(len(fleet)) == k
            links = fleet.replace(up=fleet.up + step.rate * one, down=fleet.down + step.rate * one)
            faster = problem.replace(clients=links)
            stronger = problem.replace(clients=fleet.replace(compute=fleet.compute + step.compute * one))
        yield "link", name, step.rate, faster
        yield "device compute", name, step.compute, stronger


def whatif(
    problem: Problem,
    step: Increment | None = None,
    *,
    method: Method | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Plan, list[Change]]:
    """The optimum and what more of everything is worth, best first; re-solved unless the fleet is large."""
    step = step or Increment()
    plan = exact(problem, leftover="none")
    if method is None:
        method = "re-solved" if len(problem) <= SMALL else "analytic"
    if method == "analytic":
        changes = analytic(problem, plan, step)
    else:
        changes = resolved(problem, plan, step, progress)
    return plan, sorted(changes, key=lambda change: -change.saved)
