"""Sessions on this machine: one after the other in this process, or in worker processes on all cores."""

from collections.abc import Iterator, Sequence

from cutwater.engine.workers import Workers, one_thread
from cutwater.errors import EngineError
from cutwater.train.session import Batch, Job, Result, Score, State, Task, evaluate, run_session


class LocalEngine:
    """Runs sessions in process (one worker) or in forked worker processes.

    Every session runs with one torch thread, so that its bits do not depend on the number of workers:
    the cores are used across clients, not within one.
    """

    def __init__(self, job: Job, test: Sequence[Batch], workers: int = 1) -> None:
        if workers < 1:
            raise EngineError(f"workers is {workers}, but must be 1 or more")
        device = next((tensor.device.type for tensor in job.model.module.state_dict().values()), "cpu")
        if workers > 1 and device != "cpu":
            raise EngineError(f"workers is {workers}, but a model on {device} has one: set workers to 1")
        self.job, self.test = job, test
        self.pool = Workers(job, test, workers) if workers > 1 else None

    def sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        """See :class:`cutwater.train.engine.Engine`."""
        if self.pool is not None:
            yield from self.pool.sessions(tasks, state)
            return
        for task in tasks:
            with one_thread():
                result = run_session(self.job, task, state)
            yield result

    def evaluate(self, state: State) -> list[Score]:
        """See :class:`cutwater.train.engine.Engine`."""
        if self.pool is not None:
            return self.pool.evaluate(state)
        with one_thread():
            return evaluate(self.job, state, (self.test[index] for index in range(len(self.test))))

    def close(self) -> None:
        """End the worker processes."""
        if self.pool is not None:
            self.pool.close()
