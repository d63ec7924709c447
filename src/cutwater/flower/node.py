"""One session at a device: the training loop of every engine, against a server across the network."""

import copy
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn

from cutwater.base.errors import EngineError
from cutwater.execute.emulate import Device, Meter
from cutwater.federate.study import Study
from cutwater.flower.shared_study import mini_batches
from cutwater.flower.wire import Order, Report, unpack
from cutwater.model.layers import Layered
from cutwater.model.randomness import RandomStream
from cutwater.stream.client import StreamClient
from cutwater.stream.expectation import Expectation
from cutwater.stream.ticket import Ticket
from cutwater.train.session import Batch, Job, State, Task, check_loss
from cutwater.train.step import ClientSide, Reply, Tensors, state_bytes, train_step

Batches = Callable[[Task], Iterable[Batch]]


class _Across:
    """The server as :func:`train_step` sees it, across the stream, with the time that everything takes."""

    def __init__(self, stream: StreamClient, meter: Meter) -> None:
        self.stream, self.meter = stream, meter

    def step(self, step: int, smashed: Tensors, labels: Tensor) -> Reply:
        """Stages 2 to 5."""
        meter, up = self.meter, state_bytes((*smashed, labels))
        meter.carry("smashed_upload", up, up=True)
        reply = self.stream.step(step, smashed, labels)
        stay = min(reply.measures["server_seconds"], reply.seconds)
        forward, backward = (reply.measures.get(name, 0.0) for name in ("server_forward", "server_backward"))
        # Waiting for the server's share counts as the server's time, as it does in eqs. (12) and (13).
        part = forward / (forward + backward) if forward + backward > 0 else 0.5
        meter.seconds["server_forward"] += stay * part
        meter.seconds["server_backward"] += stay * (1 - part)
        down = state_bytes(reply.gradients)
        transit = reply.seconds - stay
        meter.seconds["smashed_upload"] += transit * up / (up + down)
        meter.carry("gradient_download", down, up=False, taken=transit * down / (up + down))
        return reply


def run_session(study: Study, order: Order, weights: ArrayRecord, batches: Batches, meter: Meter) -> Report:
    """Train what the order says; the trained tensors are then those of the client's half."""
    task, job = order.task, study.job()
    half = job.split(task.cut).client
    _take_over(half, order, weights, meter)
    job.model.restart()
    client = ClientSide(half, job.optimizer(task.lr), task.seed, meter.watch)
    whole = task.cut == len(job.model)
    if whole != (order.ticket == ""):
        raise EngineError(f"cut {task.cut} comes {'with' if whole else 'without'} a ticket for the stream")
    session: AbstractContextManager[StreamClient | None] = nullcontext() if whole else _stream(study, order)
    began = meter.clock()
    with session as stream:
        server = None if stream is None else _Across(stream, meter)
        total, samples, steps = 0.0, 0, 0
        for step, (inputs, labels) in enumerate(batches(task)):
            meter.rows = len(labels)
            loss = check_loss(train_step(client, server, job.loss, step, inputs, labels), task, step)
            total, samples, steps = total + loss * len(labels), samples + len(labels), steps + 1
        if stream is not None:
            stream.finish()
    meter.carry("model_upload", state_bytes(half.state_dict().values()), up=True)
    meter.seconds["session"] += meter.clock() - began
    return Report(
        order.run, task.client, task.round, steps, task.samples, total / max(samples, 1), meter.seconds
    )


def _take_over(half: nn.Module, order: Order, weights: ArrayRecord, meter: Meter) -> None:
    began = meter.clock()
    state = unpack(weights, half.state_dict())
    half.load_state_dict(state, strict=True)
    meter.carry("model_download", state_bytes(state.values()), up=False)
    meter.seconds["session"] += meter.clock() - began


def _stream(study: Study, order: Order) -> StreamClient:
    ticket, task = Ticket.from_text(order.ticket), order.task
    claims = ticket.claims
    if (claims.run, claims.round, claims.client, claims.cut) != (
        order.run,
        task.round,
        task.client,
        task.cut,
    ):
        raise EngineError(f"the ticket is for {claims}, but the order for {task}")
    return StreamClient(ticket, expectation(study, task), client=task.client)


def trained_state(job: Job, cut: int) -> State:
    """w^C after a session."""
    state: State = job.split(cut).client.state_dict()
    return state


def expectation(study: Study, task: Task) -> Expectation:
    """What crosses the cut in this session, found out by both ends on their own."""
    sizes = mini_batches(study, task.client)
    smashed, needed, labels = _example(study.model, study, task.cut)
    classes = None if labels.is_floating_point() else study.data.classes
    like = Expectation.like(smashed, labels, steps=len(sizes), batch=max(sizes), classes=classes)
    gradients = tuple(spec for spec, wanted in zip(like.smashed, needed, strict=True) if wanted)
    return Expectation(like.batch, like.steps, like.smashed, like.labels, gradients)


@lru_cache(maxsize=128)
def _example(model: Layered, study: Study, cut: int) -> tuple[Tensors, tuple[bool, ...], Tensor]:
    """Smashed data and labels of two samples, and which of the former need gradients."""
    inputs, labels = next(iter(study.test()))
    # A copy, because even a trial run moves running statistics.
    half = copy.deepcopy(model.split(cut).client).train()
    with RandomStream(0, 0):
        output = half(*(value[:2] for value in inputs))
    smashed = output if isinstance(output, tuple) else (output,)
    needed = tuple(tensor.requires_grad for tensor in smashed)
    return tuple(tensor.detach().to("meta") for tensor in smashed), needed, labels[:2].to("meta")


def emulated(study: Study, task: Task) -> Device:
    """The device that the scenario describes, as it is in this round."""
    condition = study.truth.true(study.client(task.client), task.round)
    costs = study.profile.cuts[task.cut - 1]
    return Device(condition, costs.client_forward_flops, costs.client_backward_flops)


def one_thread_here() -> None:
    """Sessions run with one torch thread everywhere, which makes their bits the same on any machine.

    The number of threads belongs to the calling thread, so every handler sets its own.
    """
    torch.set_num_threads(1)
