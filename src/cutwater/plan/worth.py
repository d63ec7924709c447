"""What overlapping, codecs and round trips are worth: the same fleet's optimum with each, planned anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cutwater.codec.registry import find_codec
from cutwater.plan.exact import exact
from cutwater.plan.problem import Problem
from cutwater.plan.session import Wires

PARTS = (1, 2, 4, 8)
"""Micro-batches that are tried."""
CODECS = ("fp32", "bf16", "int8", "int4")
"""Codecs that are tried, both ways; what `lossless` takes depends on the values."""


@dataclass(frozen=True)
class Worth:
    """The optimum with one codec and number of parts."""

    codec: str
    """Of smashed data and gradients."""
    lossy: bool
    micro_batches: int
    latency: float
    gap: float
    """How far above the optimum it can be at most, as a fraction."""
    rtt: float | None = None
    """The round trip of every client in seconds; None: each client's own."""


def with_wire(problem: Problem, codec: str, micro_batches: int) -> Problem:
    """The same fleet with one codec both ways and so many parts, all schedules and clients' limits aside."""
    fleet = problem.fleet.replace(codecs={}, schedules={})
    session = replace(problem.session, micro_batches=micro_batches)
    return problem.replace(clients=fleet, session=session, wires=Wires.both_ways(codec))


def worth(
    problem: Problem,
    watch: Callable[[], None] = lambda: None,
    *,
    codecs: Sequence[str] = CODECS,
    rtt: float | None = None,
) -> list[Worth]:
    """The optimum for each codec and number of parts; ``watch`` is called after each.

    With an ``rtt`` all clients are so far from the server, in seconds there and back. More parts than the
    smallest mini-batch has samples are left out, and codecs other than fp32 where the profile does not tell
    of the tensors that cross a cut. Where links are shared, parts do not overlap.
    """
    if problem.profile.cuts[0].crossing is None:
        codecs = CODECS[:1]
    parts = [count for count in PARTS if count <= problem.batch_size.min()]
    if problem.band.shared:  # rates are planned for steps in turn
        parts = parts[:1]
    if rtt is not None:
        fleet = problem.fleet
        problem = problem.replace(clients=fleet.replace(rtt=np.full(len(fleet), rtt)))
    found = []
    for codec in codecs:
        for count in parts:
            plan = exact(with_wire(problem, codec, count), leftover="none")
            lossy = not find_codec(codec).lossless
            found.append(Worth(codec, lossy, count, plan.latency, plan.gap, rtt))
            watch()
    return found
