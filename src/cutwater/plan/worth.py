"""What overlapping and codecs are worth: the optimum of the same fleet under each of them, planned anew."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cutwater.codec import find_codec
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


def with_wire(problem: Problem, codec: str, micro_batches: int) -> Problem:
    """The same fleet with one codec both ways and so many parts, all schedules and clients' limits aside."""
    fleet = problem.fleet.replace(codecs={}, schedules={})
    session = replace(problem.session, micro_batches=micro_batches)
    return problem.replace(clients=fleet, session=session, wires=Wires.both_ways(codec))


def worth(problem: Problem, watch: Callable[[int], None] = lambda done: None) -> list[Worth]:
    """The optimum for each codec and number of parts; ``watch`` hears how many are done.

    More parts than the smallest mini-batch has samples are left out, and codecs where the profile does not
    tell of the tensors that cross a cut.
    """
    codecs: Sequence[str] = CODECS if problem.profile.cuts[0].crossing is not None else CODECS[:1]
    parts = [count for count in PARTS if count <= problem.batch_size.min()]
    found = []
    for codec in codecs:
        for count in parts:
            plan = exact(with_wire(problem, codec, count), leftover="none")
            found.append(Worth(codec, not find_codec(codec).lossless, count, plan.latency))
            watch(len(found))
    return found
