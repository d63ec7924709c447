"""What is kept of a round: its line of metrics.jsonl, and its file client by client. Needs no torch.

Written by those who play a round and read by whoever looks at a run, perhaps a later release or somebody
else's: other keys are passed over.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import Choice, Many, Named, Whole
from cutwater.base.schema import Nested, described, table
from cutwater.federate.measured import AMOUNT, COUNT, SCORE, TEXT, Measured, Replanned
from cutwater.plan.latency import SECONDS, Phases
from cutwater.plan.value import ClientPlan
from cutwater.scenario.goal import LOSS, by_name


def deviation(planned: float | None, actual: float | None) -> float | None:
    """How far something was from its plan: actual over planned seconds, less one.

    The plan is what was promised, so it is what is measured against. None where one of them is not known, or
    the plan is no time at all.

    >>> deviation(10.0, 5.0), deviation(10.0, None)
    (-0.5, None)
    """
    found = ratio(actual, planned)
    return None if found is None else found - 1


def ratio(above: float | None, below: float | None) -> float | None:
    """A quotient that can be shown; None where there is none."""
    if above is None or below is None or below <= 0:
        return None
    found = above / below
    return found if math.isfinite(found) else None


def score_text(name: str, value: float) -> str:
    """A score for people.

    >>> score_text("accuracy", 0.98123), score_text("test_loss", 0.25)
    ('accuracy 98.1 %', 'test loss 0.25')
    """
    return f"{score_name(name)} {value_text(name, value)}"


def score_name(name: str) -> str:
    """What people call a score; a metric is called what its author calls it."""
    return "test loss" if name == "test_loss" else name


def value_text(name: str, value: float) -> str:
    """The number of a score for people: accuracies are told in percent."""
    return f"{value * 100:.1f} %" if name == "accuracy" else f"{value:.4g}"


@described("the best model", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class Best:
    """The best model of a run so far, by the metric that it is kept for."""

    metric: Annotated[str, TEXT, "what it is best by"]
    better: Annotated[str, Choice(("max", "min")), "whether more or less of it is better"]
    round: Annotated[int, COUNT, "the round that it is of"]
    value: Annotated[float, SCORE, "its metric"]
    waited: Annotated[int, COUNT, "how often the model was evaluated since then, and was not better"] = 0


@described("the spread", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class Spread:
    """One number of each client, over the clients."""

    mean: Annotated[float, SCORE, "over the clients, each counted once"]
    deviation: Annotated[float, SCORE, "standard deviation: how unequal the model is to them"]
    least: Annotated[float, SCORE, "of any client"]
    most: Annotated[float, SCORE, "of any client"]
    clients: Annotated[int, COUNT, "how many have one"]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of some numbers.

        >>> Spread.of([0.5, 1.0])
        Spread(mean=0.75, deviation=0.25, least=0.5, most=1.0, clients=2)
        """
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
        return cls(mean=mean, deviation=deviation, least=min(values), most=max(values), clients=len(values))


