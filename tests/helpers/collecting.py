"""Rounds as a list: a run keeps none of them, but tests look at all."""

from cutwater.execute import local
from cutwater.execute.local import LocalTrainer
from cutwater.federate.clock import VirtualClock, by_the_clock
from cutwater.federate.estimates import Estimates
from cutwater.federate.loop import Round, rounds, start
from cutwater.federate.round import Outcome, plan_round
from cutwater.federate.study import Study
from cutwater.train.session import Task


def run(study: Study, folder=None, *, callbacks=(), **options) -> list[Round]:
    """Every round of a run in this process."""
    seen: list[Round] = []
    local.run(study, folder, callbacks=[seen.append, *callbacks], **options)
    return seen


def trained_by(study: Study, last: int, workers: int = 1) -> list[Round]:
    """Rounds 1 to ``last`` of a study."""
    trainer = LocalTrainer(study.job(), study.test(), workers)
    try:
        return list(rounds(study, VirtualClock(study, trainer), start(study), last))
    finally:
        trainer.close()


def clocked(study: Study, number: int) -> Outcome:
    """One round by the clock, planned on what is believed before the first."""
    plan = plan_round(study, number, study.select(number), Estimates.of(study.conditions), {})
    return by_the_clock(study, number, plan, {})


def tasks_done(study: Study, outcome: Outcome) -> list[Task]:
    """What the clients that made it trained."""
    return [task for task in study.tasks(outcome.round, outcome.plan) if task.client in outcome.done]
