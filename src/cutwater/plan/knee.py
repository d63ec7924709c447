"""Round latency against server compute, and the knee: how much server is worth having."""

from collections.abc import Sequence
from dataclasses import dataclass

from cutwater.plan.optimum import MOST_SHARED, Field, noise, optimum
from cutwater.plan.problem import Problem
from cutwater.plan.size import LIMITLESS, smallest_server

KNEE = 0.9
"""At the knee a server saves this part of the time that any server could save."""


@dataclass(frozen=True)
class Knee:
    """Beyond this compute, even a server without limits saves little more."""

    compute: float
    """FLOPS."""
    latency: float
    """Seconds of a round with it."""
    without: float
    """Seconds of a round without a server, or, where a client needs one, with the least looked at."""
    floor: float
    """Seconds of a round that no server can go below."""
    at_least: float
    """FLOPS: no smaller server saves so much; the same as ``compute`` but where links are shared."""


def server_curve(problem: Problem, computes: Sequence[float]) -> list[float]:
    """The best round latency for each server."""
    if problem.band.shared:
        return [optimum(problem.at_compute(compute)) for compute in computes]
    field = Field.plain(problem)
    return [field.optimum(compute) for compute in computes]


def knee(problem: Problem, least: float | None = None, most: float = LIMITLESS) -> Knee | None:
    """The smallest server with 90 % of what any could save; None outside of ``least`` to ``most`` FLOPS.

    None, too, where a client can't do without a server and no least one is given to compare with, and where
    more than :data:`MOST_SHARED` clients share links.
    """
    able = problem.allowed.any_of(problem.costs.server == 0).all()
    if (not able and least is None) or (problem.band.shared and len(problem) > MOST_SHARED):
        return None
    floor, without = server_curve(problem, [LIMITLESS, 0.0 if able else least or 0.0])
    goal = without - KNEE * (without - floor)
    if without <= floor * (1 + noise(problem)):
        return None
    found = smallest_server(problem, goal)
    if not (least or 0.0) < found.compute <= most:
        return None
    (latency,) = server_curve(problem, [found.compute])
    return Knee(found.compute, latency, without, floor, found.at_least)


def with_knee(found: Knee | None) -> dict[str, dict[str, float] | None]:
    """The key that tells of a knee, or that there is none, in JSON."""
    return {"knee": None if found is None else vars(found)}
