"""One session at a device: phase 3 against a server across the stream, with the time that it takes."""

import copy
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.data.samples import Batch
from cutwater.execute.emulate import EmulatedDevice, Meter
from cutwater.federate.study import Study
from cutwater.model.layers import Layered
from cutwater.model.randomness import RandomStream
from cutwater.model.traffic import tensor_bytes
from cutwater.stream.client import StreamClient
from cutwater.stream.expectation import Expectation
from cutwater.stream.ticket import Ticket
from cutwater.train.session import State, Steps, Task, run_session
from cutwater.train.step import Reply, Tensors


class _Across:
    """The server as a session sees it, across the stream, with the time that everything takes."""

    def __init__(self, stream: StreamClient, meter: Meter) -> None:
        self.stream, self.meter = stream, meter

    def step(self, step: int, smashed: Tensors, labels: Tensor) -> Reply:
        """Stages 2 to 5."""
        meter, up = self.meter, tensor_bytes((*smashed, labels))
        meter.carry("smashed_upload", up, up=True)
        reply = self.stream.step(step, smashed, labels)
        stay = min(reply.measures["server_seconds"], reply.seconds)
        forward, backward = (reply.measures.get(name, 0.0) for name in ("server_forward", "server_backward"))
        # Waiting for the server's share counts as the server's time, as it does in eqs. (12) and (13).
        part = forward / (forward + backward) if forward + backward > 0 else 0.5
        meter.seconds["server_forward"] += stay * part
        meter.seconds["server_backward"] += stay * (1 - part)
        down = tensor_bytes(reply.gradients)
        transit = reply.seconds - stay
        meter.seconds["smashed_upload"] += transit * up / (up + down)
        meter.carry("gradient_download", down, up=False, taken=transit * down / (up + down))
        return reply


def run_at_device(
    study: Study, task: Task, ticket: Ticket | None, weights: State, batches: Iterable[Batch], meter: Meter
) -> Steps:
    """Train a task from the weights of the client's half, which afterwards has the trained ones."""
    job = study.job()
    began = meter.clock()
    down, up = job.model_bytes(task)
    job.split(task.cut).client.load_state_dict(weights, strict=True)
    meter.carry("model_download", down, up=False)
    whole = task.cut == len(job.model)
    if whole != (ticket is None):
        needed = "needs no ticket for the stream, but has one" if whole else "needs a ticket for the stream"
        raise EngineError(f"the order for cut {task.cut} {needed}: do server and node run the same release?")
    session: AbstractContextManager[StreamClient | None] = nullcontext()
    if ticket is not None:
        session = StreamClient(ticket, expectation(study, task), client=task.client)
    with session as stream:
        server = None if stream is None else _Across(stream, meter)
        steps = run_session(job, task, server, batches, watch=meter.watch, begin=meter.begin)
        if stream is not None:
            stream.finish()
    meter.carry("model_upload", up, up=True)
    meter.seconds["session"] += meter.clock() - began
    return steps


def expectation(study: Study, task: Task) -> Expectation:
    """What crosses the cut in this session, found out by both ends on their own."""
    sizes = study.batch_sizes(task.client)
    smashed, needed, labels = _example(study.model, study, task.cut)
    classes = None if labels.is_floating_point() else study.data.classes
    like = Expectation.like(smashed, labels, steps=len(sizes), batch=max(sizes), classes=classes)
    gradients = tuple(spec for spec, wanted in zip(like.smashed, needed, strict=True) if wanted)
    return Expectation(like.batch, like.steps, like.smashed, like.labels, gradients)


@lru_cache(maxsize=128)
def _example(model: Layered, study: Study, cut: int) -> tuple[Tensors, tuple[bool, ...], Tensor]:
    """Smashed data and labels of two samples, and which of the former need gradients."""
    inputs, labels = study.two_samples()
    # A copy, because even a trial run moves running statistics.
    half = copy.deepcopy(model.split(cut).client).train()
    with RandomStream(0, 0):
        output = half(*inputs)
    smashed = output if isinstance(output, tuple) else (output,)
    needed = tuple(tensor.requires_grad for tensor in smashed)
    return tuple(tensor.detach().to("meta") for tensor in smashed), needed, labels.to("meta")


def emulated(study: Study, task: Task) -> EmulatedDevice:
    """The device that the scenario describes, as it is in this round."""
    condition = study.truth.true(study.client(task.client), task.round)
    costs = study.profile.cuts[task.cut - 1]
    return EmulatedDevice(condition, costs.client_forward_flops, costs.client_backward_flops)
