"""The server's halves: one for each open session, run by promised shares of the server's compute.

A session's half is copied from the model when its first mini-batch arrives and given up when the session is
over: memory grows by one server-side model and its optimizer state for each open session, and no more. One of
them computes at a time, because torch's random generators belong to the process (see ``model.randomness``).

A half is updated when its gradients are on their way, not before: the client need not wait for that, nor for
the gradients of the half's weights while it has the server to itself. Until these are made, a step's memory
is held (``train.backward`` says how much), so one session at a time has them wait.
"""

import asyncio
import copy
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.execute.emulate import Pacer
from cutwater.model.traffic import tensor_bytes
from cutwater.profile.values import Profile
from cutwater.serve.answer_first import PromptSide
from cutwater.serve.shares import Delivery, Lane, ShareScheduler
from cutwater.stream.server_half import Session, SessionRecord, StepResult
from cutwater.train.session import Job, State, Task
from cutwater.train.step import ServerSide, Tensors


@dataclass(frozen=True)
class Trained:
    """What a session left at the server."""

    state: State
    """w^S."""
    loss: float
    """Mean over the samples."""
    steps: int
    samples: int
    """Processed, with repetitions."""
    bytes_up: int
    bytes_down: int
    flops: float
    seconds: float
    """That its mini-batches were worked on at the server, waiting for their share included."""
    delivery: Delivery
    """Its part of the server's compute while it had work there, as promised and as delivered."""

    @property
    def share(self) -> float | None:
        """f^S as delivered: FLOPs over the seconds that the session asked for them."""
        return self.flops / self.seconds if self.seconds > 0 else None


@dataclass
class _Room:
    """A session's place at the server."""

    task: Task
    state: State
    """The global weights, shared by all sessions of the round."""
    lane: Lane
    side: PromptSide | None = None
    updated: Future[None] | None = None
    """The update after the last step; done when the next one runs, as both take turns in one lane."""
    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    loss: float = 0.0
    steps: int = 0
    samples: int = 0
    up: int = 0
    down: int = 0
    flops: float = 0.0
    seconds: float = 0.0


class Hosting:
    """The server's half for all sessions of a run, as the stream calls it."""

    def __init__(self, job: Job, profile: Profile, compute: float, *, emulate: bool = False) -> None:
        device = next((t.device for t in job.model.module.state_dict().values()), None)
        self._job, self._profile, self._device = job, profile, device
        self._compute = compute
        self._pacer = Pacer() if emulate else None
        self._rooms: dict[str, _Room] = {}
        self._done: dict[str, Trained] = {}
        self._shares = ShareScheduler("cpu" if device is None else str(device))

    def expect(self, session: str, task: Task, share: float, state: State) -> None:
        """Make room for a session before its ticket is handed out."""
        # Where the server's part costs no FLOPs, the plan gives it no share; it takes its turn all the same.
        self._rooms[session] = _Room(task, state, self._shares.lane(session, max(share, 1.0)))

    def collect(self, session: str) -> Trained:
        """What a session that is over has left; asked for once."""
        trained = self._done.pop(session, None)
        if trained is None:
            raise EngineError("the session has left nothing at the server")
        return trained

    def forget(self, session: str) -> None:
        """Give up a session's room, if it still has one."""
        room = self._rooms.pop(session, None)
        self._done.pop(session, None)
        if room is not None:
            room.lane.close()

    @property
    def open(self) -> int:
        """Sessions that hold a model."""
        return sum(room.side is not None for room in list(self._rooms.values()))

    def close(self) -> None:
        """Stop computing."""
        self._shares.close()

    async def step(self, session: Session, number: int, smashed: Tensors, labels: Tensor) -> StepResult:
        """See :class:`cutwater.stream.server_half.ServerHalf`."""
        room = self._rooms.get(session.id)
        if room is None:
            raise EngineError(f"client {session.client!r} has no session here")
        cut = self._profile.cuts[session.cut - 1]
        flops = (cut.server_forward_flops + cut.server_backward_flops) * len(labels)
        began = time.monotonic()
        # A half may have no arithmetic that counts (a last layer that only reshapes), yet takes its turn.
        result = await room.lane.run(
            lambda: self._step(room, number, smashed, labels, flops), max(flops, 1.0)
        )
        room.seconds += time.monotonic() - began
        return result

    async def closed(self, session: Session, record: SessionRecord) -> None:
        """See :class:`cutwater.stream.server_half.ServerHalf`."""
        room = self._rooms.pop(session.id, None)
        if room is None:
            return
        try:
            if room.updated is not None and record.failure is None:
                await asyncio.wrap_future(room.updated)
        finally:
            delivery = room.lane.close()
        if room.side is None or record.failure is not None:
            return
        self._done[session.id] = Trained(
            state=room.side.server.half.state_dict(),
            loss=room.loss / room.samples,
            steps=room.steps,
            samples=room.samples,
            bytes_up=room.up,
            bytes_down=room.down,
            flops=room.flops,
            seconds=room.seconds,
            delivery=delivery,
        )

    def _step(self, room: _Room, number: int, smashed: Tensors, labels: Tensor, flops: float) -> StepResult:
        """Stages 3 and 4 but for the update, in the thread that computes."""
        began = time.monotonic()
        _compute_alone()
        if room.updated is not None:
            room.updated.result(timeout=0)  # raises what went wrong; it is done, as steps come one by one
        side = room.side or self._furnish(room)
        room.stages.clear()
        moved = tuple(t.detach().to(self._device).requires_grad_(t.requires_grad) for t in smashed)
        reply = side.differentiate(number, moved, labels.to(self._device), alone=self._has_device(room))
        room.loss += reply.loss * len(labels)
        room.steps, room.samples = room.steps + 1, room.samples + len(labels)
        room.up += tensor_bytes((*smashed, labels))
        room.down += tensor_bytes(reply.gradients)
        room.flops += flops
        if self._pacer is not None:
            side.update()  # within the time that the emulated server takes
            self._pacer.hold(flops / self._compute, time.monotonic() - began)
        update = partial(self._update, room) if self._pacer is None else None
        return StepResult(reply.gradients, reply.loss, dict(room.stages), reply.unused, update)

    def _update(self, room: _Room) -> None:
        """The rest of stage 4."""
        room.updated = room.lane.follow(partial(self._finish, room))

    def _finish(self, room: _Room) -> None:
        assert room.side is not None
        began = time.monotonic()
        _compute_alone()
        room.side.update()
        room.seconds += time.monotonic() - began

    def _has_device(self, room: _Room) -> bool:
        """Whether a session may take its time, and a step's memory, once its answer is out."""
        sides = [each.side for each in list(self._rooms.values()) if each.side is not None]
        return room.lane.alone and not any(side.server.holds_graph for side in sides)

    def _furnish(self, room: _Room) -> PromptSide:
        half = copy.deepcopy(self._job.split(room.task.cut).server)
        half.load_state_dict({name: room.state[name] for name in half.state_dict()}, strict=True)
        optimizer = self._job.optimizer(room.task.lr)
        side = ServerSide(half, optimizer, room.task.seed, self._job.loss, _watch(room.stages))
        room.side = PromptSide(side)
        return room.side


def _compute_alone() -> None:
    """Have torch use no threads but this one, so that bits do not depend on the number of cores.

    It is this thread's own setting, and which thread computes depends on who else does.
    """
    torch.set_num_threads(1)


def _watch(stages: dict[str, float]) -> Callable[[str], Any]:
    @contextmanager
    def watch(stage: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        stages[stage] += time.monotonic() - began

    return watch
