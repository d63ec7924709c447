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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from cutwater.base.errors import EngineError, RunError
from cutwater.execute.emulate import Pacer
from cutwater.federate.measured import Moved
from cutwater.profile.values import Profile
from cutwater.serve.answer_first import AnswerFirst
from cutwater.serve.moving import pack_layers, unpack_layers
from cutwater.serve.shares import Delivery, Given, Lane, ShareScheduler
from cutwater.serve.turns import Turns
from cutwater.stream.messages import NORM
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult
from cutwater.train.kept_side import SideState, give, go_on, read_side, write_side
from cutwater.train.movable import Crossing
from cutwater.train.session import Job, State, Task
from cutwater.train.step import AtServer, Part, ServerSide, Tensors, Watch
from cutwater.train.three_parts import Back, MiddleSide

_LEAST = 1.0
"""FLOPS. Where the server's part costs nothing, the plan gives no share; it takes its turn all the same."""


@dataclass(frozen=True)
class SessionClock:
    """Seconds of a session by the server's clock; 0 where they were not taken."""

    session: float = 0.0
    """From its first connection to its end."""
    server: float = 0.0
    """That its parts were at the server."""
    up: float = 0.0
    """From a part's first frame to its last, of all parts."""


@dataclass(frozen=True)
class Trained:
    """What a session left at the server."""

    state: State
    """w^S."""
    loss: float
    """Mean over the samples; 0 where labels stay on the device, which has it then."""
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
    clock: SessionClock = SessionClock()
    """What this end's clock says of it."""
    rates: tuple[float | None, float | None] = (None, None)
    """Bits per second up and down as the server saw them; None where no message took more than a frame."""
    moves: tuple[Moved, ...] = ()
    """Of its cut, in order."""

    def cut_of(self, task: Task) -> int:
        """Where the session of a task was cut in the end."""
        return self.moves[-1].to if self.moves else task.cut

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
    side: ServerSide | MiddleSide | None = None
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
    ``shares`` is a fair queue that other jobs use, too (:mod:`cutwater.serve.several_jobs`); ``turns`` are
    those of a process among others (:mod:`cutwater.serve.turns`).
    """

    def __init__(
        self,
        job: Job,
        profile: Profile,
        compute: float,
        *,
        emulate: bool = False,
        answer_first: bool = True,
        shares: ShareScheduler | None = None,
        turns: Turns | None = None,
    ) -> None:
        device = next((t.device for t in job.model.module.state_dict().values()), None)
        self._job, self._profile, self._device = job, profile, device
        self._compute = compute
        self._pacer = Pacer() if emulate else None
        self._holders: set[AnswerFirst] | None = set() if answer_first and not emulate else None
        """Who holds a part's memory after its answer; None if nobody answers first."""
        self._sessions: dict[str, _Training] = {}
        self._done: dict[str, Trained] = {}
        self._shared = shares is not None
        self._shares = shares or scheduler("cpu" if device is None else str(device), turns)
        self.given = Given()
        """What its sessions got of the server, of all that are over."""

    def expect(self, session: str, task: Task, share: float, state: State) -> None:
        """Make room for a session before its ticket is handed out."""
        self._sessions[session] = _Training(task, state, self._shares.lane(session, max(share, _LEAST)))

    def reshare(self, session: str, share: float) -> None:
        """Give a session another share from now on; one that is over in the meantime needs none."""
        training = self._sessions.get(session)
        if training is not None:
            try:
                training.lane.reshare(max(share, _LEAST))
            except EngineError:
                if session in self._sessions:
                    raise

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
            self._end(training)

    def _end(self, training: _Training) -> Delivery:
        delivery = training.close()
        self.given = self.given.and_also(delivery)
        return delivery

    @property
    def open(self) -> int:
        """Sessions that hold a model."""
        return sum(training.side is not None for training in list(self._sessions.values()))

    def close(self) -> None:
        """Stop computing; a fair queue that is shared goes on for the others."""
        if not self._shared:
            self._shares.close()
            return
        for session in list(self._sessions):
            self.forget(session)

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._training(session)
        cut = self._profile.cuts[session.cut - 1]
        flops = (cut.server_forward_flops + cut.server_backward_flops) * len(labels)
        work = partial(self._step, training, part, smashed, labels, flops)
        return await self._run(training, work, flops)

    async def forward(self, session: SessionInfo, part: Part, smashed: Tensors) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._training(session)
        flops = self._middle(training.task)[0] * len(smashed[0])
        return await self._run(training, partial(self._forward, training, part, smashed, flops), flops)

    async def backward(self, session: SessionInfo, part: Part, back: Back, rows: int) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._training(session)
        flops = self._middle(training.task)[1] * rows
        return await self._run(training, partial(self._backward, training, part, back, flops), flops)

    def _training(self, session: SessionInfo) -> _Training:
        training = self._sessions.get(session.id)
        if training is None:
            raise EngineError(f"client {session.client!r} has no session here")
        return training

    def _middle(self, task: Task) -> tuple[float, float]:
        """FLOPs of the layers between two cuts for a sample, forward and backward."""
        first, second = self._profile.cuts[task.cut - 1], self._profile.cuts[task.second_cut - 1]
        return (
            second.client_forward_flops - first.client_forward_flops,
            second.client_backward_flops - first.client_backward_flops,
        )

    async def _run(self, training: _Training, work: Callable[[], StepResult], flops: float) -> StepResult:
        began = time.monotonic()
        # A half may have no arithmetic that counts (a last layer that only reshapes), yet takes its turn.
        result = await training.lane.run(work, max(flops, 1.0))
        # Handed in while the part before was worked on, it asks for its share from when that was done.
        ended = time.monotonic()
        training.seconds += ended - max(began, training.until)
        training.until = ended
        return result

    async def move(
        self, session: SessionInfo, cut: int, layers: Tensor | None, norm: float | None
    ) -> Tensor | None:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._training(session)
        return await training.lane.run(partial(self._move, training, cut, layers, norm), 1.0)

    def _move(
        self, training: _Training, cut: int, layers: Tensor | None, norm: float | None
    ) -> Tensor | None:
        """Another half for the session, where the one that it had is, in the thread that computes."""
        job, task, side, first = self._job, training.task, training.side, training.first
        assert isinstance(side, ServerSide), "a cut moves after a mini-batch, and where labels go up"
        if first is not None:
            first.update()
            first.give_up()
            training.seconds += first.seconds_after
        _clip(side, norm)
        came = None if layers is None else unpack_layers(layers, Crossing.of(job, task, cut))
        given = None if layers is not None else pack_layers(give(side, job.between(task.cut, cut)))
        training.task = replace(task, cut=cut)
        go_on(self._furnish(training), side, came)
        return given

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        training = self._sessions.pop(session.id, None)
        if training is None:
            return
        side, first = training.side, training.first
        try:
            if first is not None and record.failure is None:
                await first.updated()
            elif side is not None and record.failure is None:
                await training.lane.run(partial(_clip, side, record.norm), 1.0)
        finally:
            delivery = self._end(training)
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
            clock=SessionClock(*(record.seconds.get(name, 0.0) for name in ("session", "server", "up"))),
            rates=record.rates,
            moves=record.moves,
        )

    async def snapshot(self, session: SessionInfo) -> SideState | None:
        """See :class:`cutwater.stream.step_trainer.Keeper`."""
        training = self._training(session)
        return await training.lane.run(partial(_written, training), 1.0)

    async def restore(self, session: SessionInfo, snapshot: SideState) -> None:
        """See :class:`cutwater.stream.step_trainer.Keeper`."""
        training = self._training(session)
        await training.lane.run(partial(self._restore, training, snapshot), 1.0)

    def _restore(self, training: _Training, snapshot: SideState) -> None:
        read_side(self._furnish(training), snapshot.tensors, snapshot.plain["side"])
        for name in _COUNTED:
            setattr(training, name, snapshot.plain[name])

    def _step(
        self, training: _Training, part: Part, smashed: Tensors, labels: Tensor, flops: float
    ) -> StepResult:
        """Stages 3 and 4, in the thread that computes; the update is left for later if it answers first."""
        began = time.monotonic()
        side = training.side or self._furnish(training)
        assert isinstance(side, ServerSide), "labels go up in this session"
        training.stages.clear()
        if part.norm is not None:
            side.clip(part.norm)
        moved = self._moved(smashed)
        targets, first, lane = labels.to(self._device), training.first, training.lane
        if first is None:
            side.send(part, moved, targets)
            reply, rest = side.receive(), None
        else:
            reply = first.differentiate(part, moved, targets, alone=lane.alone)
            rest = partial(first.update_in, lane)
        training.loss += reply.loss * len(labels)
        self._book(training, flops, began)
        measures = dict(training.stages)
        if part.last and side.manner.clip is not None:
            measures[NORM] = reply.norm
        return StepResult(reply.gradients, reply.loss, measures, reply.unused, rest)

    def _forward(self, training: _Training, part: Part, smashed: Tensors, flops: float) -> StepResult:
        """Of a model in three parts: the output of its middle, in the thread that computes."""
        began = time.monotonic()
        side = training.side or self._furnish(training)
        assert isinstance(side, MiddleSide), "labels stay in this session"
        training.stages.clear()
        if part.norm is not None:
            side.clip(part.norm)
        output = side.forward(part, self._moved(smashed))
        self._book(training, flops, began)
        return StepResult(tuple(tensor.detach() for tensor in output), measures=dict(training.stages))

    def _backward(self, training: _Training, part: Part, back: Back, flops: float) -> StepResult:
        """The rest of it, with the update."""
        began, side = time.monotonic(), training.side
        assert isinstance(side, MiddleSide), "a part comes back after it went forward"
        training.stages.clear()
        reply = side.backward(part, replace(back, gradients=self._moved(back.gradients)))
        self._book(training, flops, began)
        measures = dict(training.stages)
        if reply.norm is not None:
            measures[NORM] = reply.norm
        return StepResult(reply.gradients, measures=measures, unused=reply.unused)

    def _moved(self, tensors: Tensors) -> Tensors:
        return tuple(t.detach().to(self._device).requires_grad_(t.requires_grad) for t in tensors)

    def _book(self, training: _Training, flops: float, began: float) -> None:
        training.flops += flops
        if self._pacer is not None:
            self._pacer.hold(flops / self._compute, time.monotonic() - began)

    def _furnish(self, training: _Training) -> ServerSide | MiddleSide:
        task = training.task
        half = copy.deepcopy(self._job.split(task.cut, task.second_cut).server)
        half.load_state_dict({name: training.state[name] for name in half.state_dict()}, strict=True)
        side = training.side = self._job.server_side(task, half, _watch(training.stages))
        # Where gradients are clipped by their norm, all of them are needed for the answer.
        if self._holders is not None and isinstance(side, ServerSide) and side.manner.clip is None:
            training.first = AnswerFirst(side, self._holders)
        return side


_COUNTED = ("loss", "flops", "seconds")


def _clip(side: AtServer, norm: float | None) -> None:
    """The update of a mini-batch that is over, where it waits for the norm of all gradients."""
    if norm is not None:
        side.clip(norm)
    elif side.waiting:
        raise RunError("the norm of the last mini-batch's gradients was not told")


def _written(training: _Training) -> SideState | None:
    """The half of a session once nothing is left to do of its last part, in the thread that computes."""
    if training.first is not None:
        training.first.update()
    found = write_side(training.side) if training.side is not None else None
    if found is None:
        return None
    tensors, side = found
    return SideState(tensors, {"side": side, **{name: getattr(training, name) for name in _COUNTED}})


def scheduler(device: str, turns: Turns | None = None) -> ShareScheduler:
    """A fair queue for halves on a device, which other processes may use by turns."""
    return ShareScheduler(device, before=_compute_alone, turns=turns)


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
