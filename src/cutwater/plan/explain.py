"""A plan in words: who is the bottleneck, who shares the server, what would help most."""

from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from cutwater.base.units import show_compute, show_rate, show_seconds, show_size
from cutwater.plan.marginal import finish_last
from cutwater.plan.root import AT_OPTIMUM
from cutwater.plan.server_memory import refused, session_bits
from cutwater.plan.whatif import Change, Increment, ranking

if TYPE_CHECKING:  # a plan explains itself by this module
    from cutwater.plan.value import Plan

MOST = 6
"""Names that a sentence can bear."""
TOLD = 3
"""Changes that would help."""
FASTER = 1.1
"""How much faster what is asked about would be."""


def explain(plan: "Plan") -> str:
    """A few sentences about a plan."""
    lines = [_result(plan), _bottleneck(plan), _sharing(plan), *_links(plan), *_memory(plan), _advice(plan)]
    return "\n".join([*lines, *_tied(plan)])


def _result(plan: "Plan") -> str:
    text = f"A round takes {show_seconds(plan.latency)} ({plan.planner}"
    text += f", {plan.outcome})" if plan.outcome else ")"
    if not isfinite(plan.gap):
        return f"{text}."
    if plan.gap <= AT_OPTIMUM:
        return f"{text}: no plan is faster."
    return f"{text}: at most {plan.gap:.1%} above the optimum of {show_seconds(plan.lower_bound)}."


def _bottleneck(plan: "Plan") -> str:
    if plan.latency == 0:
        return "Nothing is computed, learned or sent: every client is done at once."
    client = plan.bottleneck
    parts = {"its own computing": client.phases.client, "the link": client.phases.link}
    if client.mode == "split":
        parts["the server"] = client.phases.server
    largest_first = sorted(parts.items(), key=lambda part: -part[1])
    shown = ", ".join(f"{part} {seconds / client.latency:.0%}" for part, seconds in largest_first)
    how = "trains the whole model" if client.mode == "fedavg" else f"is cut after layer {client.cut}"
    if client.second_cut:
        how += f", and again after layer {client.second_cut}"
    last = int(np.count_nonzero(finish_last(plan.latencies)))
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


def _tied(plan: "Plan") -> list[str]:
    """A way out where shared weights rule out every cut."""
    problem = plan.problem
    if problem is None or problem.layers < 3 or problem.stay.any():
        return []
    reasons = [cut.ruled_out for cut in problem.profile.cuts[:-1]]
    if not all(reasons):
        return []
    return [f'No cut can be used: {reasons[0]}. With labels = "stay" there are pairs of cuts.']


def _links(plan: "Plan") -> list[str]:
    """How much of shared links is given out."""
    if plan.rates is None or plan.problem is None:
        return []
    band, (up, down) = plan.problem.band, plan.rates
    links = (("uplink", band.up, up), ("downlink", band.down, down))
    return [
        f"All clients share the {name}'s {show_rate(capacity)}: {float(rates.sum()) / capacity:.0%} of it is "
        "planned."
        for name, capacity, rates in links
        if isfinite(capacity)
    ]


def _memory(plan: "Plan") -> list[str]:
    """Whose sessions the server has no room for."""
    if plan.problem is None or not isfinite(plan.problem.server.memory):
        return []
    needs = float(session_bits(plan.problem, plan).sum())
    names, memory = refused(plan.problem, plan), show_size(plan.problem.server.memory)
    if not names:
        return [f"All sessions together hold {show_size(needs)} of the server's {memory} of memory."]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return [
        f"All sessions together need {show_size(needs)} of memory at the server, which has {memory}: "
        f"{', '.join(names[:MOST])}{more} would be lost. Raise memory in [server], lower batch_size, or let "
        "fewer clients take part in a round."
    ]


def _train(clients: int) -> str:
    return "1 trains" if clients == 1 else f"{clients} train"


def _advice(plan: "Plan") -> str:
    """What a tenth more of each thing is worth: the best of all such changes, each planned anew."""
    if plan.latency == 0:
        return "There is nothing left to shorten."
    if plan.rates is not None:
        return "What would help most is found by planning anew, since all rates move: cutwater whatif does."
    if plan.problem is None:
        return "What would help most is told where the plan is made."
    if plan.gap > AT_OPTIMUM:
        less = show_seconds(plan.latency - plan.lower_bound)
        best = (
            f"the exact planner, whose round is {less} shorter"
            if plan.lower_bound > 0
            else "the exact planner"
        )
        return f"What would help most: {best}."
    found = ranking(plan.problem, Increment(0.0, 0.0, FASTER), top=TOLD, latency=plan.latency)
    if not found.changes:
        return "No single change helps: several clients that no share would help are equally slow."
    told = ", ".join(f"{_named(change)} ({show_seconds(change.saved)} less)" for change in found.changes)
    return f"What would help most, each planned anew: {told}."


def _named(change: Change) -> str:
    if change.kind == "server compute":
        return "10 % more server compute"
    return (
        f"a 10 % faster link for {change.client}"
        if change.kind == "link"
        else f"a 10 % faster {change.client}"
    )
