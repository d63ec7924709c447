"""The one round loop: select → plan → hand out → collect → judge → aggregate → evaluate → record.

Every executor's rounds are played here (paper, Sec. III-B); what differs between them is behind
:class:`cutwater.federate.executor.Executor`. The loop holds one set of global weights, and one more while a
round is aggregated, however many rounds there are.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from cutwater.federate.aggregators import BadUpdate
from cutwater.federate.estimates import Estimates
from cutwater.federate.executor import Arrival, Executor, Lost, Orders, Update
from cutwater.federate.judge import Judged, Refused
from cutwater.federate.measured import Replanned, RoundMeasured
from cutwater.federate.record import Best, ClientRound, Record
from cutwater.federate.round import Outcome, below_quorum, held_after, plan_round, unplanned
from cutwater.federate.study import Study
from cutwater.federate.tested import Tested, best_so_far, check_evaluation, out_of_patience
from cutwater.model.precision import one_thread
from cutwater.plan.fleet import Held
from cutwater.plan.latency import Phases
from cutwater.plan.value import Plan
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import State

Clock = Callable[[], float]


@dataclass(frozen=True, eq=False)
class Progress:
    """Where training stands between two rounds: all that the next round depends on."""

    round: int
    """The last round that is done."""
    weights: State = field(repr=False)
    """w: the global weights."""
    memory: State = field(repr=False)
    """What the aggregator remembers from round to round; nothing, for an average."""
    estimates: Estimates
    holds: Mapping[str, Held] = field(default_factory=dict)
    """Of which layers each client holds the weights that do not learn; of none where it is not told."""
    virtual_seconds: float = 0.0
    wall_seconds: float = 0.0
    best: Best | None = None
    """The best model so far, where one is kept."""


@dataclass(frozen=True, eq=False)
class Round:
    """What one round leaves behind; callbacks see it once it is safe on disk."""

    progress: Progress
    outcome: Outcome
    record: Record
    measured: RoundMeasured | None = None
    """What stopwatches say beyond the phases, where the executor has any."""


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """What a run comes to."""

    progress: Progress
    """Where it stands: ``progress.weights`` is the model."""
    records: tuple[Record, ...]
    """A line for each round of this call."""
    stopped: str | None = None
    """Why it ended before its last round, if it did."""


class Keeper(Protocol):
    """Where rounds are kept, such as :class:`cutwater.runs.folder.RunFolder`."""

    def save(self, round_: Round) -> None:
        """Keep a round, safely, before the next begins."""


def start(study: Study) -> Progress:
    """Training before its first round."""
    memory = study.aggregator.start(study.initial)
    return Progress(0, study.initial, memory, Estimates.of(study.conditions))


def train(
    study: Study,
    executor: Executor,
    progress: Progress,
    *,
    keeper: Keeper | None = None,
    callbacks: Sequence[Callable[[Round], object]] = (),
    skip_bad_updates: bool = False,
    clock: Clock = time.monotonic,
) -> TrainedRun:
    """Train a study to its last round from wherever it stands; each round is kept before the next begins.

    It ends early where the study's patience does, or where a callback returns False.
    """
    records = list[Record]()
    if stopped := out_of_patience(study, progress.best):
        return TrainedRun(progress, (), stopped)
    check_evaluation(study, progress.weights)
    for round_ in rounds(
        study, executor, progress, study.train.rounds, skip_bad_updates=skip_bad_updates, clock=clock
    ):
        if keeper is not None:
            keeper.save(round_)
        answers = [callback(round_) for callback in callbacks]
        records.append(round_.record)
        progress, stopped = round_.progress, round_.record.stopped
        if stopped is None and progress.round < study.train.rounds and any(one is False for one in answers):
            stopped = f"stopped after round {progress.round}: a callback returned False"
        if stopped is not None:
            break
    return TrainedRun(progress, tuple(records), stopped)


def rounds(
    study: Study,
    executor: Executor,
    progress: Progress,
    last: int,
    *,
    skip_bad_updates: bool = False,
    clock: Clock = time.monotonic,
) -> Iterator[Round]:
    """Train round by round up to ``last``, from wherever training stands.

    An update that can't be aggregated ends training, unless it is to be skipped: where everything is computed
    here, nobody but the settings can be blamed for it, whereas of many devices one may well be broken.
    """
    while progress.round < last:
        round_ = play_round(study, executor, progress, last, skip_bad_updates=skip_bad_updates, clock=clock)
        # The old weights are let go of before somebody looks at the new ones.
        progress = round_.progress
        yield round_
        del round_


@one_thread()
def play_round(
    study: Study,
    executor: Executor,
    before: Progress,
    last: int,
    *,
    skip_bad_updates: bool = False,
    clock: Clock = time.monotonic,
) -> Round:
    """The phases of one round; a round below its quorum leaves the model as it was.

    Torch has one thread, so that no aggregator's sums depend on the cores, and because a second one, kept
    awake by each small tensor that is judged, takes its core from a worker that trains.
    """
    began, number = clock(), before.round + 1
    names = study.select(number)
    absent = executor.absent(names)
    enrolled = clock() - began
    here = [name for name in names if name not in absent]
    # A round that nobody is there for is planned, too, for the record.
    plan = plan_round(study, number, here or names, before.estimates, before.holds)
    collected = _Collected(lost={name: Lost(name, reason) for name, reason in absent.items()})
    wanted = study.train.wanted(len(names))
    collection = Judged(
        study.judge,
        study.aggregator.collect(before.weights, before.memory, study.traffic),
        before.weights,
        study.traffic,
        study.part_sizes,
    )
    if here:
        tasks = study.tasks(number, plan, before.holds)
        orders = Orders(number, plan, tasks, before.weights, wanted, study.train.deadline)
        _collect(executor, orders, collection, collected, skip_bad_updates)
    outcome = _outcome(study, number, names, plan, collected, wanted, executor)
    weights, memory = (before.weights, before.memory) if outcome.failed else collection.result()
    # A round is over when its aggregate is there: what is tested and written after that is no part of it.
    elapsed = executor.elapsed()
    tested = number % study.train.evaluate_every == 0 or number == last
    scored = Tested.of(study, executor.evaluate(weights), study.own_scores(weights)) if tested else Tested()
    seen = ((study.client(name), update.condition) for name, update in collected.updates.items())
    after = Progress(
        round=number,
        weights=weights,
        memory=memory,
        estimates=before.estimates.after(seen),
        holds=_holds(before.holds, collected, len(study.model)),
        virtual_seconds=before.virtual_seconds + outcome.seconds,
        wall_seconds=before.wall_seconds + clock() - began,
        best=best_so_far(study.train.goal, before.best, number, scored),
    )
    measured = _measured(number, outcome, collected, elapsed, enrolled)
    stopped = out_of_patience(study, after.best) if number < last else None
    return Round(after, outcome, _record(after, outcome, scored, collected, stopped), measured)


@dataclass
class _Collected:
    """What has come of a round's orders."""

    updates: dict[str, Update] = field(default_factory=dict)
    """Those that count, by client, without their weights."""
    lost: dict[str, Lost] = field(default_factory=dict)
    replanned: list[Replanned] = field(default_factory=list)


