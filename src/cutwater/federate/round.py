"""A round: who takes part, with which cut and share, as planned and as it went (paper, Sec. III-B)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutwater.base.jsonfile import document
from cutwater.federate.conditions import Condition
from cutwater.federate.estimates import Estimates
from cutwater.federate.study import Study
from cutwater.plan.fleet import Client
from cutwater.plan.latency import NOTHING, Phases
from cutwater.plan.planners import solve_by
from cutwater.plan.value import ClientPlan, Plan

FORMAT = "cutwater.round"
VERSION = 1


@dataclass(frozen=True)
class ClientOutcome:
    """One client's part in a round: what was planned for it, and what came of that."""

    plan: ClientPlan
    """Under the believed conditions."""
    actual: Phases[float]
    """Seconds by phase under the true (or measured) ones."""
    outcome: str = "done"
    """"done", or why the client's update does not count."""
    delivered_share: float | None = None
    """f^S as measured, where it is."""
    bytes_up: int | None = None
    """What crossed its link, where a session was carried out."""
    bytes_down: int | None = None

    @property
    def name(self) -> str:
        """The client's name."""
        return self.plan.name

    @property
    def cut(self) -> int:
        """l_k."""
        return self.plan.cut

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        plan = self.plan
        return {
            "name": plan.name,
            "cut": plan.cut,
            "share": plan.share,
            "delivered_share": self.delivered_share,
            "mode": plan.mode,
            "outcome": self.outcome,
            "alone_seconds": plan.alone,
            "planned_seconds": plan.latency,
            "actual_seconds": self.actual.total,
            "planned_bytes_up": plan.bytes_up,
            "planned_bytes_down": plan.bytes_down,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "planned": plan.phases.to_json(),
            "actual": self.actual.to_json(),
        }


def unplanned(name: str, layers: int) -> ClientPlan:
    """What stands for the plan of a client that was not there: the whole model, as far as anybody knows."""
    return ClientPlan(name, layers, 0.0, "fedavg", 0.0, NOTHING, 0.0, 0.0, None)


@dataclass(frozen=True)
class Outcome:
    """How a round went by the clock."""

    round: int
    plan: Plan
    parts: tuple[ClientOutcome, ...]
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


def plan_round(
    study: Study, number: int, names: Sequence[str], estimates: Estimates, holds: Mapping[str, int]
) -> Plan:
    """Phase 1: cuts and shares of these clients, on what is believed of them in this round.

    ``holds`` says of how many layers they have the weights that do not learn.
    """
    clients = [study.client(name) for name in names]
    believed = [estimates.in_round(study.truth, client, number) for client in clients]
    problem = study.problem(under(clients, believed, holds))
    return solve_by(problem, study.planner, study.planner_options)


def under(
    clients: Sequence[Client], conditions: Sequence[Condition], holds: Mapping[str, int]
) -> list[Client]:
    """The same clients with the compute and rates of a round, and with the fixed weights they hold."""
    return [
        replace(
            client,
            rate=None,
            compute=now.compute,
            up=now.up,
            down=now.down,
            holds=max(client.holds, holds.get(client.name, 0)),
        )
        for client, now in zip(clients, conditions, strict=True)
    ]


def below_quorum(done: int, clients: int, quorum: int) -> str | None:
    """Why a round with so few updates counts for nothing; None if they are enough."""
    return f"{done} of {clients} clients were done, but the quorum is {quorum}" if done < quorum else None


def _seconds(part: ClientOutcome) -> float:
    return float(part.actual.total)
