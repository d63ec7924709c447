"""A round: who takes part, with which cut and share, as planned and as it went (paper, Sec. III-B)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter

from cutwater.federate.conditions import Condition
from cutwater.federate.estimates import Estimates
from cutwater.federate.record import ClientRound, KeptRound
from cutwater.federate.study import Study
from cutwater.plan.fleet import Client, Held
from cutwater.plan.latency import NOTHING
from cutwater.plan.planners import solve_by
from cutwater.plan.session import Wire
from cutwater.plan.value import ClientPlan, Plan

_seconds = attrgetter("actual_seconds")


def unplanned(name: str, layers: int) -> ClientPlan:
    """What stands for the plan of a client that was not there: the whole model, as far as anybody knows."""
    wire = Wire()
    return ClientPlan(
        name, layers, 0.0, wire.schedule, wire.up, wire.down, "fedavg", 0.0, NOTHING, 0.0, 0.0, None
    )


def held_after(before: Mapping[str, Held], kept: Mapping[str, Held]) -> dict[str, Held]:
    """Which fixed weights clients have, after some have kept those of another session."""
    return {**before, **{name: held.joined(before.get(name, Held())) for name, held in kept.items()}}


@dataclass(frozen=True)
class Outcome:
    """How a round went by the clock."""

    round: int
    plan: Plan
    parts: tuple[ClientRound, ...]
    seconds: float
    failed: str | None = None
    """Why the round counts for nothing, or None."""

    @property
    def done(self) -> tuple[str, ...]:
        """The clients whose updates count."""
        return tuple(part.name for part in self.parts if part.done) if not self.failed else ()

    @property
    def lost(self) -> dict[str, str]:
        """The clients whose updates do not count, each with the reason."""
        return {part.name: part.outcome for part in self.parts if not part.done}

    @property
    def bottleneck(self) -> str:
        """The client that the round waited for longest: the slowest that is done, or one that never was."""
        done = [part for part in self.parts if part.done]
        others = [part for part in self.parts if not part.done]
        if done and (not others or max(map(_seconds, done)) >= self.seconds):
            return max(done, key=_seconds).name
        # The round went on after its last update: it waited for a client that was lost or too late.
        return max(others, key=_seconds).name

    @property
    def kept(self) -> KeptRound:
        """The round, client by client, as it is kept."""
        return KeptRound(
            round=self.round,
            planner=self.plan.planner,
            planned_seconds=self.plan.latency,
            actual_seconds=self.seconds,
            failed=self.failed,
            clients=self.parts,
        )


def plan_round(
    study: Study, number: int, names: Sequence[str], estimates: Estimates, holds: Mapping[str, Held]
) -> Plan:
    """Phase 1: cuts and shares of these clients, on what is believed of them in this round.

    ``holds`` says of which layers they have the weights that do not learn.
    """
    clients = [study.client(name) for name in names]
    believed = [estimates.in_round(study.truth, client, number) for client in clients]
    problem = study.problem(under(clients, believed, holds))
    return solve_by(problem, study.planner, study.planner_options)


def under(
    clients: Sequence[Client], conditions: Sequence[Condition], holds: Mapping[str, Held]
) -> list[Client]:
    """The same clients with the compute and rates of a round, and with the fixed weights they hold."""
    return [
        _with(client, now, client.held.joined(holds.get(client.name, Held())))
        for client, now in zip(clients, conditions, strict=True)
    ]


@lru_cache(maxsize=1 << 12)
def _with(client: Client, now: Condition, has: Held) -> Client:
    """A client under these conditions; kept, because most are asked for twice a round, and the next round."""
    return replace(
        client,
        rate=None,
        compute=now.compute,
        up=now.up,
        down=now.down,
        rtt=now.rtt,
        holds=has.first,
        holds_last=has.last,
    )


def below_quorum(done: int, clients: int, quorum: int) -> str | None:
    """Why a round with so few updates counts for nothing; None if they are enough."""
    return f"{done} of {clients} clients were done, but the quorum is {quorum}" if done < quorum else None
