"""What a session took, by the stopwatches of both ends, and what that says of its client."""

import math
from dataclasses import replace

from cutwater.federate.conditions import Condition
from cutwater.federate.study import Study
from cutwater.flower.wire import Report
from cutwater.plan.latency import PHASES, Phases
from cutwater.train.session import Task

_UNSURE = 5.0
"""Seconds by which Flower's messages differ: its nodes look for orders every 3 s, the launcher of their apps
every second, both look for replies, and so do we."""


def phases(
    report: Report, planned: Phases[float], wall: float, overhead: float | None, *, emulated: bool
) -> tuple[Phases[float], bool]:
    """Seconds by phase, and whether the model's transfer was timed.

    Flower moves the model in messages, whose fixed cost (polling, starting a process) is no part of eqs. (9)
    and (16): what a message took beyond the session and beyond an empty message is the model's transfer,
    halved. One that is lost in the polling is taken as planned. An emulated link has its own two numbers.
    """
    took = Phases(**{name: report.seconds[name] for name in PHASES})
    if emulated:
        return took, True
    down, up, timed = planned.model_download, planned.model_upload, False
    if overhead is not None:
        moved = wall - report.seconds["session"] - report.seconds["setup"] - overhead
        if moved > 2 * _UNSURE:
            down, up, timed = moved / 2, moved / 2, True
    return replace(took, model_download=down, model_upload=up), timed


def observed(
    study: Study, task: Task, took: Phases[float], crossed: tuple[int, int], model: tuple[int, int]
) -> Condition:
    """f^C and r of a client, from what a session took and the bytes that crossed the cut, up and down.

    ``model`` are the bytes of the model's own transfer, if that was timed. What can't be told is NaN.
    """
    problem = study.problem([study.client(task.client)])
    flops = float(problem.costs.client[task.cut - 1]) * float(problem.work[0])
    up_seconds = took.smashed_upload + (took.model_upload if model[0] else 0.0)
    down_seconds = took.gradient_download + (took.model_download if model[1] else 0.0)
    return Condition(
        compute=_rate(flops, took.client),
        up=_rate(8.0 * (crossed[0] + model[0]), up_seconds),
        down=_rate(8.0 * (crossed[1] + model[1]), down_seconds),
    )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if amount > 0 and seconds > 0 else math.nan
