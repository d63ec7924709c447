"""Sessions on this machine: one after the other in this process, or in worker processes on all cores."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from cutwater.base.errors import EngineError
from cutwater.base.speech import Say, quiet
from cutwater.data.samples import Batch
from cutwater.execute.workers import Workers, blamed_on
from cutwater.federate.clock import VirtualClock
from cutwater.federate.loop import Round, TrainedRun, train
from cutwater.federate.study import Study
from cutwater.model.modes import modes_kept
from cutwater.model.precision import one_thread
from cutwater.runs.folder import begin
from cutwater.train.scores import Score, evaluate
from cutwater.train.session import Job, Result, State, Task, run_both_sides


class Tick(NamedTuple):
    """How far a round is, for whoever shows it."""

    round: int
    done: int
    """Sessions that are trained."""
    sessions: int
    """Sessions of the round."""


class LocalTrainer:
    """Runs sessions in process (one worker) or in forked worker processes.

    Every session runs with one torch thread, so that its bits do not depend on the number of workers:
    the cores are used across clients, not within one.
    """

    def __init__(self, job: Job, test: Sequence[Batch], workers: int = 1) -> None:
        if not isinstance(workers, int) or workers < 1:
            raise EngineError(f"workers is {workers}, but must be 1 or more, a whole number")
        device = next((tensor.device.type for tensor in job.model.module.state_dict().values()), "cpu")
        if workers > 1 and device != "cpu":
            raise EngineError(f"workers is {workers}, but on {device} only one can train: set workers to 1")
        self.job, self.test = job, test
        self.watch: Callable[[Tick], None] = lambda tick: None
        """Told of every session that is done."""
        self.pool = Workers(job, test, workers) if workers > 1 else None

    def sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        """See :class:`cutwater.federate.executor.Trainer`."""
        # The inner generator ends what workers are at when this one ends: so no name may refer to it.
        for done, result in enumerate(self._sessions(tasks, state), start=1):
            self.watch(Tick(result.task.round, done, len(tasks)))
            yield result

    def evaluate(self, state: State) -> list[Score]:
        """See :class:`cutwater.federate.executor.Trainer`."""
        if self.pool is not None:
            return self.pool.evaluate(state)
        with one_thread(), blamed_on(None):
            return evaluate(self.job, state, self.test)

    def close(self) -> None:
        """End the worker processes."""
        if self.pool is not None:
            self.pool.close()

    def _sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        if self.pool is not None:
            yield from self.pool.sessions(tasks, state)
            return
        for task in tasks:
            with one_thread(), blamed_on(task):
                result = run_both_sides(self.job, task, state)
            yield result


def usable_cores() -> int:
    """Cores that this process may run on."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def sensible_workers(study: Study) -> int:
    """A worker for every core, as far as there are clients for them; one for a model on another device."""
    if not study.train.device.startswith("cpu"):
        return 1
    return min(usable_cores(), study.train.wanted(len(study.fleet)))


def run(
    study: Study,
    folder: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = 1,
    resume: bool = False,
    scenario: str | None = None,
    callbacks: Sequence[Callable[[Round], object]] = (),
    say: Say = quiet,
    watch: Callable[[Tick], None] = lambda _: None,
) -> TrainedRun:
    """Train a study on this machine to its last round; every round is kept in the folder, if one is given.

    Callbacks see each round after it is safe on disk, and one that returns False ends the run; ``watch`` sees
    each session, ``say`` is told what a person should know. What is returned holds the trained weights and a
    line for each round of this call. ``workers`` may be None for as many as make sense here. The model is
    left as it was.
    """
    if callable(callbacks):
        raise EngineError("callbacks is one function, but must be a list of them: put it into brackets")
    count = sensible_workers(study) if workers is None else workers
    with ExitStack() as held:
        trainer = LocalTrainer(study.job(), study.test(), count)
        held.callback(trainer.close)
        trainer.watch = watch
        kept, progress = begin(study, folder, resume=resume, scenario=scenario, engine="local", say=say)
        if kept is not None:
            held.callback(kept.close)
        for note in study.notes:
            say(note)
        held.enter_context(left_as_it_was(study))
        trained = train(study, VirtualClock(study, trainer), progress, keeper=kept, callbacks=callbacks)
    if trained.stopped:
        say(trained.stopped)
    return trained


@contextmanager
def left_as_it_was(study: Study) -> Iterator[None]:
    """Within, the model may be trained in; then it has its weights and modes again.

    Else what it holds after a run would depend on the number of workers, which train in copies.
    """
    net = study.model.module
    held = net.state_dict()
    pairs = ((tensor, study.initial[name]) for name, tensor in held.items())
    unchanged = all((a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b) for a, b in pairs)
    # Most often no copy is needed, because the study has one.
    weights = study.initial if unchanged else {name: tensor.clone() for name, tensor in held.items()}
    with modes_kept(net):
        try:
            yield
        finally:
            net.load_state_dict(weights, strict=True)
            study.model.restart()
