"""The virtual clock: what a round takes on the scenario's devices and links, whatever this machine is like.

A round is planned on what is *believed* of the clients and played on what is *true* of them. Who makes it,
and when, follows from the plan alone, so only their sessions are trained; a trainer does that as fast as it
can.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from cutwater.base.errors import PlanError
from cutwater.federate.estimates import Estimates
from cutwater.federate.executor import Arrival, Lost, Orders, Trainer, Update
from cutwater.federate.record import ClientRound
from cutwater.federate.round import Outcome, below_quorum, held_after, plan_round, under
from cutwater.federate.study import Study
from cutwater.plan.fleet import Held
from cutwater.plan.latency import session_phases
from cutwater.plan.problem import Problem
from cutwater.plan.value import Plan
from cutwater.scenario.settings import TrainSettings
from cutwater.train.scores import Score
from cutwater.train.session import State


class VirtualClock:
    """An executor whose clients take as long as the scenario says; a trainer carries their sessions out."""

    def __init__(self, study: Study, trainer: Trainer) -> None:
        self._study, self._trainer = study, trainer
        self._elapsed = 0.0

    def absent(self, clients: Sequence[str]) -> Mapping[str, str]:
        """Nobody: whoever drops out does so on the way."""
        return {}

    def carry_out(self, orders: Orders) -> Iterator[Arrival]:
        """See :class:`cutwater.federate.executor.Executor`."""
        study = self._study
        holds = {task.client: Held(task.holds, task.holds_last) for task in orders.tasks}
        outcome = by_the_clock(study, orders.round, orders.plan, holds)
        self._elapsed = outcome.seconds
        parts = {part.name: part for part in outcome.parts}
        for part in outcome.parts:
            if not part.done:
                yield Lost(part.name, part.outcome, part.actual)
        tasks = [task for task in orders.tasks if parts[task.client].done]
        for result in self._trainer.sessions(tasks, orders.weights):
            task = result.task
            yield Update(
                task=task,
                weights=result.state,
                loss=result.loss,
                bytes_up=result.bytes_up,
                bytes_down=result.bytes_down,
                took=parts[task.client].actual,
                condition=study.truth.true(study.client(task.client), orders.round),
            )

    def elapsed(self) -> float:
        """Virtual seconds of the last round."""
        return self._elapsed

    def evaluate(self, weights: State) -> list[Score]:
        """See :class:`cutwater.federate.executor.Executor`."""
        return self._trainer.evaluate(weights)

    def close(self) -> None:
        """End the trainer."""
        self._trainer.close()


def clock_only(study: Study, last: int) -> Iterator[Outcome]:
    """The rounds up to ``last`` as the clock would show them, with nobody training.

    Selection, plans, conditions and estimates do not depend on what is learned, so this is exactly the clock
    of a run: what another planner would have taken is known without another training.
    """
    estimates, holds = Estimates.of(study.conditions), dict[str, Held]()
    for number in range(1, last + 1):
        plan = plan_round(study, number, study.select(number), estimates, holds)
        outcome = by_the_clock(study, number, plan, holds)
        yield outcome
        done = [part for part in outcome.parts if part.done]
        seen = [study.client(part.name) for part in done]
        estimates = estimates.after((client, study.truth.true(client, number)) for client in seen)
        layers = len(study.model)
        kept = {part.name: Held.after(part.cut, part.second_cut, layers) for part in done}
        holds = held_after(holds, kept)


def by_the_clock(study: Study, number: int, plan: Plan, holds: Mapping[str, Held]) -> Outcome:
    """A planned round as the clock shows it."""
    clients = [study.client(name) for name in plan.names]
    true = [study.truth.true(client, number) for client in clients]
    lost_at = {name: study.truth.lost_at(name, number) for name in plan.names}
    truth = study.problem(under(clients, true, holds))
    if plan.rates is not None:  # of shared links, nobody is sent more than it was promised
        fleet, (up, down) = truth.fleet, plan.rates
        truth = truth.at_rates(np.minimum(fleet.up, up), np.minimum(fleet.down, down))
    return play(number, plan, truth, lost_at, study.train)


def play(
    round_: int, plan: Plan, truth: Problem, lost_at: Mapping[str, float | None], settings: TrainSettings
) -> Outcome:
    """Let the clock run: the plan's cuts and shares under the true conditions.

    A round is over when as many clients as wanted are done. Where fewer get there, it is over when the last
    is done or lost, at the deadline at the latest. Who was selected in excess of the wanted clients and
    finishes after them counts as late.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        actual = session_phases(truth, plan.places, plan.shares, wires=plan.wires)
    seconds = np.asarray(actual.total, dtype=np.float64)
    if not np.isfinite(seconds).all():
        endless = plan.names[int(np.argmin(np.isfinite(seconds)))]
        raise PlanError(
            f"client {endless!r} would never be done in round {round_}: its compute or rate is too low; "
            "raise them in the scenario, or how much of them its conditions leave"
        )
    # When each is lost: after that part of its session, or never.
    drops = (lost_at.get(name) for name in plan.names)
    pairs = zip(drops, seconds, strict=True)
    lost = np.array([np.inf if fraction is None else fraction * whole for fraction, whole in pairs])
    wanted = settings.wanted(len(plan))
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
        parts.append(ClientRound.of(client, actual.at(k), outcome))
    return Outcome(round_, plan, tuple(parts), ended, below_quorum(len(done), len(plan), settings.quorum))
