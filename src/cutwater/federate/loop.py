"""A run: rounds of plan → distribute → train → collect → aggregate (paper, Sec. III-B)."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cutwater.federate.estimates import Estimates
from cutwater.federate.executor import Engine
from cutwater.federate.round import Outcome
from cutwater.federate.study import Study
from cutwater.train.aggregate import Average, weights_sha256
from cutwater.train.session import Score, State

Clock = Callable[[], float]


@dataclass(frozen=True)
class Record:
    """A line of metrics.jsonl; see docs/run-folder.md."""

    round: int
    virtual_seconds: float
    wall_seconds: float
    loss: float | None
    test_loss: float | None
    accuracy: float | None
    bytes_up: int
    bytes_down: int
    weights_sha256: str
    planned_seconds: float
    actual_seconds: float
    bottleneck: str
    clients: tuple[str, ...]
    lost: dict[str, str]
    failed: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Progress:
    """Where training stands between two rounds: all that the next round depends on."""

    round: int
    """The last round that is done."""
    state: State = field(repr=False)
    """w: the global weights."""
    estimates: Estimates
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class Step:
    """What one round leaves behind."""

    progress: Progress
    outcome: Outcome
    record: Record


@dataclass
class _Totals:
    """Sums over the sessions of a round, in the order of the clients, not of arrival."""

    losses: dict[str, tuple[float, int]] = field(default_factory=dict)
    up: int = 0
    down: int = 0

    def loss(self, order: Sequence[str]) -> float:
        samples = sum(self.losses[name][1] for name in order)
        return sum(self.losses[name][0] * self.losses[name][1] for name in order) / samples


def start(study: Study) -> Progress:
    """Training before its first round."""
    return Progress(0, study.initial, Estimates.of(study.conditions))


def rounds(
    study: Study, engine: Engine, progress: Progress, last: int, clock: Clock = time.monotonic
) -> Iterator[Step]:
    """Train round by round up to ``last``, from wherever training stands."""
    while progress.round < last:
        step = train_round(study, engine, progress, last=last, clock=clock)
        yield step
        progress = step.progress


def by_the_clock(study: Study, last: int) -> Iterator[Outcome]:
    """The rounds up to ``last`` as the clock would show them, with nobody training.

    Selection, plans, conditions and estimates do not depend on what is learned, so this is exactly the clock
    of a run: what another planner would have taken is known without another training.
    """
    estimates = Estimates.of(study.conditions)
    for number in range(1, last + 1):
        outcome = study.outcome(number, estimates)
        yield outcome
        estimates = study.learn(outcome, estimates)


def train_round(study: Study, engine: Engine, before: Progress, *, last: int, clock: Clock) -> Step:
    """The five phases of one round; a round below its quorum leaves the model as it was."""
    began = clock()
    number = before.round + 1
    outcome = study.outcome(number, before.estimates)
    state, totals = before.state, _Totals()
    if not outcome.failed:
        state = _train(study, engine, outcome, before.state, totals)
    scores = engine.evaluate(state) if is_tested(study, number, last) else ()
    after = Progress(
        round=number,
        state=state,
        estimates=study.learn(outcome, before.estimates),
        virtual_seconds=before.virtual_seconds + outcome.seconds,
        wall_seconds=before.wall_seconds + clock() - began,
    )
    loss = totals.loss(outcome.done) if totals.losses else None
    return Step(after, outcome, record(after, outcome, scores, loss=loss, up=totals.up, down=totals.down))


def _train(study: Study, engine: Engine, outcome: Outcome, state: State, totals: _Totals) -> State:
    average = Average(state)
    for result in engine.sessions(study.tasks(outcome), state):
        average.add(result.task.client, result.task.samples, result.state)
        totals.losses[result.task.client] = (result.loss, result.task.samples)
        totals.up += result.bytes_up
        totals.down += result.bytes_down
    return average.result()


def is_tested(study: Study, number: int, last: int) -> bool:
    """Whether the model is scored on the test set after this round."""
    return number % study.train.evaluate_every == 0 or number == last


def mean_test_loss(scores: Sequence[Score]) -> float | None:
    """The mean loss over the test set; None where nothing was evaluated, or where it is not finite.

    Weights that are finite can still give a test loss that is not, and JSON has no number for that.
    """
    if not scores:
        return None
    mean = sum(score.loss for score in scores) / sum(score.samples for score in scores)
    return mean if math.isfinite(mean) else None


def record(
    after: Progress, outcome: Outcome, scores: Sequence[Score], *, loss: float | None, up: int, down: int
) -> Record:
    """The line of a round: how it went, its mean training loss, and the bytes that went up and down."""
    answers = sum(score.answers for score in scores)
    return Record(
        round=after.round,
        virtual_seconds=after.virtual_seconds,
        wall_seconds=after.wall_seconds,
        loss=loss,
        test_loss=mean_test_loss(scores),
        accuracy=sum(score.right for score in scores) / answers if answers else None,
        bytes_up=up,
        bytes_down=down,
        weights_sha256=weights_sha256(after.state),
        planned_seconds=outcome.plan.latency,
        actual_seconds=outcome.seconds,
        bottleneck=outcome.bottleneck,
        clients=outcome.done,
        lost=outcome.lost,
        failed=outcome.failed,
    )
