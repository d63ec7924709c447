"""What a round took, by the stopwatches of both ends: phases, shares, and what that says of a client."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from cutwater.base.jsonfile import document
from cutwater.federate.conditions import Condition
from cutwater.federate.study import Study
from cutwater.flower.wire import Report
from cutwater.plan.latency import PHASES, Phases
from cutwater.train.session import Task

FORMAT = "cutwater.measured"
VERSION = 1
_UNSURE = 5.0
"""Seconds by which Flower's messages differ: its nodes look for orders every 3 s, the launcher of their apps
every second, both look for replies, and so do we."""
NOTHING = Phases(*(0.0 for _ in PHASES))


@dataclass(frozen=True)
class Measured:
    """One client's session, beyond its phases."""

    name: str
    wall_seconds: float
    """From sending the order to having the reply."""
    session_seconds: float
    """The session itself, as the client measured it."""
    message_seconds: float
    """The rest: Flower's messages, starting the app, building the model."""
    setup_seconds: float
    """Of that, what the app itself took to get ready."""
    bytes_up: int
    bytes_down: int
    promised_share: float
    """f^S of the plan, in FLOPS."""
    delivered_share: float | None
    """FLOPs over the seconds that the session asked for them."""
    promised_part: float | None = None
    """f_k / Σf, of the compute that the server did while the session had work for it."""
    delivered_part: float | None = None
    """What the session got of it: more than promised where others left theirs unused."""
    model_timed: bool = True
    """Whether the model's transfer was; if not, its seconds are those of the plan."""


@dataclass(frozen=True)
class RoundMeasured:
    """measured/00001.json of a run folder."""

    round: int
    emulated: bool
    wall_seconds: float
    """Of the whole round, as a clock on the wall shows it."""
    clients: tuple[Measured, ...]

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document."""
        body = asdict(self)
        body["clients"] = [asdict(client) for client in self.clients]
        return document(FORMAT, VERSION, body)


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
    study: Study, task: Task, took: Phases[float], crossed: tuple[int, int] | None, *, timed: bool
) -> Condition:
    """f^C and r of a client, from what a session took and the bytes that crossed the cut, up and down.

    The model's own transfer counts if it was ``timed``. What can't be told is NaN.
    """
    problem = study.problem([study.client(task.client)])
    costs, work = problem.costs, float(problem.work[0])
    flops = float(costs.client[task.cut - 1]) * work
    bits = float(costs.bits[task.cut - 1])
    up, down = (8.0 * size for size in crossed or (0, 0))
    up_seconds, down_seconds = took.smashed_upload, took.gradient_download
    if timed:
        up, down = up + bits, down + bits
        up_seconds, down_seconds = up_seconds + took.model_upload, down_seconds + took.model_download
    return Condition(
        compute=_rate(flops, took.client), up=_rate(up, up_seconds), down=_rate(down, down_seconds)
    )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if amount > 0 and seconds > 0 else math.nan
