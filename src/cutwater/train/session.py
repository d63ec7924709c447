"""A client's local training session: download w^C, train, upload w^C (paper, Phases 2 to 4)."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from torch import Tensor, nn

from cutwater.base.errors import CodecError, RunError
from cutwater.data.samples import Batch
from cutwater.model.halves import Ends
from cutwater.model.layers import Layered, Split
from cutwater.model.traffic import Traffic, traffic
from cutwater.plan.session import part_sizes
from cutwater.train.kept_side import MovingStages, give, go_on, named_tensors
from cutwater.train.manner import AS_IT_IS, Manner
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
from cutwater.train.three_parts import EndsSide, MiddleSide, MiddleStages
from cutwater.train.wire import Coder, InProcess, MiddleInProcess

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
    """The client has the fixed weights of this many first layers from earlier rounds."""
    holds_last: int = 0
    """The same of this many last layers, where it had a tail."""
    schedule: str = "in turn"
    """Whether the parts of a mini-batch cross the cut one after the other, or overlap."""
    up: str = "fp32"
    """The codec of smashed data."""
    down: str = "fp32"
    """The codec of gradients."""
    second_cut: int = 0
    """The layers after it stay with the client, too, and so do labels and loss; 0 where there is none."""
    rate_up: float = 0.0
    """What it may send, in bits per second, of a line that others share; 0 if its link is its own."""
    rate_down: float = 0.0
    """The same for what it is sent."""
    once: bool = False
    """Whether a row of smashed data goes up once, and later as a number."""

    @property
    def rows_once(self) -> int:
        """How many rows the server keeps, so that they go up once: none, or one for each sample."""
        return self.samples if self.once else 0

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return dict(vars(self))  # all of it is plain already


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
    manner: Callable[[Task], Manner] = lambda task: AS_IT_IS
    """What both sides of a session do alike, besides."""

    def split(self, cut: int, second_cut: int = 0) -> Split:
        """The model's halves, which share its tensors; made once for each cut, or pair of cuts."""
        return _split(self.model, cut, second_cut)

    def client_side(self, task: Task, watch: Watch = no_watch) -> ClientSide:
        """The client's side of a session, with an optimizer of its own."""
        client = self.split(task.cut, task.second_cut).client
        rest = (self.optimizer(task.lr), task.seed, watch, self.manner(task))
        return EndsSide(client, *rest) if isinstance(client, Ends) else ClientSide(client, *rest)

    def server_side(self, task: Task, half: nn.Module, watch: Watch = no_watch) -> ServerSide | MiddleSide:
        """The server's side of a session, with this half and an optimizer of its own."""
        optimizer, manner = self.optimizer(task.lr), self.manner(task)
        if task.second_cut:
            return MiddleSide(half, optimizer, task.seed, watch, manner)
        return ServerSide(half, optimizer, task.seed, self.loss, watch, manner)

    def between(self, cut: int, to: int) -> Mapping[str, Tensor]:
        """Weights and buffers, by name, of the layers that change sides when a cut moves."""
        less, more = (named_tensors(self.split(one).client) for one in sorted((cut, to)))
        return {name: one for name, one in more.items() if name not in less}

    def traffic(self, cut: int, second_cut: int = 0) -> Traffic:
        """What of w^C crosses the client's link at a cut, or pair of cuts."""
        return _traffic(self.model, cut, second_cut)

    def model_bytes(self, task: Task) -> tuple[int, int]:
        """Bytes of the model that a session's client gets and sends: DM and UM (eqs. (9) and (16))."""
        mine = self.traffic(task.cut, task.second_cut)
        return mine.bytes_down(self.held(task)), mine.bytes_up

    def held(self, task: Task) -> frozenset[str]:
        """Names of weights that a session's client holds, of those that do not learn."""
        return self.model.names_at_ends(task.holds, task.holds_last)


@lru_cache(maxsize=128)
def _split(model: Layered, cut: int, second_cut: int) -> Split:
    return model.split(cut, second_cut)


@lru_cache(maxsize=128)
def _traffic(model: Layered, cut: int, second_cut: int) -> Traffic:
    return traffic(_split(model, cut, second_cut).client if second_cut else model.half(0, cut))


@dataclass(frozen=True)
class Steps:
    """What the mini-batches of a session came to."""

    loss: float
    """Mean over the samples."""
    count: int
    cut: int
    """Where the session ended: that of its task, unless it has moved."""


def run_session(
    job: Job,
    task: Task,
    server: ServerStages | MiddleStages | None,
    batches: Iterable[Batch],
    *,
    watch: Watch = no_watch,
    begin: Callable[[int], None] = lambda rows: None,
) -> Steps:
    """Phase 3 at a client, wherever its server is: all mini-batches, one after the other.

    The client's half has its weights already; afterwards it has the trained ones. ``server`` is None where
    the client holds the whole model; ``begin`` is told how many samples the next mini-batch has. A server
    that has the cut moved is asked for that after every mini-batch (:mod:`cutwater.train.kept_side`).
    """
    job.model.restart()
    client = job.client_side(task, watch)
    total, samples, steps, parts = 0.0, 0, 0, 0
    moving = server if isinstance(server, MovingStages) else None
    train = partial(train_step, micro_batches=job.micro_batches, overlapped=task.schedule == "overlapped")
    for inputs, labels in batches:
        begin(len(labels))
        with _codecs_blamed_on(task):
            loss = train(client, server, job.loss, parts, inputs, labels)
        total, samples = total + check_loss(loss, task, steps) * len(labels), samples + len(labels)
        steps, parts = steps + 1, parts + len(part_sizes(len(labels), job.micro_batches))
        if moving is not None and (to := moving.due()):
            task, client = _moved(job, task, to, client, moving)
    if not steps:
        raise RunError(
            f"client {task.client!r} has no mini-batch in round {task.round}; give it samples or steps"
        )
    return Steps(total / samples, steps, task.cut)


def _moved(job: Job, task: Task, to: int, old: ClientSide, server: MovingStages) -> tuple[Task, ClientSide]:
    """The session and its client's side at another cut."""
    given = give(old, job.between(task.cut, to)) if to < task.cut else None
    came = server.move(to, given)
    moved = replace(task, cut=to)
    new = job.client_side(moved, old.watch)
    go_on(new, old, came)
    return moved, new


def run_both_sides(job: Job, task: Task, weights: State) -> Result:
    """A whole session in this process, client and server, from the global weights."""
    job.model.module.load_state_dict(weights, strict=True)
    server: InProcess | MiddleInProcess | None = None
    if task.cut < len(job.model):
        side = job.server_side(task, job.split(task.cut, task.second_cut).server)
        wire = (*coders(task), task.rows_once)
        server = InProcess(side, *wire) if isinstance(side, ServerSide) else MiddleInProcess(side, *wire)
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


@contextmanager
def _codecs_blamed_on(task: Task) -> Iterator[None]:
    """Within, what a codec refuses is told with whose it is and what is not lost: NaN under int8, say."""
    try:
        yield
    except CodecError as error:
        kept = "; the rounds before are kept" if task.round > 1 else ""
        raise CodecError(f"client {task.client!r}, round {task.round}: {error}{kept}") from error


def check_loss(loss: float, task: Task, step: int) -> float:
    """A loss that is not a number would poison the global model: stop and say whose it is."""
    if not math.isfinite(loss):
        raise RunError(
            f"the loss of client {task.client!r} is {loss} in round {task.round}, step {step}; "
            f"the last good model is kept: lower the learning rate ({task.lr:g}) or check the client's data"
        )
    return loss
