"""What a run folder tells of a run and its rounds, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutwater.plan.latency import Phases
from cutwater.runs.metrics import deviation, ratio


@dataclass(frozen=True)
class Info:
    """What run.json says of a run, as far as it is known."""

    planner: str = "?"
    engine: str = ""
    server_compute: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """All of it, as plain JSON."""


@dataclass(frozen=True)
class ClientRound:
    """One client in one round: as planned, and as it was."""

    name: str
    cut: int
    mode: str
    outcome: str
    """"done", or why the client's update does not count."""
    share: float
    """f^S of the plan in FLOPS."""
    delivered_share: float | None
    """FLOPs over the seconds that the session asked for them."""
    planned: Phases[float]
    actual: Phases[float]
    planned_seconds: float
    actual_seconds: float
    alone_seconds: float | None = None
    """T̃_k: what it would have taken by itself, as planned; None where it may not train the whole model."""
    planned_bytes_up: float | None = None
    planned_bytes_down: float | None = None
    bytes_up: int | None = None
    """What crossed its link; None where no session was carried out."""
    bytes_down: int | None = None
    promised_part: float | None = None
    """Of the server's compute while the session had work for it; this and the rest in deployments only."""
    delivered_part: float | None = None
    message_seconds: float | None = None
    """What Flower's messages and starting the app took on top."""
    model_timed: bool | None = None
    """Whether the model's transfer was measured; if not, it is counted as planned."""

    @property
    def done(self) -> bool:
        """Whether the client was in time."""
        return self.outcome == "done"


@dataclass(frozen=True)
class Round:
    """One round, client by client."""

    round: int
    planner: str
    planned_seconds: float
    actual_seconds: float
    failed: str | None
    emulated: bool | None = None
    """Whether devices and links were emulated; None where nothing was measured beyond the phases."""
    wall_seconds: float | None = None
    """From handing out the orders to the last update that counts, messages included."""
    clients: tuple[ClientRound, ...] = ()
    notes: tuple[str, ...] = ()
    """What is damaged."""

    @property
    def deviation(self) -> float | None:
        """How far the round was from its plan; None for one that failed."""
        return None if self.failed else deviation(self.planned_seconds, self.actual_seconds)

    @property
    def counted(self) -> tuple[ClientRound, ...]:
        """The clients whose updates count; none in a round that failed."""
        return () if self.failed else tuple(client for client in self.clients if client.done)

    @property
    def delivered(self) -> float | None:
        """What was delivered of the shares that were promised, of those clients where it was measured."""
        told = [(c.share, c.delivered_share) for c in self.clients if c.delivered_share is not None]
        return ratio(sum(got for _, got in told), sum(share for share, _ in told))
