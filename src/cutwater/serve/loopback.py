"""Sessions over a real stream on this machine: what a device and a server do, without a fleet around them."""

from collections.abc import Iterator, Sequence

import torch

from cutwater.base.errors import EngineError
from cutwater.execute.emulate import Meter
from cutwater.federate.study import Study
from cutwater.model.halves import join_states
from cutwater.serve.device import run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.serve.sessions import LocalSessions
from cutwater.stream.server import StreamServer
from cutwater.train.scores import Score, evaluate
from cutwater.train.session import Result, State, Task

_PATIENCE = 3600.0
"""Seconds that a session may take; it is nobody's deadline, only the end of one that hangs."""


class LoopbackTrainer:
    """Trains every session across the stream, one after the other.

    Tensors are really coded, sent, checked and decoded, so that it shows whether a session gives the bits
    that it gives in one process.
    """

    def __init__(self, study: Study) -> None:
        self._study, self._job = study, study.job()
        self._hosting = Hosting(self._job, study.profile, study.server.compute)
        self._server = StreamServer(None)
        self._server.__enter__()
        self._hosted = LocalSessions(self._server, self._hosting, "verify")

    def sessions(self, tasks: Sequence[Task], weights: State) -> Iterator[Result]:
        """Train every task from the global weights; a result is valid until the next is asked for."""
        torch.set_num_threads(1)
        for task in tasks:
            yield self._session(task, weights)

    def _session(self, task: Task, weights: State) -> Result:
        half = self._job.split(task.cut, task.second_cut).client
        mine = {name: weights[name] for name in half.state_dict()}
        batches = self._job.batches(task)
        down, up = self._job.model_bytes(task)
        if task.cut == len(self._job.model):
            steps = run_at_device(self._study, task, None, mine, batches, Meter())
            return Result(task, half.state_dict(), steps.loss, steps.count, up, down)
        hosted, expect, share = self._hosted, expectation(self._study, task), self._study.server.compute
        ticket = hosted.open(task, expect, share, weights, _PATIENCE)
        try:
            steps = run_at_device(self._study, task, ticket, mine, batches, Meter())
            record = self._server.wait(ticket, timeout=_PATIENCE)
            if record.failure is not None:
                raise EngineError(f"the session of client {task.client!r} failed: {record.failure}")
            trained = hosted.collect(ticket)
        finally:
            hosted.end(ticket)
        state = join_states(half.state_dict(), trained.state)
        moved = (up + trained.bytes_up, down + trained.bytes_down)
        # Where labels stay on the device, so does the loss.
        loss = steps.loss if task.second_cut else trained.loss
        return Result(task, state, loss, steps.count, *moved)

    def evaluate(self, weights: State) -> list[Score]:
        """Scores of the global model on the test data."""
        return evaluate(self._job, weights, self._study.test())

    def close(self) -> None:
        """End the server."""
        self._server.close()
        self._hosting.close()
