"""What a page tells of one client: a step as a timeline, who is busy, and bytes beside those of fp32."""

from typing import Any

import numpy as np

from cutwater.base.units import show_seconds
from cutwater.codec.registry import any_lossy, in_words
from cutwater.federate.record import ratio
from cutwater.plan.busy import Busy
from cutwater.plan.latency import plain_bits
from cutwater.plan.problem import Problem
from cutwater.plan.schedule import STATIONS
from cutwater.plan.session import Wire
from cutwater.plan.timeline import Timeline, timeline
from cutwater.plan.value import Plan

MOST_PARTS = 200
"""Parts of a step that a page draws."""


def wire_data(problem: Problem, wire: Wire) -> dict[str, Any]:
    """How a split step crosses the cut, for a page."""
    text = f"{in_words(wire.up)} up, {in_words(wire.down)} down"
    parts = problem.session.micro_batches > 1
    lossy = any_lossy(wire.up, wire.down)
    return {**vars(wire), "lossy": lossy, "text": f"{wire.schedule}; {text}" if parts else text}


def lossy_note(plan: Plan) -> str | None:
    """A sentence on the clients whose codecs lose something, if there are any."""
    found = int(np.count_nonzero(plan.may_lose))
    if not found:
        return None
    who = f"{found} of {np.count_nonzero(plan.split)} split clients"
    return f"Lossy: of {who}, smashed data or gradients arrive changed, which changes what is learned."


def client_data(problem: Problem, plan: Plan, name: str) -> dict[str, Any]:
    """One client of a plan."""
    k = plan.place(name)
    client, schedule = plan[k], plan.options[plan.wires[k]].schedule
    plain = plain_bits(problem, int(plan.places[k]), k, schedule)
    split = client.mode == "split"
    busy = Busy.of(client.phases)
    return {
        "name": name,
        "seconds": client.latency,
        "overlap": client.phases.overlap,
        "busy": [
            {"name": word, "seconds": seconds, "part": ratio(seconds, client.latency)}
            for word, seconds in busy.named().items()
        ],
        "waits_for": busy.waits_for,
        "wire": wire_data(problem, plan.options[plan.wires[k]]) if split else None,
        "bytes": [
            _bytes("up", client.up if split else None, client.bytes_up, float(plain[0]) / 8),
            _bytes("down", client.down if split else None, client.bytes_down, float(plain[1]) / 8),
        ],
        "step": _step(problem, plan, k),
    }


def _bytes(way: str, codec: str | None, moved: float, plain: float) -> dict[str, Any]:
    """Of a round, model transfer included, beside what the same plan would move without a codec."""
    told = None if codec is None else in_words(codec)
    return {"way": way, "codec": told, "bytes": moved, "fp32": plain, "part": ratio(moved, plain)}


def _step(problem: Problem, plan: Plan, k: int) -> dict[str, Any] | None:
    if problem.session.micro_batches > MOST_PARTS:
        return None
    step = timeline(problem if plan.rates is None else problem.at_rates(*plan.rates), plan, k)
    stays = sorted(step.stays, key=lambda stay: (STATIONS.index(stay.station), stay.part))
    return {
        "seconds": step.seconds,
        "waits_for": step.waits_for,
        "sizes": step.sizes,
        "lanes": list(dict.fromkeys(stay.lane for stay in stays)),
        "stays": [{**vars(stay), "lane": stay.lane} for stay in stays],
        "says": _says(step),
    }


def _says(step: Timeline) -> str:
    """The timeline in words."""
    parts = len(step.sizes)
    how = f"{sum(step.sizes)} samples" + (f" in {parts} parts" if parts > 1 else "")
    begin = f"A step of {step.name} takes {show_seconds(step.seconds)}: {how}"
    if step.wire is None:
        return f"{begin}, all of it on the client."
    order = f", {step.wire.schedule}" if parts > 1 else ""
    part = ratio(step.critical.get(step.waits_for), step.seconds)
    most = "" if part is None else f", which is {part:.0%} of its longest path"
    return f"{begin}{order}. It waits for {step.waits_for}{most}."
