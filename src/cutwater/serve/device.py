"""One session at a device: phase 3 against a server across the stream, with the time that it takes."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.data.lengths import check_sizes
from cutwater.data.samples import Batch
from cutwater.execute.emulate import EmulatedDevice, LinkWay, Meter
from cutwater.federate.study import Study
from cutwater.serve.expectations import expectation
from cutwater.serve.moving import pack_layers, unpack_layers
from cutwater.stream.client import StreamClient, StreamReply
from cutwater.stream.messages import WAITED
from cutwater.stream.middle import MiddleClient
from cutwater.stream.move import Move
from cutwater.stream.overlap import no_delay
from cutwater.stream.ticket import Ticket
from cutwater.train.kept_side import MovingStages, SideState
from cutwater.train.movable import Crossing, why_fixed, why_not
from cutwater.train.session import State, Steps, Task, run_session
from cutwater.train.step import Part, Reply, ServerStages, Tensors
from cutwater.train.three_parts import Back, MiddleStages


class _Across(MovingStages):
    """The server as a session sees it across the stream, with the time that all takes."""

    def __init__(self, stream: StreamClient, meter: Meter, study: Study, task: Task) -> None:
        self.stream, self.meter, self._study, self._task = stream, meter, study, task

    def clip(self, norm: float) -> None:
        """With the next part, or at the end."""
        self.stream.clip(norm)

    def receive(self) -> Reply:
        """Stages 3 to 5."""
        reply = self.stream.receive()
        self._book(reply)
        return reply

    def due(self) -> int:
        """As the server says in its replies."""
        return self.stream.due

    def move(self, cut: int, given: SideState | None) -> SideState | None:
        """Layers up or down; their time is that of smashed data, or of gradients."""
        study, task = self._study, self._task
        refused = why_fixed(study.job(), task) or why_not(study.job(), task, cut)
        if refused:
            raise EngineError(f"the server has the cut moved from {task.cut} to {cut}, but {refused}")
        packed = None if given is None else pack_layers(given)
        self._carry(0 if packed is None else packed.numel())
        reply = self.stream.move(move_to(study, task, cut), packed)
        self._book(reply)
        self._task = replace(task, cut=cut)
        if self.meter.device is not None:
            self.meter.device = emulated(study, self._task)
        return (
            unpack_layers(reply.gradients[0], Crossing.of(study.job(), task, cut)) if packed is None else None
        )

    def _carry(self, size: int) -> None:
        """Have so many bytes on their way up."""

    def _book(self, reply: StreamReply) -> None:
        """Book what a message and its answer took."""


class _InTurn(_Across):
    """One part at a time.

    A part's way there and back is what it took beyond the server. Of that, the link's round trip is a wait;
    of the rest, each direction has its part by the bytes that crossed, over its rate where that was promised.
    """

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Stage 2."""
        self.stream.send(part, smashed, labels)
        self._carry(self.stream.carrying)

    def _carry(self, size: int) -> None:
        self.meter.carry("smashed_upload", size, up=True)

    def _book(self, reply: StreamReply) -> None:
        _book_link(self.meter, self.stream, reply, self._task)


class _Middle(MiddleStages):
    """The same where the model's tail is here, too: every part goes there and back twice."""

    def __init__(self, stream: MiddleClient, meter: Meter, task: Task) -> None:
        self.stream, self.meter, self._task = stream, meter, task

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """Smashed data up, the output of the server's layers down."""
        return self._there_and_back(part, smashed).gradients

    def backward(self, part: Part, back: Back) -> Back:
        """The gradients of that up, those of the smashed data down."""
        reply = self._there_and_back(part, back)
        return Back(reply.gradients, reply.unused, reply.norm)

    def clip(self, norm: float) -> None:
        """With the next part, or at the end."""
        self.stream.clip(norm)

    def _there_and_back(self, part: Part, given: Tensors | Back) -> StreamReply:
        self.stream.put(part, given)
        self.meter.carry("smashed_upload", self.stream.carrying, up=True)
        reply = self.stream.take()
        _book_link(self.meter, self.stream, reply, self._task)
        return reply


class _Overlapped(_Across):
    """The same where parts overlap: how long each direction of the link was busy, beside all else.

    A part's way there and back is what it took beyond its stay at the server, where it may have waited for
    others, and beyond the link's round trip, which a mini-batch waits for once; of that, each direction has
    its part by the bytes that crossed. Parts share a link, so
    their times on it overlap: what is booked is how long at least one of them was on its way (the union). Of
    an emulated link it is known, and what the real one took beneath it is left out.
    """

    def __init__(
        self,
        stream: StreamClient,
        meter: Meter,
        study: Study,
        task: Task,
        link: tuple[LinkWay, LinkWay] | None,
    ) -> None:
        super().__init__(stream, meter, study, task)
        self._link = link
        self._until = {"smashed_upload": 0.0, "gradient_download": 0.0}

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Stage 2, or rather its beginning."""
        self.stream.send(part, smashed, labels)
        if part.last:
            emulated = self.meter.device.condition.rtt if self.meter.device is not None else 0.0
            self.meter.seconds["round_trips"] += self.stream.round_trip + emulated

    def _book(self, reply: StreamReply) -> None:
        transit = max(_book_server(self.meter, reply) - self.stream.round_trip, 0.0)
        if self._link is None:
            up, down = reply.carried
            self._book_way("smashed_upload", reply.began, transit * up / (up + down))
            back = transit * down / (up + down)
            self._book_way("gradient_download", reply.came - back, back)
        else:
            for phase, way in zip(self._until, self._link, strict=True):
                self.meter.seconds[phase] = way.busy

    def _book_way(self, phase: str, began: float, taken: float) -> None:
        end, before = began + taken, self._until[phase]
        self.meter.seconds[phase] += max(end - max(began, before), 0.0)
        self._until[phase] = max(end, before)


def _book_link(meter: Meter, stream: StreamClient, reply: StreamReply, task: Task) -> None:
    """Book a message's way there and back, in turn; a line that is not shared is as fast as the other."""
    transit = _book_server(meter, reply)
    trip = min(stream.round_trip, transit)
    meter.seconds["round_trips"] += trip
    transit -= trip
    up, down = reply.carried
    there, back = up / (task.rate_up or task.rate_down or 1.0), down / (task.rate_down or task.rate_up or 1.0)
    both = (there + back) or 1.0
    there, back = transit * there / both, transit * back / both
    meter.seconds["smashed_upload"] += there
    meter.carry("gradient_download", down, up=False, taken=back)