def _collect(
    executor: Executor, orders: Orders, collection: Judged, collected: _Collected, skip: bool
) -> None:
    """Phases 2 to 4: hand out, collect until enough or the time is up, and judge what comes."""
    refused: list[BadUpdate] = []

    def refuse(error: BadUpdate, took: Phases[float]) -> None:
        # What breaks a rule of [judge] is left out wherever it was computed, so that the bits are the same.
        if not skip and not isinstance(error, Refused):
            raise error
        refused.append(error)
        collected.lost[error.client] = Lost(error.client, str(error), took)

    with closing(_arrivals(executor, orders)) as arrivals:
        for arrival in arrivals:
            if isinstance(arrival, Lost):
                collected.lost[arrival.client] = arrival
                continue
            if isinstance(arrival, Replanned):
                collected.replanned.append(arrival)
                continue
            name = arrival.task.client
            try:
                collection.add(arrival)
            except BadUpdate as error:
                refuse(error, arrival.took)
                continue
            collected.updates[name] = arrival.without_weights()
            del arrival
            if len(collected.updates) == orders.wanted:
                break
    for bad in collection.settle():
        refuse(bad, collected.updates.pop(bad.client).took)
    if refused and not skip and not collected.updates:
        raise refused[0]  # nobody lies here: it is the settings
    waited = executor.elapsed()
    for name in orders.plan.names:
        if name not in collected.updates:
            collected.lost.setdefault(name, Lost(name, f"late: no update after {waited:.3g} s"))


