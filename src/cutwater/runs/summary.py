"""A run in a few numbers, and runs beside each other: what every command and page shows. Needs no torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.federate.record import Best, KeptRound, Record, Spread, deviation, ratio
from cutwater.plan.latency import OVERLAP, PHASES
from cutwater.runs.reader import Run
from cutwater.scenario.goal import LOSS, MORE, Goal, Target


@dataclass(frozen=True)
class PlanDeviation:
    """How far rounds were from their plans: of |actual / planned - 1|, over the rounds that did not fail."""

    mean: float
    worst: float
    worst_round: int


@dataclass(frozen=True)
class Summary:
    """What a run came to."""

    rounds: int
    """The last round that is done."""
    failed: int
    """Rounds below their quorum, which left the model as it was."""
    lost: int
    """Updates that did not count: clients that dropped out or came late."""
    accuracy: float | None
    """Of the last round that was evaluated."""
    best_accuracy: float | None
    loss: float | None
    test_loss: float | None
    """Of the last round that has one."""
    metrics: Mapping[str, float]
    """What else the model was evaluated by, each of the last round that has it."""
    local_tests: Mapping[str, Spread]
    """The last scores on what clients hold back, over the clients."""
    best: Best | None
    """The best model, where it is kept."""
    stopped: str | None
    """Why the run ended before its last round, if it did."""
    virtual_seconds: float
    wall_seconds: float
    bytes_up: int
    bytes_down: int
    weights_sha256: str | None
    plan_error: PlanDeviation | None


@dataclass(frozen=True)
class Reached:
    """When a run first was where it was to get."""

    round: int
    virtual_seconds: float
    wall_seconds: float


@dataclass(frozen=True)
class PhaseTotal:
    """One phase over all sessions that count."""

    phase: str
    planned: float
    actual: float
    deviation: float | None


@dataclass(frozen=True)
class Compared:
    """One run beside others."""

    run: Run
    summary: Summary
    reached: Reached | None
    """When it was where runs are compared."""
    speed_up: float | None
    """How many times as long the base took to get there, by the virtual clock."""
    common_rounds: int
    """Rounds that the base has, too."""
    same_rounds: int
    """Of those, from the first on, how many left the same weights, bit for bit."""

    def to_json(self) -> dict[str, Any]:
        """A plain dict, without the run itself."""
        return {
            **asdict(self.summary),
            "time_to_target": None if self.reached is None else asdict(self.reached),
            "speed_up": self.speed_up,
            "rounds_with_the_bits_of_base": self.same_rounds,
        }


@dataclass(frozen=True)
class Comparison:
    """Runs beside each other."""

    target: Target | None
    """What the time to is told of; None where no run was ever tested."""
    base: int
    """Which run the speed-up is against: the first by FedAvg, or the first."""
    runs: tuple[Compared, ...]


def summary(lines: Sequence[Record]) -> Summary:
    """The numbers of a run; of one that has no round yet, zeros and None."""
    last = lines[-1] if lines else None
    return Summary(
        rounds=last.round if last else 0,
        failed=sum(line.failed is not None for line in lines),
        lost=sum(len(line.lost) for line in lines),
        accuracy=last_value(lines, "accuracy"),
        best_accuracy=max(_values(lines, "accuracy"), default=None),
        loss=last_value(lines, LOSS),
        test_loss=last_value(lines, "test_loss"),
        metrics={name: value for line in lines for name, value in line.metrics.items()},
        local_tests=next((line.local_tests for line in reversed(lines) if line.local_tests), {}),
        best=last.best if last else None,
        stopped=last.stopped if last else None,
        virtual_seconds=last.virtual_seconds if last else 0.0,
        wall_seconds=last.wall_seconds if last else 0.0,
        bytes_up=sum(line.bytes_up for line in lines),
        bytes_down=sum(line.bytes_down for line in lines),
        weights_sha256=last.weights_sha256 if last else None,
        plan_error=plan_error(lines),
    )


def plan_error(lines: Iterable[Record]) -> PlanDeviation | None:
    """Mean and worst of how far rounds were from their plans; None where no round can tell."""
    far = {line.round: abs(line.deviation) for line in lines if line.deviation is not None}
    if not far:
        return None
    worst = max(far, key=lambda number: far[number])
    return PlanDeviation(sum(far.values()) / len(far), far[worst], worst)


def time_to(lines: Iterable[Record], target: Target) -> Reached | None:
    """The end of the first round after which a run was there, or None."""
    for line in lines:
        if target.reached(line.value(target.goal.metric)):
            return Reached(line.round, line.virtual_seconds, line.wall_seconds)
    return None


def phase_totals(rounds: Iterable[KeptRound]) -> tuple[PhaseTotal, ...]:
    """Planned and actual seconds of each phase over all sessions that count, if there is any."""
    return _totals(rounds, PHASES)


def overlap_totals(rounds: Iterable[KeptRound]) -> tuple[PhaseTotal, ...]:
    """What of these took place at the same time, if anything, and the sessions: all phases less that."""
    found = _totals(rounds, (OVERLAP, "total"))
    return found if any(row.planned or row.actual for row in found[:1]) else ()


def _totals(rounds: Iterable[KeptRound], names: Iterable[str]) -> tuple[PhaseTotal, ...]:
    counted = [client for each in rounds for client in each.counted]

    def total(name: str) -> PhaseTotal:
        planned = sum(float(getattr(client.planned, name)) for client in counted)
        actual = sum(float(getattr(client.actual, name)) for client in counted)
        return PhaseTotal(name, planned, actual, deviation(planned, actual))

    return tuple(map(total, names)) if counted else ()


def last_value(lines: Iterable[Record], metric: str) -> float | None:
    """The last that a run had of a metric; None where it never had one."""
    return next(reversed(_values(lines, metric)), None)


def _values(lines: Iterable[Record], metric: str) -> list[float]:
    return [value for line in lines if (value := line.value(metric)) is not None]


def main_goal(runs: Iterable[Sequence[Record]]) -> Goal:
    """What runs are told apart by: accuracy where one has it, else what the best is kept by, or test loss."""
    every = [line for lines in runs for line in lines]
    if any(line.accuracy is not None for line in every):
        return Goal.parse("accuracy")
    kept = next((line.best for line in reversed(every) if line.best is not None), None)
    return Goal(kept.metric, kept.better) if kept else Goal.parse("test_loss")


def common_target(runs: Iterable[Sequence[Record]]) -> Target | None:
    """The most that all runs reach that were evaluated; of a single run that is the best that it had."""
    lists = list(runs)
    goal = main_goal(lists)
    best = [goal.best(some) for lines in lists if (some := _values(lines, goal.metric))]
    if not best:
        return None
    return Target(goal, min(best) if goal.better == MORE else max(best))


def compare(runs: Sequence[Run], target: Target | None = None) -> Comparison:
    """Runs beside each other, at a target: if none is given, the most that all evaluated ones reach."""
    found = [summary(run.lines) for run in runs]
    target = target or common_target([run.lines for run in runs])
    base = next((place for place, run in enumerate(runs) if run.info.planner == "fedavg"), 0)
    reached = [None if target is None else time_to(run.lines, target) for run in runs]
    same = [_same_weights(run, runs[base]) for run in runs]
    rows = (
        Compared(
            run=run,
            summary=found[place],
            reached=reached[place],
            speed_up=_speed_up(reached[place], reached[base]),
            common_rounds=len(same[place]),
            same_rounds=[*same[place], False].index(False),
        )
        for place, run in enumerate(runs)
    )
    return Comparison(target, base, tuple(rows))


def _speed_up(ours: Reached | None, base: Reached | None) -> float | None:
    return ratio(base.virtual_seconds, ours.virtual_seconds) if ours and base else None


def _same_weights(run: Run, base: Run) -> list[bool]:
    """For each round that both runs have, in order: whether the weights are the same, bit for bit."""
    others = {line.round: line.weights_sha256 for line in base.lines}
    return [line.weights_sha256 == others[line.round] for line in run.lines if line.round in others]