@described("the line", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class Record:
    """A round as its line of metrics.jsonl tells it."""

    round: Annotated[int, COUNT, "1, 2, …"]
    virtual_seconds: Annotated[float, SECONDS, "time so far by the clock of the true conditions"]
    wall_seconds: Annotated[float, SECONDS, "time so far that this machine needed"]
    loss: Annotated[
        float | None,
        SCORE,
        "mean training loss of the round's sessions, weighted by n_k; null in a failed round",
    ]
    test_loss: Annotated[
        float | None,
        SCORE,
        "of the global model on the test set; null where it was not evaluated or is not finite",
    ] = None
    accuracy: Annotated[
        float | None,
        SCORE,
        "of the global model on the test set; null where it was not evaluated or labels are not classes",
    ]
    metrics: Annotated[
        Mapping[str, float],
        Named(SCORE),
        "of the global model on the test set, what else was asked for, by name; one that is no finite "
        "number is left out",
    ] = field(default_factory=dict)
    local_tests: Annotated[
        Mapping[str, Spread],
        Named(Nested(Spread)),
        "of the global model on the samples that each client holds back, by name: the spread over the "
        "clients, see below; empty where nobody holds any back",
    ] = field(default_factory=dict)
    best: Annotated[
        Best | None, Nested(Best), "the best model so far, see below; null where none is kept"
    ] = None
    bytes_up: Annotated[
        int, COUNT, "what crossed (or would have crossed) the network in this round, all clients"
    ]
    bytes_down: Annotated[int, COUNT, "the same in the other direction"]
    weights_sha256: Annotated[str, TEXT, "digest of the global weights after the round"]
    planned_seconds: Annotated[float | None, SECONDS, "latency of the round as planned"] = None
    actual_seconds: Annotated[float | None, SECONDS, "latency of the round as it was"] = None
    bottleneck: Annotated[str, TEXT, "the client that the round waited for"] = ""
    clients: Annotated[
        tuple[str, ...], Many(TEXT), "the clients whose updates count; none in a failed round"
    ] = ()
    lost: Annotated[
        Mapping[str, str],
        Named(TEXT),
        "the clients that were selected but not done in time, each with the reason",
    ] = field(default_factory=dict)
    failed: Annotated[str | None, TEXT, "why the round counts for nothing, or null"] = None
    stopped: Annotated[
        str | None, TEXT, "why the run ends after this round although more were asked for, or null"
    ] = None

    @property
    def deviation(self) -> float | None:
        """How far the round was from its plan; None for one that failed."""
        return None if self.failed else deviation(self.planned_seconds, self.actual_seconds)

    @property
    def scores(self) -> dict[str, float]:
        """What the model had on the test set, by name; nothing where it was not evaluated."""
        return by_name(self.accuracy, self.test_loss, self.metrics)

    def value(self, name: str) -> float | None:
        """A number of the round that runs are compared by: a score, or the training loss."""
        return self.loss if name == LOSS else self.scores.get(name)

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return table(self)


@described("a client", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class ClientRound:
    """One client's part in a round: what was planned for it, and what came of that."""

    name: Annotated[str, TEXT, "the client's name"]
    cut: Annotated[int, Whole(1, 100_000), "l_k of the plan"]
    share: Annotated[float, AMOUNT, "f_k^S of the plan in FLOPS"]
    delivered_share: Annotated[
        float | None,
        AMOUNT,
        "FLOPs over the seconds that the session asked for them; null where it is not measured",
    ]
    mode: Annotated[str, TEXT, "`fedavg` or `split`, as in the plan"]
    second_cut: Annotated[
        int, Whole(0, 100_000), "of the plan: layers after it stayed on the client; 0 without a tail"
    ] = 0
    schedule: Annotated[str, TEXT, "how the parts of its split steps crossed the cut"] = "in turn"
    up: Annotated[str, TEXT, "the codec of its smashed data"] = "fp32"
    down: Annotated[str, TEXT, "the codec of its gradients"] = "fp32"
    outcome: Annotated[str, TEXT, "`done`, or why the client's update does not count"]
    alone_seconds: Annotated[
        float | None,
        SECONDS,
        "T̃_k as planned: what it would have taken by itself; null where it may not train the whole model",
    ] = None
    planned_seconds: Annotated[float, SECONDS, "T_k of the plan, under the believed conditions"]
    actual_seconds: Annotated[float, SECONDS, "T_k under the true conditions, or as measured"]
    planned_bytes_up: Annotated[float | None, AMOUNT, "what the plan lets cross its link"] = None
    planned_bytes_down: Annotated[float | None, AMOUNT, "the same in the other direction"] = None
    bytes_up: Annotated[int | None, COUNT, "what crossed its link; null where no session was carried out"] = (
        None
    )
    bytes_down: Annotated[int | None, COUNT, "the same in the other direction"] = None
    planned: Annotated[Phases[float], Nested(Phases), "where its time goes by the plan"]
    actual: Annotated[Phases[float], Nested(Phases), "where it went"]
    measured: Measured | None = None
    """What stopwatches say beyond the phases; deployments only, and in a file of its own."""

    @classmethod
    def of(
        cls,
        plan: ClientPlan,
        actual: Phases[float],
        outcome: str = "done",
        *,
        delivered_share: float | None = None,
        bytes_up: int | None = None,
        bytes_down: int | None = None,
    ) -> "ClientRound":
        """What came of a plan."""
        return cls(
            name=plan.name,
            cut=plan.cut,
            second_cut=plan.second_cut,
            share=plan.share,
            delivered_share=delivered_share,
            mode=plan.mode,
            schedule=plan.schedule,
            up=plan.up,
            down=plan.down,
            outcome=outcome,
            alone_seconds=plan.alone,
            planned_seconds=plan.latency,
            actual_seconds=actual.total,
            planned_bytes_up=plan.bytes_up,
            planned_bytes_down=plan.bytes_down,
            bytes_up=bytes_up,
            bytes_down=bytes_down,
            planned=plan.phases,
            actual=actual,
        )

    @property
    def done(self) -> bool:
        """Whether the client was in time."""
        return self.outcome == "done"


@described("the round", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class KeptRound:
    """One round, client by client: rounds/00001.json of a run folder, and what was measured beside it."""

    round: Annotated[int, COUNT, "which it is"]
    planner: Annotated[str, TEXT, "who planned it"]
    planned_seconds: Annotated[float, SECONDS, "its latency as planned"]
    actual_seconds: Annotated[float, SECONDS, "its latency as it was"]
    failed: Annotated[str | None, TEXT, "why the round counts for nothing, or null"]
    clients: Annotated[
        tuple[ClientRound, ...], Many(Nested(ClientRound)), "all that were selected, see below"
    ] = ()
    wall_seconds: float | None = None
    """From handing out the orders to the aggregate, where measured."""
    enrolment_seconds: float | None = None
    """What it took before that until all nodes were there."""
    replanned: tuple[Replanned, ...] = ()
    """Shares that were planned anew while it ran."""
    promised_flops: float | None = None
    """What the run's part of a server that several runs share entitled it to while it had work."""
    delivered_flops: float | None = None
    """What it got of that."""
    notes: tuple[str, ...] = ()
    """What is damaged."""

    @property
    def deviation(self) -> float | None:
        """How far the round was from its plan; None for one that failed."""
        return None if self.failed else deviation(self.planned_seconds, self.actual_seconds)

    @property
    def of_prediction(self) -> float | None:
        """The seconds on the wall as a multiple of the planned ones; None where they were not measured."""
        return None if self.wall_seconds is None else ratio(self.wall_seconds, self.planned_seconds)

    @property
    def emulated(self) -> bool:
        """Whether devices and links were emulated."""
        return any(client.measured is not None and client.measured.emulated for client in self.clients)

    @property
    def counted(self) -> tuple[ClientRound, ...]:
        """The clients whose updates count; none in a round that failed."""
        return () if self.failed else tuple(client for client in self.clients if client.done)

    @property
    def delivered(self) -> float | None:
        """What was delivered of the shares that were promised, of those clients where it was measured."""
        told = [(c.share, c.delivered_share) for c in self.clients if c.delivered_share is not None]
        return ratio(sum(got for _, got in told), sum(share for share, _ in told))
