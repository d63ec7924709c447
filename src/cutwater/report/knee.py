"""Round latency against server compute, and the knee: how much server is worth having."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.plan.exact import exact
from cutwater.plan.problem import Problem, Server

WORTH = 0.9
"""At the knee a server saves this part of the time that any server could save."""


LIMITLESS = 1e30
"""FLOPS of a server that takes no time, whatever the cuts and wires."""


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


def server_curve(problem: Problem, computes: Sequence[float]) -> list[float]:
    """The best round latency for each server."""
    return [_latency(problem, compute) for compute in computes]


def knee(problem: Problem, least: float, most: float) -> Knee | None:
    """The smallest server with 90 % of what any could save; None outside of ``least`` to ``most`` FLOPS."""
    floor = _latency(problem, LIMITLESS)
    able = problem.allowed.any_of(problem.costs.server == 0).all()
    without = _latency(problem, 0.0 if able else least)
    goal = without - WORTH * (without - floor)
    if without <= floor * (1 + 1e-9) or _latency(problem, most) > goal or _latency(problem, least) <= goal:
        return None
    low, high = np.log(least), np.log(most)
    while high - low > 1e-3:
        middle = (low + high) / 2
        if _latency(problem, float(np.exp(middle))) > goal:
            low = middle
        else:
            high = middle
    compute = float(np.exp(high))
    return Knee(compute, _latency(problem, compute), without, floor)


def _latency(problem: Problem, compute: float) -> float:
    return exact(problem.replace(server=Server(compute)), leftover="none").latency
