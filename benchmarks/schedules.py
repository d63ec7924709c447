"""Steps that overlap and codecs, over links that the kernel holds to a rate: predicted against measured.

    python benchmarks/network.py --only schedules        about twenty minutes on two cores, as root

One client in a network namespace trains against the stream's server outside of it, with 1, 2, 4 and 8
micro-batches, as fp32 and as int8, and int8 again with a round trip, made by a proxy that holds every byte
back. What each half computes in a second is measured before and after, without a network and at the size of
the parts, because a processor is faster with some sizes than with others and at some times than at others,
and with the pauses that the link makes between the halves, because it is slower after one; what coding and
decoding take is part of it, because the plan knows nothing of that. The seconds of its steps, the median of
three sessions, must be those of the plan, the bytes that the kernel counts those of the plan, and the
weights those of the same session in one process, bit for bit. A round is the steps and the transfer of the
client's half both ways, which crosses the same link. The link has 6 Mbit/s: both ends run on this machine,
and over one of 40 Mbit/s int8 leaves so little to wait for that client, server and their codecs get in each
other's way on two cores (measured: 1.12 to 1.22 of predicted for int8 in 2 to 8 parts, which no plan can
know of). Over one of 12 Mbit/s, what the kernel may send at once is over sooner than a virtual machine is
sometimes woken up again: plain sockets then take up to 1.3 of the time.
"""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import harmonic_mean, median

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from cutwater.execute.emulate import Meter
from cutwater.federate.from_scenario import study_of
from cutwater.federate.study import Study
from cutwater.plan.planners import solve
from cutwater.plan.session import Wires
from cutwater.plan.value import ClientPlan
from cutwater.scenario.file import load_scenario
from cutwater.serve.device import run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.hosting import Hosting
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Ticket
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, coders, run_both_sides, run_session
from cutwater.train.step import Part, Reply, ServerSide, ServerStages, Tensors
from cutwater.train.wire import Coder

OFF = 0.05
"""How far measured seconds may be from predicted, of predicted."""
BYTES_OFF = 0.02
FASTER = 2.0
"""How many times as fast as fp32 in turn the fastest must be, a whole round of each."""
PARTS = (1, 2, 4, 8)
"""Micro-batches."""
TIMES = 3
"""Sessions of each kind, of which the median counts."""
CLIENT = "mid"
"""Of network.py's clients."""
RATE = 6
"""Mbit/s of its link."""
HOW = "burst 18kb latency 1000ms"
"""What a link may send ahead after a pause, and so for nothing, must be little beside a part of a mini-batch,
but last for as long as the machine may stand still; the queue is long enough that nothing is dropped."""
BUSY = {
    "client": ("client_forward", "client_backward"),
    "up": ("smashed_upload",),
    "server": ("server_forward", "server_backward"),
    "down": ("gradient_download",),
}
"""What is at work in which phases: a miss says of which of them it comes."""
TRIP = 0.04
"""Seconds that the proxy makes a round trip take."""
PAUSES = 2.0
"""Seconds of a mini-batch, each way, for which halves wait for each other while their computing is measured:
as long as the link takes, but no longer, because a processor does not get any slower then."""
SCENARIO = """
[model]
name = "cnn"
input = "1x28x28"
[server]
compute = "{server}"
[session]
steps = 2
batch_size = 512
[data]
source = "schedules:images"
partition = "iid"
[train]
lr = 0.05
seed = 1
[[client]]
name = "mid"
compute = "{compute}"
up = "{up}"
down = "{down}"
rtt = "{rtt}"
samples = 512
forbidden = [2, 3, 4, 5, 6]
"""


def images() -> tuple[TensorDataset, TensorDataset]:
    """Noise the size of MNIST's images: how fast it is learned is not the question here."""
    random = torch.Generator().manual_seed(1)
    pictures = torch.randn(768, 1, 28, 28, generator=random)
    data = TensorDataset(pictures, torch.arange(768) % 10)
    return data, data


@dataclass(frozen=True)
class Measured:
    """What a session took."""

    seconds: float
    """Of its steps."""
    transfer: float
    """Of the client's half, both ways."""
    bytes: int
    """By the kernel's counters, both ways."""
    busy: dict[str, float]
    """Seconds for which client, link and server were each at work."""
    sha256: str

    @property
    def round(self) -> float:
        """Seconds of all of it."""
        return self.seconds + self.transfer