def _book_server(meter: Meter, reply: StreamReply) -> float:
    """Book the server's time for a part; the seconds that are left of its round trip."""
    waited = reply.measures.get(WAITED, 0.0)
    stay = min(reply.measures["server_seconds"], reply.seconds)
    forward, backward = (reply.measures.get(name, 0.0) for name in ("server_forward", "server_backward"))
    # Waiting for the server's share counts as the server's time, as it does in eqs. (12) and (13).
    part = forward / (forward + backward) if forward + backward > 0 else 0.5
    meter.seconds["server_forward"] += stay * part
    meter.seconds["server_backward"] += stay * (1 - part)
    return max(reply.seconds - stay - waited, 0.0)


def run_at_device(
    study: Study, task: Task, ticket: Ticket | None, weights: State, batches: Iterable[Batch], meter: Meter
) -> Steps:
    """Train a task from the weights of the client's half, which afterwards has the trained ones."""
    job = study.job()
    began = meter.clock()
    down, _ = job.model_bytes(task)
    job.split(task.cut, task.second_cut).client.load_state_dict(weights, strict=True)
    meter.carry("model_download", down, up=False)
    whole = task.cut == len(job.model)
    if whole != (ticket is None):
        needed = "needs no ticket for the stream, but has one" if whole else "needs a ticket for the stream"
        raise EngineError(f"the order for cut {task.cut} {needed}: do server and node run the same release?")
    meter.micro_batches = job.micro_batches
    timed = meter.timed(batches if ticket is None else _within(study, task, batches))
    if ticket is None:
        steps = run_session(job, task, None, timed, watch=meter.watch, begin=meter.begin)
    else:
        steps = _run_split(study, task, ticket, timed, meter)
    _, up = job.model_bytes(replace(task, cut=steps.cut))
    meter.carry("model_upload", up, up=True)
    meter.seconds["session"] += meter.clock() - began
    return steps


def _within(study: Study, task: Task, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The mini-batches of a session, none of which is larger than the server was told."""
    for batch in batches:
        check_sizes(batch, study.example_batches, study.data, task.client)
        yield batch


def _run_split(study: Study, task: Task, ticket: Ticket, batches: Iterable[Batch], meter: Meter) -> Steps:
    expect, link = expectation(study, task), meter.link()
    up, down = (no_delay, no_delay) if link is None else link
    kind = MiddleClient if task.second_cut else StreamClient
    with kind(ticket, expect, client=task.client, up=up, down=down) as stream:
        server: ServerStages | MiddleStages
        if isinstance(stream, MiddleClient):
            server = _Middle(stream, meter, task)
        else:
            what = (stream, meter, study, task)
            server = _Overlapped(*what, link) if expect.window > 1 else _InTurn(*what)
        steps = run_session(study.job(), task, server, batches, watch=meter.watch, begin=meter.begin)
        stream.finish()
    # Codecs work on the device, between its own stages and the link.
    meter.seconds["client_forward"] += stream.coding["up"]
    meter.seconds["client_backward"] += stream.coding["down"]
    return steps


def move_to(study: Study, task: Task, cut: int) -> Move:
    """A move of the cut of a session that is at its task's, found out by both ends on their own."""
    most, up = Crossing.of(study.job(), task, cut).most, cut < task.cut
    expect = expectation(study, replace(task, cut=cut))
    return Move(task.cut, cut, expect, most if up else 0, 0 if up else most)


def emulated(study: Study, task: Task) -> EmulatedDevice:
    """The device that the scenario describes, as it is in this round."""
    condition = study.truth.true(study.client(task.client), task.round)
    # Of a line that is shared it gets what was planned.
    up, down = task.rate_up or condition.up, task.rate_down or condition.down
    condition = replace(condition, up=min(condition.up, up), down=min(condition.down, down))
    costs, whole = study.profile.cuts[task.cut - 1], study.profile.cuts[-1]
    before_tail = study.profile.cuts[task.second_cut - 1] if task.second_cut else whole
    return EmulatedDevice(
        condition,
        costs.client_forward_flops,
        costs.client_backward_flops,
        tail_forward=whole.client_forward_flops - before_tail.client_forward_flops,
        tail_backward=whole.client_backward_flops - before_tail.client_backward_flops,
    )