def _arrivals(executor: Executor, orders: Orders) -> Generator[Arrival, None, None]:
    """What comes of the orders, to be closed whatever kind of iterator an executor returns."""
    yield from executor.carry_out(orders)


def _outcome(
    study: Study,
    number: int,
    names: Sequence[str],
    plan: Plan,
    collected: _Collected,
    wanted: int,
    executor: Executor,
) -> Outcome:
    parts = [_part(study, plan, collected, name) for name in names]
    done = [float(update.took.total) for update in collected.updates.values()]
    # A round that had to do without somebody took as long as it waited for them.
    seconds = max(done, default=0.0) if len(done) >= wanted else executor.elapsed()
    failed = below_quorum(len(done), len(parts), study.train.quorum)
    return Outcome(number, plan, tuple(parts), seconds, failed)


def _part(study: Study, plan: Plan, collected: _Collected, name: str) -> ClientRound:
    planned = plan[name] if name in plan else unplanned(name, len(study.model))
    update = collected.updates.get(name)
    if update is None:
        lost = collected.lost[name]
        return ClientRound.of(planned, lost.took, lost.reason)
    share = update.measured.delivered_share if update.measured is not None else None
    return ClientRound.of(
        planned,
        update.took,
        delivered_share=share,
        bytes_up=update.bytes_up,
        bytes_down=update.bytes_down,
    )


def _holds(before: Mapping[str, Held], collected: _Collected, layers: int) -> dict[str, Held]:
    """Who has which fixed weights after a round: those who were sent them, until they have lost them."""
    forgot = {name for name, lost in collected.lost.items() if lost.forgot}
    known = {name: held for name, held in before.items() if name not in forgot}
    tasks = [update.task for update in collected.updates.values() if update.kept]
    kept = {task.client: Held.after(task.cut, task.second_cut, layers) for task in tasks}
    return held_after(known, kept)


def _measured(
    number: int, outcome: Outcome, collected: _Collected, elapsed: float, enrolled: float
) -> RoundMeasured | None:
    updates = [collected.updates[part.name] for part in outcome.parts if part.name in collected.updates]
    found = tuple(update.measured for update in updates if update.measured is not None)
    changes = tuple(collected.replanned)
    if not (found or changes):
        return None
    return RoundMeasured(number, elapsed, found, enrolled, changes)


def _record(
    after: Progress, outcome: Outcome, scored: Tested, collected: _Collected, stopped: str | None
) -> Record:
    """The line of a round: how it went, its mean training loss, and the bytes that went up and down."""
    # In the order of the clients, not of arrival: sums of floats depend on it.
    updates = [collected.updates[name] for name in outcome.done]
    return Record(
        round=after.round,
        virtual_seconds=after.virtual_seconds,
        wall_seconds=after.wall_seconds,
        loss=_mean_loss(updates),
        test_loss=scored.whole.loss if scored.whole else None,
        accuracy=scored.whole.accuracy if scored.whole else None,
        metrics=scored.metrics,
        local_tests=scored.spreads,
        best=after.best,
        bytes_up=sum(update.bytes_up for update in updates),
        bytes_down=sum(update.bytes_down for update in updates),
        weights_sha256=weights_sha256(after.weights),
        planned_seconds=outcome.plan.latency,
        actual_seconds=outcome.seconds,
        bottleneck=outcome.bottleneck,
        clients=outcome.done,
        lost=outcome.lost,
        failed=outcome.failed,
        stopped=stopped,
    )


def _mean_loss(updates: Sequence[Update]) -> float | None:
    samples = sum(update.task.samples for update in updates)
    return sum(update.loss * update.task.samples for update in updates) / samples if samples else None
