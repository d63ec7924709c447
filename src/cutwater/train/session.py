"""A client's local training session: download w^C, train, upload w^C (paper, Phases 2 to 4)."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.data.samples import Batch
from cutwater.model.layers import Layered, Split
from cutwater.model.traffic import Traffic, traffic
from cutwater.plan.session import part_sizes
from cutwater.train.metrics import Metric
from cutwater.train.step import (
    ClientSide,
    Loss,
    MakeOptimizer,
    ServerSide,
    ServerStages,
    Watch,
    no_watch,
    train_step,
)
from cutwater.train.wire import Coder, InProcess

State = Mapping[str, Tensor]
"""Weights and buffers by name."""


@dataclass(frozen=True)
class Task:
    """What one client does in one round; small and printable, so that it travels as JSON."""

    client: str
    round: int
    cut: int
    seed: int
    """Where the random streams of this session's layers start from."""
    lr: float
    samples: int
    """n_k: the client's weight in the average."""
    holds: int = 0
    """The client has the fixed weights of this many layers from earlier rounds."""
    schedule: str = "in turn"
    """Whether the parts of a mini-batch cross the cut one after the other, or overlap."""
    up: str = "fp32"
    """The codec of smashed data."""
    down: str = "fp32"
    """The codec of gradients."""

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return asdict(self)


@dataclass(frozen=True)
class Result:
    """What a session leaves behind."""

    task: Task
    state: State
    """The trained w_k, client and server side joined. Valid until the next result is asked for."""
    loss: float
    """Mean loss over the session's samples."""
    steps: int
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, eq=False)
class Job:
    """What all sessions of a run share."""

    model: Layered
    loss: Loss
    optimizer: Callable[[float], MakeOptimizer]
    """The optimizer of a session, given its learning rate; made anew for each session."""
    batches: Callable[[Task], Iterable[Batch]]
    """The mini-batches of a session, on the model's device: a function of client and round alone."""
    micro_batches: int = 1
    """The parts that every mini-batch is trained in."""
    metrics: tuple[Metric, ...] = ()
    """What the model is scored by, besides loss and accuracy."""

    def split(self, cut: int) -> Split:
        """The model's halves, which share its tensors; made once for each cut."""
        return _split(self.model, cut)

    def traffic(self, cut: int) -> Traffic:
        """What of w^C crosses the client's link at a cut."""
        return _traffic(self.model, cut)

    def model_bytes(self, task: Task) -> tuple[int, int]:
        """Bytes of the model that a session's client gets and sends: DM and UM (eqs. (9) and (16))."""
        mine = self.traffic(task.cut)
        held = self.traffic(task.holds) if task.holds else None
        return mine.bytes_down(held), mine.bytes_up


@lru_cache(maxsize=128)
def _split(model: Layered, cut: int) -> Split:
    return model.split(cut)


@lru_cache(maxsize=128)
def _traffic(model: Layered, cut: int) -> Traffic:
    return traffic(model.half(0, cut))


@dataclass(frozen=True)
class Steps:
    """What the mini-batches of a session came to."""

    loss: float
    """Mean over the samples."""
    count: int


def run_session(
    job: Job,
    task: Task,
    server: ServerStages | None,
    batches: Iterable[Batch],
    *,
    watch: Watch = no_watch,
    begin: Callable[[int], None] = lambda rows: None,
) -> Steps:
    """Phase 3 at a client, wherever its server is: all mini-batches, one after the other.

    The client's half has its weights already; afterwards it has the trained ones. ``server`` is None where
    the client holds the whole model; ``begin`` is told how many samples the next mini-batch has.
    """
    job.model.restart()
    client = ClientSide(job.split(task.cut).client, job.optimizer(task.lr), task.seed, watch)
    total, samples, steps, parts = 0.0, 0, 0, 0
    train = partial(train_step, micro_batches=job.micro_batches, overlapped=task.schedule == "overlapped")
    for inputs, labels in batches:
        begin(len(labels))
        loss = train(client, server, job.loss, parts, inputs, labels)
        total, samples = total + check_loss(loss, task, steps) * len(labels), samples + len(labels)
        steps, parts = steps + 1, parts + len(part_sizes(len(labels), job.micro_batches))
    if not steps:
        raise RunError(
            f"client {task.client!r} has no mini-batch in round {task.round}; give it samples or steps"
        )
    return Steps(total / samples, steps)


def run_both_sides(job: Job, task: Task, weights: State) -> Result:
    """A whole session in this process, client and server, from the global weights."""
    job.model.module.load_state_dict(weights, strict=True)
    server = None
    if task.cut < len(job.model):
        half = job.split(task.cut).server
        side = ServerSide(half, job.optimizer(task.lr), task.seed, job.loss)
        server = InProcess(side, *coders(task))
    steps = run_session(job, task, server, job.batches(task))
    down, up = job.model_bytes(task)
    return Result(
        task=task,
        state=job.model.module.state_dict(),
        loss=steps.loss,
        steps=steps.count,
        bytes_up=up + (server.up if server else 0),
        bytes_down=down + (server.down if server else 0),
    )


def coders(task: Task) -> tuple[Coder, Coder]:
    """What codes a session's smashed data, and its gradients."""
    return Coder.of(task.up, "up", task.seed), Coder.of(task.down, "down", task.seed)


def check_loss(loss: float, task: Task, step: int) -> float:
    """A loss that is not a number would poison the global model: stop and say whose it is."""
    if not math.isfinite(loss):
        raise RunError(
            f"the loss of client {task.client!r} is {loss} in round {task.round}, step {step}; "
            f"the last good model is kept: lower the learning rate ({task.lr:g}) or check the client's data"
        )
    return loss
