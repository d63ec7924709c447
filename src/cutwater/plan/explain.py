"""A plan in words: who is the bottleneck, who shares the server, what would help most."""

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from cutwater.base.units import show_compute, show_seconds
from cutwater.plan.marginal import TOGETHER

if TYPE_CHECKING:  # a plan explains itself by this module
    from cutwater.plan.value import Plan

MOST = 6
"""Names that a sentence can bear."""


def explain(plan: "Plan") -> str:
    """A few sentences about a plan."""
    return "\n".join([_result(plan), _bottleneck(plan), _sharing(plan), _advice(plan)])


def _result(plan: "Plan") -> str:
    text = f"A round takes {show_seconds(plan.latency)} ({plan.planner}"
    text += f", {plan.outcome})" if plan.outcome else ")"
    if not isfinite(plan.gap):
        return f"{text}."
    if plan.gap <= 1e-9:
        return f"{text}: no plan is faster."
    return f"{text}: at most {plan.gap:.1%} above the optimum of {show_seconds(plan.lower_bound)}."


def _bottleneck(plan: "Plan") -> str:
    if plan.latency == 0:
        return "Nothing is computed, learned or sent: every client is done at once."
    client = plan.bottleneck
    parts = {"its own computing": client.phases.client, "the link": client.phases.link}
    if client.mode == "split":
        parts["the server"] = client.phases.server
    shown = ", ".join(f"{part} {seconds / client.latency:.0%}" for part, seconds in _largest_first(parts))
    how = "trains the whole model" if client.mode == "fedavg" else f"is cut after layer {client.cut}"
    last = int(np.count_nonzero(plan.latencies >= plan.latency * (1 - TOGETHER)))
    which = "The bottleneck is" if last == 1 else f"{last} clients finish together; what weighs most is"
    at_once = ", part of it at the same time" if client.phases.overlap > 0 else ""
    return f"{which} {client.name}, which {how}: {shown}{at_once}."


def _sharing(plan: "Plan") -> str:
    sharing = np.flatnonzero(plan.shares > 0)
    whole = int(np.count_nonzero(plan.cuts == plan.layers))
    if not sharing.size:
        return f"No client uses the server; {_train(whole)} the whole model."
    first = sharing[np.argsort(-plan.shares[sharing], kind="stable")][:MOST]
    names = ", ".join(f"{plan.names[k]} {plan.shares[k] / plan.server_compute:.0%}" for k in first)
    more = f" and {sharing.size - first.size} more" if sharing.size > first.size else ""
    idle = 1 - float(plan.shares.sum()) / plan.server_compute
    spare = f"; {idle:.0%} of it is left over" if idle > 0.005 else ""
    shares = "shares" if sharing.size == 1 else "share"
    return (
        f"{sharing.size} of {len(plan)} clients {shares} the server's {show_compute(plan.server_compute)}: "
        f"{names}{more}{spare}. {_train(whole)} the whole model."
    )


def _train(clients: int) -> str:
    return "1 trains" if clients == 1 else f"{clients} train"


def _advice(plan: "Plan") -> str:
    """What 10 % more of each thing is worth, to first order, best first."""
    per_flops, effect = plan.marginal
    options = {"10 % more server compute": 0.1 * plan.server_compute * per_flops}
    for k in np.argsort(-effect * plan.latencies, kind="stable")[:MOST]:
        if effect[k] > 0:
            options[f"a 10 % faster link for {plan.names[k]}"] = float(effect[k] * plan.gains.link[k])
            options[f"a 10 % faster {plan.names[k]}"] = float(effect[k] * plan.gains.device[k])
    if plan.latency == 0:
        return "There is nothing left to shorten."
    last = plan.latencies >= plan.latency * (1 - TOGETHER)
    if np.isnan(plan.gains.waits[last]).any():
        return "What would help most is told where the plan is made: parts overlap, and times don't add up."
    best = [(what, seconds) for what, seconds in _largest_first(options) if seconds > 0][:3]
    if not best:
        return "No single change helps: several clients that no share would help are equally slow."
    return (
        "What would help most: "
        + ", ".join(f"{what} (about {show_seconds(s)} less)" for what, s in best)
        + "."
    )


def _largest_first(parts: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(parts.items(), key=lambda part: -part[1])
