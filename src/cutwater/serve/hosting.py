"""The server's halves: one for each open session, run by promised shares of the server's compute.

A session's half is copied from the model when its first part arrives and given up when the session is over:
memory grows by one server-side model, its gradients and its optimizer state for each open session, and no
more. One of them computes at a time, because torch's random generators belong to the process (see
``model.randomness``).

A part's gradients go out before the half is updated (``answer_first``), unless that is switched off.
"""

import copy
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.execute.emulate import Pacer
from cutwater.profile.values import Profile
from cutwater.serve.answer_first import AnswerFirst
from cutwater.serve.shares import Delivery, Lane, ShareScheduler
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult
from cutwater.train.session import Job, State, Task
from cutwater.train.step import Part, ServerSide, Tensors, Watch


@dataclass(frozen=True)
class Trained:
    """What a session left at the server."""

    state: State
    """w^S."""
    loss: float
    """Mean over the samples."""
    steps: int
    """Mini-batches."""
    samples: int
    """Processed, with repetitions."""
    bytes_up: int
    """Of tensors, as they crossed."""
    bytes_down: int
    flops: float
    seconds: float
    """That its parts were worked on at the server, waiting for their share included."""
    delivery: Delivery
    """Its part of the server's compute while it had work there, as promised and as delivered."""

    @property
    def share(self) -> float | None:
        """f^S as delivered: FLOPs over the seconds that the session asked for them."""
        return self.flops / self.seconds if self.seconds > 0 else None


@dataclass
class _Training:
    """A session in training at the server."""

    task: Task
    state: State
    """The global weights, shared by all sessions of the round."""
    lane: Lane
    side: ServerSide | None = None
    """w^S, once its first part has come."""
    first: AnswerFirst | None = None
    """The same, where it answers first."""
    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    loss: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0
    until: float = 0.0
    """When its last part was done."""

    def close(self) -> Delivery:
        """Give up its place and what it holds."""
        if self.first is not None:
            self.first.give_up()
        return self.lane.close()


class Hosting:
    """Trains the server's halves of all sessions of a run, as the stream's ``StepTrainer``.

    An emulated server never answers first: all of a part happens within the time that it is said to take.
    """

    def __init__(
        self,
        job: Job,
        profile: Profile,
        compute: float,
        *,
        emulate: bool = False,
        answer_first: bool = True,
    ) -> None:
        device = next((t.device for t in job.model.module.state_dict().values()), None)
        self._job, self._profile, self._device = job, profile, device
        self._compute = compute
        self._pacer = Pacer() if emulate else None
        self._holders: set[AnswerFirst] | None = set() if answer_first and not emulate else None
        """Who holds a part's memory after its answer; None if nobody answers first."""
        self._sessions: dict[str, _Training] = {}
        self._done: dict[str, Trained] = {}
        self._shares = ShareScheduler("cpu" if device is None else str(device), before=_compute_alone)

    def expect(self, session: str, task: Task, share: float, state: State) -> None:
        """Make room for a session before its ticket is handed out."""
        # Where the server's part costs no FLOPs, the plan gives it no share; it takes its turn all the same.
        self._sessions[session] = _Training(task, state, self._shares.lane(session, max(share, 1.0)))

    def collect(self, session: str) -> Trained:
        """What a session that is over has left; asked for once."""
        trained = self._done.pop(session, None)
        if trained is None:
            raise EngineError(
                f"the server has no trained half of session {session}: it failed, goes on, or was collected"
            )
        return trained

    def forget(self, session: str) -> None:
        """Give up a session, if it is still there, and what it left."""
        training = self._sessions.pop(session, None)
        self._done.pop(session, None)
        if training is not None:
            training.close()

    @property
    def open(self) -> int:
        """Sessions that hold a model."""
        return sum(training.side is not None for training in list(self._sessions.values()))

    def close(self) -> None:
        """Stop computing."""
        self._shares.close()

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._sessions.get(session.id)
        if training is None:
            raise EngineError(f"client {session.client!r} has no session here")
        cut = self._profile.cuts[session.cut - 1]
        flops = (cut.server_forward_flops + cut.server_backward_flops) * len(labels)
        began = time.monotonic()
        # A half may have no arithmetic that counts (a last layer that only reshapes), yet takes its turn.
        result = await training.lane.run(
            lambda: self._step(training, part, smashed, labels, flops), max(flops, 1.0)
        )
        # Handed in while the part before was worked on, it asks for its share from when that was done.
        ended = time.monotonic()
        training.seconds += ended - max(began, training.until)
        training.until = ended
        return result

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._sessions.pop(session.id, None)
        if training is None:
            return
        side, first = training.side, training.first
        try:
            if first is not None and record.failure is None:
                await first.updated()
        finally:
            delivery = training.close()
        if side is None or record.failure is not None:
            return
        self._done[session.id] = Trained(
            state=side.half.state_dict(),
            loss=training.loss / record.samples,
            steps=record.steps,
            samples=record.samples,
            bytes_up=record.tensors_up,
            bytes_down=record.tensors_down,
            flops=training.flops,
            seconds=training.seconds + (first.seconds_after if first is not None else 0.0),
            delivery=delivery,
        )

    def _step(
        self, training: _Training, part: Part, smashed: Tensors, labels: Tensor, flops: float
    ) -> StepResult:
        """Stages 3 and 4, in the thread that computes; the update is left for later if it answers first."""
        began = time.monotonic()
        side = training.side or self._furnish(training)
        training.stages.clear()
        moved = tuple(t.detach().to(self._device).requires_grad_(t.requires_grad) for t in smashed)
        targets, first, lane = labels.to(self._device), training.first, training.lane
        if first is None:
            side.send(part, moved, targets)
            reply, rest = side.receive(), None
        else:
            reply = first.differentiate(part, moved, targets, alone=lane.alone)
            rest = partial(first.update_in, lane)
        training.loss += reply.loss * len(labels)
        training.flops += flops
        if self._pacer is not None:
            self._pacer.hold(flops / self._compute, time.monotonic() - began)
        return StepResult(reply.gradients, reply.loss, dict(training.stages), reply.unused, rest)

    def _furnish(self, training: _Training) -> ServerSide:
        task = training.task
        half = copy.deepcopy(self._job.split(task.cut).server)
        half.load_state_dict({name: training.state[name] for name in half.state_dict()}, strict=True)
        optimizer = self._job.optimizer(task.lr)
        side = ServerSide(half, optimizer, task.seed, self._job.loss, _watch(training.stages))
        training.side = side
        if self._holders is not None:
            training.first = AnswerFirst(side, self._holders)
        return side


def _compute_alone() -> None:
    """Have torch use no threads but this one, so that bits do not depend on the number of cores.

    It is this thread's own setting, and which thread computes depends on who else does.
    """
    torch.set_num_threads(1)


def _watch(stages: dict[str, float]) -> Watch:
    @contextmanager
    def watch(stage: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        stages[stage] += time.monotonic() - began

    return watch