def of_plan(study: Study) -> tuple[ClientPlan, float, float]:
    """The client's plan, the seconds of its steps, and all bytes."""
    (client,) = solve(study.problem(list(study.fleet))).clients
    phases = client.phases
    seconds = phases.total - phases.model_download - phases.model_upload
    return client, seconds, client.bytes_up + client.bytes_down


def busy_of(phases: dict[str, float]) -> dict[str, float]:
    """Seconds of a session's phases, by what is at work in them."""
    return {name: sum(phases.get(phase, 0.0) for phase in of) for name, of in BUSY.items()}


def task_of(study: Study, client: ClientPlan) -> Task:
    """What the client trains."""
    (task,) = study.tasks(1, solve(study.problem(list(study.fleet))))
    assert task.cut == client.cut
    return task


def variant(scenario: Path, parts: int, codec: str) -> Study:
    """The scenario with so many micro-batches and one codec both ways."""
    loaded = load_scenario(scenario)
    session = replace(loaded.session, micro_batches=parts)
    return study_of(replace(loaded, session=session, wires=Wires.both_ways(codec)))


class Coded(ServerStages):
    """A server's half in this process behind a wire, with the seconds that coding takes at either end."""

    def __init__(self, server: ServerStages, task: Task, seconds: dict[str, float], pause: float) -> None:
        self._server, self._seconds, self._pause = server, seconds, pause
        (self._up, self._down), self._numbers = coders(task), list[int]()

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Coded at the client, decoded at the server."""
        arrived = self._across(self._up, part.number, smashed, "client", "server")
        wanting = zip(arrived, smashed, strict=True)
        self._server.send(part, tuple(a.requires_grad_(s.requires_grad) for a, s in wanting), labels)
        self._numbers.append(part.number)

    def receive(self) -> Reply:
        """Coded at the server, decoded at the client."""
        reply = self._server.receive()
        gradients = self._across(self._down, self._numbers.pop(0), reply.gradients, "server", "client")
        return replace(reply, gradients=gradients)

    def clip(self, norm: float) -> None:
        """One number."""
        self._server.clip(norm)

    def _across(self, coder: Coder, number: int, tensors: Tensors, here: str, there: str) -> Tensors:
        began = time.monotonic()
        coded = coder.encode(number, tensors)
        self._seconds[here] += time.monotonic() - began
        time.sleep(self._pause)
        began = time.monotonic()
        arrived = coder.decode(number, coded, tensors)
        self._seconds[there] += time.monotonic() - began
        return arrived


def of_halves(scenario: str, parts: int, codec: str, folder: Path) -> dict[str, float]:
    """The FLOPS at which both halves really compute, in parts of this size, coded so."""
    path = folder / "halves.toml"
    path.write_text(scenario, encoding="utf-8")
    study = variant(path, parts, codec)
    client, _, _ = of_plan(study)
    task, job = task_of(study, client), study.job()
    assert study.session.steps is not None
    pause = min(client.phases.smashed_upload / study.session.steps, PAUSES) / parts
    torch.set_num_threads(1)
    found: list[dict[str, float]] = []
    for _ in range(1 + TIMES):  # the first time warms up
        seconds = {"client": 0.0, "server": 0.0}

        @contextmanager
        def watch(stage: str, seconds: dict[str, float] = seconds) -> Iterator[None]:
            began = time.monotonic()
            yield
            seconds[stage.partition("_")[0]] += time.monotonic() - began

        half = job.split(task.cut).server
        server = ServerSide(half, job.optimizer(task.lr), task.seed, job.loss, watch)
        run_session(job, task, Coded(server, task, seconds, pause), job.batches(task), watch=watch)
        found.append(seconds)
    cost, samples = study.profile.cuts[task.cut - 1], float(study.problem(list(study.fleet)).work[0])
    on_client = cost.client_forward_flops + cost.client_backward_flops
    on_server = cost.server_forward_flops + cost.server_backward_flops
    took = {end: median(each[end] for each in found[1:]) for end in ("client", "server")}
    return {
        "compute": on_client * samples / took["client"],
        "server": on_server * samples / took["server"],
    }


def said(*found: dict[str, float]) -> dict[str, str]:
    """What was found, once or several times, as a scenario says it."""
    return {key: f"{harmonic_mean([each[key] for each in found]):.0f} FLOPS" for key in found[0]}


class ModelTransfer:
    """The server's end of what a client gets before its steps, and sends after them: so many bytes."""

    def __init__(self, host: str, down: int, up: int) -> None:
        self._listener, self._sizes = socket.create_server((host, 0)), (down, up)
        self.address = (host, self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener, self._listener.accept()[0] as client:
            client.sendall(bytes(self._sizes[0]))
            receive(client, self._sizes[1])
            client.sendall(b".")


def receive(connection: socket.socket, size: int) -> None:
    """All of so many bytes."""
    while size:
        got = connection.recv(min(size, 1 << 16))
        if not got:
            raise EOFError(f"the other end is gone, {size} bytes before the last")
        size -= len(got)


def measure(
    scenario: Path, parts: int, codec: str, inside: list[str], host: str, counted, through
) -> Measured:
    """Train the session from within the namespace as often as it takes for a median."""
    found = [_measure(scenario, parts, codec, inside, host, counted, through) for _ in range(TIMES)]
    (sha256,) = {each.sha256 for each in found}
    seconds, transfer = (median(getattr(each, name) for each in found) for name in ("seconds", "transfer"))
    busy = {name: median(each.busy[name] for each in found) for name in BUSY}
    return Measured(seconds, transfer, median(each.bytes for each in found), busy, sha256)


def _measure(
    scenario: Path, parts: int, codec: str, inside: list[str], host: str, counted, through
) -> Measured:
    study = variant(scenario, parts, codec)
    client, _, _ = of_plan(study)
    task, job = task_of(study, client), study.job()
    hosting = Hosting(job, study.profile, study.server.compute)
    with (
        closing(hosting),
        through(host) as proxy,
        StreamServer(hosting, host=host, advertise=proxy.address) as server,
    ):
        proxy.lead_to(server)
        ticket = server.issue(
            run="bench",
            round=1,
            client=task.client,
            cut=task.cut,
            expect=expectation(study, task),
            open_seconds=300.0,
            session_seconds=300.0,
        )
        hosting.expect(ticket.claims.id, task, study.server.compute, study.initial)
        model = job.model_bytes(task)
        order = {
            "scenario": str(scenario),
            "parts": parts,
            "codec": codec,
            "ticket": ticket.to_text(),
            "model": model,
            "address": ModelTransfer(host, *model).address,
        }
        before = counted()
        said = subprocess.run(
            [*inside, sys.executable, __file__, "--device"],
            input=json.dumps(order),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        after = counted()
        server.wait(ticket, timeout=10.0)
        trained = hosting.collect(ticket.claims.id)
        server.revoke(ticket)
    found = json.loads(said)
    whole = dict(study.job().split(task.cut).client.state_dict())
    assert set(found["sha256"]) == set(whole)
    shas = {**found["sha256"], **{name: weights_sha256({name: one}) for name, one in trained.state.items()}}
    steps, transfer = found["seconds"]["steps"], found["transfer"]
    return Measured(
        steps, transfer, after - before, busy_of(found["seconds"]), json.dumps(shas, sort_keys=True)
    )


def device() -> None:
    """The client's end, in its namespace; prints what it took and the digests of its half."""
    order = json.load(sys.stdin)
    torch.set_num_threads(1)
    study = variant(Path(order["scenario"]), order["parts"], order["codec"])
    client, _, _ = of_plan(study)
    task, meter = task_of(study, client), Meter()
    half = study.job().split(task.cut).client
    weights = {name: study.initial[name] for name in half.state_dict()}
    down, up = order["model"]
    with socket.create_connection(tuple(order["address"])) as link:
        began = time.monotonic()
        receive(link, down)
        transfer = time.monotonic() - began
        run_at_device(study, task, Ticket.from_text(order["ticket"]), weights, study.batches(task), meter)
        began = time.monotonic()
        link.sendall(bytes(up))
        receive(link, 1)
        transfer += time.monotonic() - began
    digests = {name: weights_sha256({name: one}) for name, one in half.state_dict().items()}
    print(json.dumps({"seconds": meter.seconds, "transfer": transfer, "sha256": digests}))


def in_one_process(scenario: Path, parts: int, codec: str) -> str:
    """The digests of the same session without a network."""
    study = variant(scenario, parts, codec)
    client, _, _ = of_plan(study)
    torch.set_num_threads(1)
    state = run_both_sides(study.job(), task_of(study, client), study.initial).state
    return json.dumps({name: weights_sha256({name: one}) for name, one in state.items()}, sort_keys=True)


class Direct:
    """No proxy."""

    def __init__(self, host: str) -> None:
        self.address = host

    def lead_to(self, server: StreamServer) -> None:
        """Nothing to do."""


class Proxy:
    """Holds every byte back for half a round trip, each way, without slowing the flow."""

    def __init__(self, host: str) -> None:
        self._host, self._target = host, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        made = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, host, 0), self._loop)
        self.address = f"{host}:{made.result().sockets[0].getsockname()[1]}"

    def lead_to(self, server: StreamServer) -> None:
        """Where bytes go."""
        self._target = server.port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(self._host, self._target)
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer), return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await waiting.get()
                await asyncio.sleep(max(due - time.monotonic(), 0.0))
                if not data:
                    writer.close()
                    return
                writer.write(data)

        delivering = asyncio.create_task(deliver())
        data = b"."
        while data:
            data = await reader.read(1 << 16)
            waiting.put_nowait((time.monotonic() + TRIP / 2, data))
        await delivering

    def close(self) -> None:
        """End it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


@contextmanager
def direct(host: str) -> Iterator[Direct]:
    """Straight to the server."""
    yield Direct(host)


@contextmanager
def delayed(host: str) -> Iterator[Proxy]:
    """Through the proxy."""
    proxy = Proxy(host)
    try:
        yield proxy
    finally:
        proxy.close()


def schedules(folder: Path, link: dict[str, str], inside: list[str], host: str, counted) -> bool:
    """All of it; ``link`` is what was probed of the client's link and this machine."""
    kept, rounds, text = [], {}, SCENARIO.format(**link)
    trip = float(link["rtt"].removesuffix(" s")) + TRIP

    def written(values: dict[str, str]) -> Path:
        path = folder / "schedules.toml"
        path.write_text(SCENARIO.format(**link | values), encoding="utf-8")
        return path

    def tried(codec: str, parts: int, *, far: bool = False) -> float:
        other = {"rtt": f"{trip:.6f} s"} if far else {}
        before = of_halves(text, parts, codec, folder)
        scenario = written(said(before) | other)
        found = measure(scenario, parts, codec, inside, host, counted, delayed if far else direct)
        scenario = written(said(before, of_halves(text, parts, codec, folder)) | other)
        what = f"{codec}, {parts} parts" + (f", {1000 * TRIP:.0f} ms round trip" if far else "")
        kept.append(_judge(scenario, parts, codec, found, what, bytes_too=not far))
        return found.round

    for codec in ("fp32", "int8"):
        for parts in PARTS:
            rounds[codec, parts] = tried(codec, parts)
    fastest = min(rounds, key=lambda each: rounds[each])
    ratio = rounds["fp32", 1] / rounds[fastest]
    kept.append(ratio >= FASTER)
    plain = rounds["fp32", 1] / rounds["fp32", 8]
    print(
        f"{'ok  ' if kept[-1] else 'MISS'} a round with {fastest[0]} in {fastest[1]} parts is {ratio:.2f} "
        f"times as fast as fp32 in turn, the model's transfer included (limit {FASTER:g}); fp32 in 8 parts "
        f"{plain:.2f} times"
    )
    for parts in PARTS:
        tried("int8", parts, far=True)
    return all(kept)


def _judge(scenario: Path, parts: int, codec: str, found: Measured, what: str, *, bytes_too: bool) -> bool:
    client, seconds, bytes_ = of_plan(variant(scenario, parts, codec))
    time_off, bytes_off = found.seconds / seconds - 1, found.bytes / bytes_ - 1
    same = found.sha256 == in_one_process(scenario, parts, codec)
    good = abs(time_off) <= OFF and same and (not bytes_too or abs(bytes_off) <= BYTES_OFF)
    told = f"{1 + time_off:.3f} of {seconds:.2f} s (1 ± {OFF:g})"
    told += f", bytes {1 + bytes_off:.3f} (1 ± {BYTES_OFF:g})" if bytes_too else ""
    bits = "the bits of one process" if same else "OTHER BITS"
    print(f"{'ok  ' if good else 'MISS'} {what:<34} {told}, {bits}")
    planned = busy_of(client.phases.to_json())
    rows = [f"{name} {found.busy[name]:.2f} of {planned[name]:.2f} s" for name in BUSY]
    print(f"     {'busy, as the device books it':<34} {', '.join(rows)}")
    return good


if __name__ == "__main__":
    if "--device" in sys.argv:
        device()
    else:
        print("run by: python benchmarks/network.py --only schedules")
