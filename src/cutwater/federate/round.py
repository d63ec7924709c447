"""A round by the virtual clock: who takes part, with which cut and share, who makes it and when (Sec. III-B).

Pure: planned on what is *believed* of the clients, played on what is *true* of them. What the clients learn
meanwhile is the engine's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cutwater.base.errors import PlanError
from cutwater.base.jsonfile import document
from cutwater.federate.conditions import Condition
from cutwater.plan.fleet import Client
from cutwater.plan.latency import Phases, session_phases
from cutwater.plan.problem import Problem
from cutwater.plan.value import Plan
from cutwater.scenario.settings import TrainSettings

FORMAT = "cutwater.round"
VERSION = 1


@dataclass(frozen=True)
class Part:
    """One client's part in a round."""

    name: str
    cut: int
    share: float
    """f^S that the plan promises, in FLOPS."""
    mode: str
    planned: Phases[float]
    """Seconds by phase under the believed conditions."""
    actual: Phases[float]
    """Seconds by phase under the true (or measured) ones."""
    outcome: str = "done"
    """"done", or why the client's update does not count."""
    delivered_share: float | None = None
    """f^S as measured, where it is."""

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {
            "name": self.name,
            "cut": self.cut,
            "share": self.share,
            "delivered_share": self.delivered_share,
            "mode": self.mode,
            "outcome": self.outcome,
            "planned_seconds": float(self.planned.total),
            "actual_seconds": float(self.actual.total),
            "planned": self.planned.to_json(),
            "actual": self.actual.to_json(),
        }


@dataclass(frozen=True)
class Outcome:
    """How a round went by the clock."""

    round: int
    plan: Plan
    parts: tuple[Part, ...]
    seconds: float
    failed: str | None = None
    """Why the round counts for nothing, or None."""

    @property
    def done(self) -> tuple[str, ...]:
        """The clients whose updates count."""
        return tuple(part.name for part in self.parts if part.outcome == "done") if not self.failed else ()

    @property
    def lost(self) -> dict[str, str]:
        """The clients whose updates do not count, each with the reason."""
        return {part.name: part.outcome for part in self.parts if part.outcome != "done"}

    @property
    def bottleneck(self) -> str:
        """The client that the round waited for longest: the slowest that is done, or one that never was."""
        done = [part for part in self.parts if part.outcome == "done"]
        others = [part for part in self.parts if part.outcome != "done"]
        if done and (not others or max(map(_seconds, done)) >= self.seconds):
            return max(done, key=_seconds).name
        # The round went on after its last update: it waited for a client that was lost or too late.
        return max(others, key=_seconds).name

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document of a round."""
        body = {
            "round": self.round,
            "planner": self.plan.planner,
            "planned_seconds": self.plan.latency,
            "actual_seconds": self.seconds,
            "failed": self.failed,
            "clients": [part.to_json() for part in self.parts],
        }
        return document(FORMAT, VERSION, body)


def under(clients: Sequence[Client], conditions: Sequence[Condition]) -> list[Client]:
    """The same clients with the compute and rates of a round."""
    return [
        replace(client, rate=None, compute=now.compute, up=now.up, down=now.down)
        for client, now in zip(clients, conditions, strict=True)
    ]


def play(
    round_: int, plan: Plan, truth: Problem, lost_at: Mapping[str, float | None], settings: TrainSettings
) -> Outcome:
    """Let the clock run: the plan's cuts and shares under the true conditions.

    A round is over when as many clients as wanted are done. Where fewer get there, it is over when the last
    is done or lost, at the deadline at the latest. Who was selected in excess of the wanted clients and
    finishes after them counts as late.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        actual = session_phases(truth, plan.cuts, plan.shares)
    seconds = np.asarray(actual.total, dtype=np.float64)
    if not np.isfinite(seconds).all():
        endless = plan.names[int(np.argmin(np.isfinite(seconds)))]
        raise PlanError(
            f"client {endless!r} would never be done in round {round_}: its compute or rate is too low; "
            "raise them in the scenario, or how much of them its conditions leave"
        )
    lost = np.array([_moment(lost_at.get(name), seconds[k]) for k, name in enumerate(plan.names)])
    wanted = min(settings.clients_per_round or len(plan), len(plan))
    deadline = np.inf if settings.deadline is None else settings.deadline
    # Ties go to the fleet's order, so that the outcome never depends on how a sort treats equals.
    order = np.argsort(seconds, kind="stable").tolist()
    done = [k for k in order if lost[k] == np.inf and seconds[k] <= deadline][:wanted]
    if len(done) == wanted:
        ended = float(seconds[done].max())
    else:
        ended = float(min(np.minimum(seconds, lost).max(), deadline))
    counted = set(done)
    parts = []
    for k, client in enumerate(plan.clients):
        outcome = "done"
        if lost[k] < np.inf and lost[k] <= ended:
            outcome = f"dropped out after {lost_at[client.name]:.0%} of its session"
        elif k not in counted:
            outcome = f"late: {seconds[k]:.4g} s, the round ended after {ended:.4g} s"
        parts.append(
            Part(client.name, client.cut, client.share, client.mode, client.phases, actual.at(k), outcome)
        )
    return Outcome(round_, plan, tuple(parts), ended, below_quorum(len(done), len(plan), settings.quorum))


def below_quorum(done: int, clients: int, quorum: int) -> str | None:
    """Why a round with so few updates counts for nothing; None if they are enough."""
    return f"{done} of {clients} clients were done, but the quorum is {quorum}" if done < quorum else None


def _moment(fraction: float | None, seconds: float) -> float:
    """When a client is lost: after that part of its session, or never."""
    return float("inf") if fraction is None else fraction * seconds


def _seconds(part: Part) -> float:
    return float(part.actual.total)
