"""What the activation stream costs beyond bare gRPC, and whether promised shares are kept: one run, ratios.

    python benchmarks/stream.py            all of it, about four minutes on two cores
    python benchmarks/stream.py --quick    fewer repetitions, for a look
    python benchmarks/stream.py --only windows    codecs and windows alone (windows.py); steps; jobs

Bare gRPC is the same library doing nothing else: one bidirectional stream, a blocking client, a grpc.aio
server in another process, TLS with the same kind of certificate, gRPC's own defaults but for its message cap,
which 4 and 8 MiB would exceed. Throughput is that of messages sent ahead, each with a short answer; the cost
of a step is that of one message there and one back, as in training. A split by hand is what one would write
without Cutwater: raw bytes over bare gRPC, the server's half in a thread of its own, nothing checked or
shared. An answer first is one that does not wait for the gradients of the server's own weights, which ours
makes afterwards where that helps. Bare and ours take turns, so that a busy machine hits both alike, and
medians are compared. Exits with 1 if a limit is missed.
"""

import argparse
import asyncio
import json
import os
import queue
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import grpc
import jobs
import numpy as np
import torch
import windows
from stream_rig import expecting
from torch import nn
from torch.nn import functional as F

from cutwater.base.freed_memory import keep_freed_memory
from cutwater.model import zoo
from cutwater.serve.answer_first import AnswerFirst
from cutwater.serve.shares import ShareScheduler
from cutwater.serve.two_part_backward import backward_first
from cutwater.stream.client import StreamClient
from cutwater.stream.connection import connect
from cutwater.stream.expectation import Expectation
from cutwater.stream.frames import FrameKind
from cutwater.stream.limits import Limits
from cutwater.stream.messages import Assembler, Packer
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import StepResult
from cutwater.stream.ticket import Ticket, opening
from cutwater.stream.tls import Certificate
from cutwater.train.step import (
    ClientSide,
    Part,
    Reply,
    ServerSide,
    ServerStages,
    backward_in_one_go,
    optimizer_factory,
    train_step,
)
from cutwater.train.wire import Coder

MIB = 1 << 20
THROUGHPUT = 0.85
STEP_COST = 1.5
BY_HAND = 1.1
"""What frames, checksums, checks, tickets and enforced shares may add to a split by hand."""
SETS = 9
"""Of fresh processes, one after the other: how fast one is depends on where its memory came to lie."""
SIZES = (1, 4, 8)
TOTAL = 128
"""MiB that throughput is measured on."""
ANSWER = 0.8
"""How soon a large half should answer that lets its weights wait, of what it takes in one go."""
SHARE_ERROR = 0.05
SESSIONS = 64
SESSION_BYTES = 256 * 1024
"""Smashed data of a step of each."""
ROWS = 16
STEPS = 1 << 12
"""More than any session takes."""
SMASHED = (ROWS, 16, 32, 32)
"""1 MiB, of the model that is split."""
AHEAD = 3
"""Messages that are on their way before the first answer is waited for, where throughput is measured."""
DISTINCT = 16
"""Messages that either side sends in turn: nobody's data is one megabyte, warm in a cache, for ever."""
BARE = [("grpc.max_receive_message_length", 16 * MIB), ("grpc.max_send_message_length", 16 * MIB)]


def expectation(kind: str, size: int) -> Expectation:
    """What crosses in a session: of a real model, bytes there and back, or bytes there and a short answer."""
    if kind == "int8":
        plain = expectation("fp32", size)
        return replace(plain, up=Coder.of("int8", "up", 7), down=Coder.of("int8", "down", 7))
    shape = SMASHED if kind in (*MODELS, "fp32") else (ROWS, size // 4 // ROWS)
    like = expecting([torch.empty(shape)], torch.zeros(ROWS).long(), batches=[ROWS] * STEPS, classes=10)
    return replace(like, gradients=()) if kind == "ahead" else like


def thin() -> tuple[nn.Module, nn.Module]:
    """Halves that compute next to nothing: what a step costs is what its transport costs."""
    client = nn.Sequential(nn.Conv2d(3, 16, 1))
    server = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(16 * 4 * 4, 10))
    return client, server


def cnn() -> tuple[nn.Module, nn.Module]:
    """Halves of a small CNN, which computes about as long as it waits."""
    client = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU())
    server = nn.Sequential(
        nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 15 * 15, 10)
    )
    return client, server


MODELS = {"thin": thin, "cnn": cnn}
OPTIMIZER = optimizer_factory("sgd", 0.01)


def halves(model: str) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    return MODELS[model]()


def server_side(model: str) -> ServerSide:
    return ServerSide(halves(model)[1], OPTIMIZER, 7, F.cross_entropy)


# What runs in the other processes


class Halves:
    """Transport only, or a real half of a model behind the share scheduler."""

    def __init__(self) -> None:
        self.lane = ShareScheduler().lane("half", 1e9)
        self.lane.submit(lambda: torch.set_num_threads(1), 1.0).result()
        self.sides = {model: AnswerFirst(server_side(model)) for model in MODELS}
        self.gradients: dict[torch.Size, torch.Tensor] = {}

    async def step(self, session: Any, part: Part, smashed: Any, labels: Any) -> StepResult:
        """A step of either kind."""
        if session.run in MODELS:
            side = self.sides[session.run]
            work = partial(self._differentiate, side, part, smashed, labels)
            reply = await self.lane.run(work, 1e6)
            return StepResult(reply.gradients, reply.loss, rest=partial(side.update_in, self.lane))
        if not smashed[0].requires_grad:
            return StepResult((), 0.0)
        shape = smashed[0].shape
        return StepResult((self.gradients.setdefault(shape, torch.zeros(shape)),), 0.0)

    def _differentiate(self, side: AnswerFirst, part: Part, smashed: Any, labels: Any) -> Reply:
        return side.differentiate(part, smashed, labels, alone=self.lane.alone)

    async def closed(self, session: Any, record: Any) -> None:
        """Nothing to give up."""


def memory(pid: int | str = "self") -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve_stream() -> None:
    torch.set_num_threads(1)
    keep_freed_memory()  # as the ServerApp does
    with StreamServer(Halves()) as server:
        for line in sys.stdin:
            order = json.loads(line)
            expect = expectation(order["kind"], order["size"])
            ticket = server.issue(run=order["kind"], round=0, client="k", cut=1, expect=expect)
            print(json.dumps({"ticket": ticket.to_text(), "memory": memory()}), flush=True)


def floats(message: bytes, *, end: int | None = None) -> torch.Tensor:
    """Smashed data or gradients, where they arrived."""
    return torch.from_numpy(np.frombuffer(memoryview(message)[:end], np.float32).reshape(SMASHED))


def half_step(side: ServerSide, number: int, message: bytes) -> bytes:
    """Raw smashed data and labels in, raw gradients out."""
    smashed = floats(message, end=MIB).requires_grad_()
    labels = torch.from_numpy(np.frombuffer(message, np.int64, offset=MIB))
    return side.differentiate(Part(number), (smashed,), labels).gradients[0].numpy().tobytes()


def serve_bare() -> None:
    async def echo(_: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            await context.write(message)

    async def short(_: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(b"ok")

    async def split(model: str, _: Any, context: Any) -> None:
        side, number, loop = server_side(model), 0, asyncio.get_running_loop()
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            while (message := await context.read()) is not grpc.aio.EOF:
                reply = await loop.run_in_executor(pool, half_step, side, number, message)
                loop.call_soon(pool.submit, side.update)  # once the reply is on its way, as ours
                await context.write(reply)
                number += 1

    methods = {"/bare/echo": echo, "/bare/short": short}
    methods |= {f"/bare/{model}": partial(split, model) for model in MODELS}

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            """What gRPC asks for every call."""
            return grpc.stream_stream_rpc_method_handler(methods[details.method])

    async def main() -> None:
        certificate = Certificate.self_signed()
        server = grpc.aio.server(options=BARE)
        server.add_generic_rpc_handlers((Handler(),))
        pair = (certificate.key, certificate.certificate.encode())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials((pair,)))
        await server.start()
        print(json.dumps([port, certificate.certificate, certificate.name]), flush=True)
        await server.wait_for_termination()

    asyncio.run(main())


def serve_by_hand() -> None:
    keep_freed_memory()  # its half computes as ours does; what bare gRPC is compared with stays as it comes
    serve_bare()


@contextmanager
def process(role: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, __file__, "--serve", role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        child.terminate()
        child.wait()


def address(child: subprocess.Popen[str]) -> list[Any]:
    """Where a bare server listens: its port, its certificate and the name in that."""
    assert child.stdout is not None
    return list(json.loads(child.stdout.readline()))


# What is compared


class Bare:
    """Bytes over bare gRPC: there and back, or sent ahead with a short answer each."""

    def __init__(self, address: list[Any], method: str, size: int = 0) -> None:
        port, certificate, name = address
        options = [*BARE, ("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(certificate.encode())
        self.channel = grpc.secure_channel(f"127.0.0.1:{port}", credentials, options)
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = self.channel.stream_stream(f"/bare/{method}")(iter(self.outbox.get, None))
        self.messages = [os.urandom(size) for _ in range(DISTINCT)]

    def __call__(self, count: int = 1) -> None:
        """So many messages, and their answers."""
        for number in range(count + AHEAD):
            if number < count:
                self.outbox.put(self.messages[number % len(self.messages)])
            if number >= AHEAD:
                next(self.call)

    def close(self) -> None:
        """Hang up."""
        self.outbox.put(None)
        self.call.cancel()
        self.channel.close()


class ByHand(Bare, ServerStages):
    """The server's half over bare gRPC, as :func:`train_step` calls it."""

    def send(self, part: Part, smashed: tuple[torch.Tensor, ...], labels: torch.Tensor) -> None:
        """Raw bytes there."""
        self.outbox.put(b"".join((smashed[0].detach().numpy().data.cast("B"), labels.numpy().tobytes())))

    def receive(self) -> Reply:
        """And back."""
        return Reply((floats(next(self.call)),), 0.0)


class Server:
    """Our server in its process, asked for tickets."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child

    def issue(self, kind: str, size: int = 0) -> tuple[Ticket, int]:
        """A ticket, and the memory that the server has now."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps({"kind": kind, "size": size}) + "\n")
        self.child.stdin.flush()
        answer = json.loads(self.child.stdout.readline())
        return Ticket.from_text(answer["ticket"]), answer["memory"]


class Echo:
    """Smashed data there and gradients back over the stream, step by step."""

    def __init__(self, server: Server, size: int, kind: str = "echo") -> None:
        ticket, _ = server.issue(kind, size)
        expect = expectation(kind, size)
        self.client = StreamClient(ticket, expect, client="k").__enter__()
        self.smashed = (torch.randn(ROWS, *expect.smashed[0].shape),)
        self.labels = torch.zeros(ROWS).long()
        self.number = 0

    def __call__(self) -> None:
        """One step."""
        self.client.step(self.number, self.smashed, self.labels)
        self.number += 1

    def close(self) -> None:
        """Hang up."""
        self.client.close()


class Ahead:
    """The stream's own frames to the stream's own server, sent ahead as flow control lets them."""

    def __init__(self, server: Server, size: int) -> None:
        ticket, _ = server.issue("ahead", size)
        expect = expectation("ahead", size)
        proof = opening(ticket, "k", secrets.token_bytes(16), 1, 0)
        self.connection = connect(ticket, Limits(), proof, 600.0)
        self.packer, self.assembler = Packer(expect.at_server), Assembler(expect.at_client)
        self.assembler.expect(ROWS)
        labels = torch.zeros(ROWS).long()
        self.tensors = [(torch.randn(ROWS, size // 4 // ROWS), labels) for _ in range(DISTINCT)]
        self.number = 0
        self.connection.receive(self.assembler)

    def __call__(self, count: int) -> None:
        """So many steps, and their replies."""
        for number in range(count + AHEAD):
            if number < count:
                tensors = self.tensors[number % DISTINCT]
                packed = self.packer.pack(FrameKind.PART, self.number, tensors, rows=ROWS)
                self.connection.send(packed.frames)
                self.number += 1
            if number >= AHEAD:
                self.connection.receive(self.assembler)

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


def in_turns(sides: dict[str, Callable[[], float]], repetitions: int, burst: int = 5) -> dict[str, float]:
    """Median seconds of each, as each says how many it took."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repetitions):
        for name, side in sides.items():
            side()
            times[name] += [side() for _ in range(burst)]
    return {name: median(taken) for name, taken in times.items()}


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Verdicts:
    """Prints each ratio with its limit and remembers whether all were kept."""

    def __init__(self) -> None:
        self.kept = True

    def __call__(self, what: str, ratio: float, limit: float, *, least: bool, detail: str) -> None:
        """Judge one ratio."""
        kept = ratio >= limit if least else ratio <= limit
        self.kept &= kept
        sign = "≥" if least else "≤"
        print(
            f"{'ok  ' if kept else 'MISS'} {what:<44} {ratio:6.3f}  {sign} {limit:g}   {detail}", flush=True
        )


Pairs = dict[int, list[dict[str, float]]]
"""By MiB of a message: seconds of bare gRPC and of ours, on connections one right after the other."""


def time_throughput(server: Server, bare: list[Any], repetitions: int) -> Pairs:
    """On many connections each: how fast one is depends on where the kernel puts its threads."""
    found: Pairs = {mib: [] for mib in SIZES}
    for mib, pairs in found.items():
        for _ in range(repetitions):
            sides = {"bare": Bare(bare, "short", mib * MIB), "ours": Ahead(server, mib * MIB)}
            taken = {}
            for name, side in sides.items():
                side(16 // mib)
                taken[name] = timed(partial(side, TOTAL // mib))
                side.close()
            pairs.append(taken)
    return found


def judge_throughput(found: list[Pairs], verdict: Verdicts) -> None:
    """The median over pairs of connections, of all sets of processes."""
    for mib in SIZES:
        pairs = [pair for each in found for pair in each[mib]]
        rate = {name: TOTAL / median(pair[name] for pair in pairs) for name in pairs[0]}
        verdict(
            f"throughput at {mib} MiB, of bare gRPC",
            median(pair["bare"] / pair["ours"] for pair in pairs),
            THROUGHPUT,
            least=True,
            detail=f"{rate['ours']:,.0f} of {rate['bare']:,.0f} MiB/s",
        )


class Steps:
    """Steps of real training: in process, over the stream, split by hand, with an echo at the cut.

    The echo carries each step's own smashed data, where the stream would. Whoever has waited for a network
    computes more slowly afterwards: an echo costs a step more than the time it takes.
    """

    SIDES = ("here", "split", "by hand", "echo")

    def __init__(self, model: str, stream: StreamClient, by_hand: ByHand, echo: Bare) -> None:
        self.inputs, self.labels = (torch.randn(ROWS, 3, 32, 32),), torch.randint(0, 10, (ROWS,))
        self.clients = {name: ClientSide(halves(model)[0], OPTIMIZER, 7) for name in self.SIDES}
        self.servers = {"here": server_side(model), "split": stream, "by hand": by_hand}
        self.echo, self.local = echo, server_side(model)
        self.counts, self.alone = dict.fromkeys(self.SIDES, 0), list[float]()

    def step(self, name: str) -> float:
        """Seconds of the next step of one side."""
        number, self.counts[name] = self.counts[name], self.counts[name] + 1
        client, server = self.clients[name], self.servers.get(name)
        if server is None:
            return self._with_echo(number, client)
        return timed(lambda: train_step(client, server, F.cross_entropy, number, self.inputs, self.labels))

    def _with_echo(self, number: int, client: ClientSide) -> float:
        began = time.perf_counter()
        smashed = client.forward(number, self.inputs)
        taken = time.perf_counter() - began
        self.echo.messages = [smashed[0].detach().numpy().tobytes()]  # to make bytes of it does not count
        began = time.perf_counter()
        self.echo(1)
        self.alone.append(time.perf_counter() - began)
        client.backward(self.local.step(number, smashed, self.labels).gradients)
        return taken + time.perf_counter() - began

    def measure(self, repetitions: int) -> dict[str, float]:
        """Median milliseconds of a step of each side, and of the echo alone."""
        seconds = in_turns({name: partial(self.step, name) for name in self.SIDES}, repetitions)
        for weights in zip(*(each.half.state_dict().values() for each in self.clients.values()), strict=True):
            assert all(torch.equal(weights[0], other) for other in weights), "a step gave other bits"
        return {name: 1e3 * taken for name, taken in (seconds | {"alone": median(self.alone)}).items()}


Times = dict[str, dict[str, float]]
"""Of each model: milliseconds of a step of each side."""


def time_steps(server: Server, bare: list[Any], hand: list[Any], repetitions: int) -> Times:
    """A step of each model."""
    found: Times = {}
    for model in MODELS:
        echo, by_hand = Bare(bare, "echo"), ByHand(hand, model)
        with StreamClient(server.issue(model)[0], expectation(model, 0), client="k") as stream:
            found[model] = Steps(model, stream, by_hand, echo).measure(repetitions)
        echo.close()
        by_hand.close()
    return found


def time_codecs(server: Server, repetitions: int) -> dict[str, float]:
    """Median milliseconds of a step of 1 MiB as fp32 and as int8, nothing computed."""
    sides = {kind: Echo(server, MIB, kind) for kind in ("fp32", "int8")}
    seconds = in_turns({name: partial(timed, side) for name, side in sides.items()}, repetitions)
    for side in sides.values():
        side.close()
    return {name: 1e3 * taken for name, taken in seconds.items()}


def judge_steps(model: str, times: list[dict[str, float]], verdict: Verdicts) -> None:
    """What a split step costs over one in process: the median over sets of processes."""
    costs = [{name: each[name] - each["here"] for name in Steps.SIDES} for each in times]

    def of_echo(name: str) -> float:
        return median(cost[name] / each["alone"] for cost, each in zip(costs, times, strict=True))

    ms = {name: median(each[name] for each in times) for name in times[0]}
    at_cut = median(cost["split"] / cost["echo"] for cost in costs)
    detail = (
        f"{ms['split']:.2f} against {ms['here']:.2f} ms in process, same bits; an echo takes "
        f"{ms['alone']:.2f} ms and costs {of_echo('echo'):.2f} of that at the cut: ours is {at_cut:.2f} of it"
    )
    what = f"a split step's cost at 1 MiB, of an echo, {model}"
    verdict(what, of_echo("split"), STEP_COST, least=False, detail=detail)
    verdict(
        "the same, of a split by hand",
        median(cost["split"] / cost["by hand"] for cost in costs),
        BY_HAND,
        least=False,
        detail=f"{ms['by hand']:.2f} ms, {of_echo('by hand'):.2f} of the echo itself",
    )


def answers(quick: bool, verdict: Verdicts) -> None:
    """How soon the server's half of a ResNet-18 answers if its weights wait, and what that costs in all."""
    torch.manual_seed(1)
    first_layer, *others = zoo.build("resnet18", "3x64x64", 10)
    side = ServerSide(nn.Sequential(*others), OPTIMIZER, 7, F.cross_entropy)
    smashed = first_layer(torch.randn(8, 3, 64, 64)).detach()
    labels = torch.randint(0, 10, (8,))
    ways: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(12 if quick else 60):
        first = number % 2 == 1
        rests: list[Callable[[], None] | None] = []

        def in_two_parts(value: torch.Tensor, wanted: Any, rests: list[Any] = rests) -> None:
            rests.append(backward_first(value, wanted))

        backward = in_two_parts if first else backward_in_one_go
        batch = (smashed.clone().requires_grad_(),)
        answered = timed(partial(side.differentiate, Part(number), batch, labels, backward))
        later = sum(timed(rest) for rest in rests if rest is not None) + timed(side.update)
        ways[first].append((answered, answered + later))
    plain, first_ = ([1e3 * median(each) for each in zip(*ways[way], strict=True)] for way in (False, True))
    verdict(
        "ResNet-18's answer first, of one in one go",
        first_[0] / plain[0],
        ANSWER,
        least=False,
        detail=f"{first_[0]:.0f} of {plain[0]:.0f} ms; with the update {first_[1]:.0f} of {plain[1]:.0f} ms",
    )


def shares(quick: bool, verdict: Verdicts) -> None:
    """Four sessions that always have work, of different sizes, on one device."""
    weights = {"k1": 1.0, "k2": 2.0, "k3": 4.0, "k4": 8.0}
    sizes = {"k1": 192, "k2": 128, "k3": 160, "k4": 144}
    matrices = {name: torch.randn(size, size) for name, size in sizes.items()}
    with ShareScheduler() as scheduler:
        scheduler.lane("threads", 1.0).submit(lambda: torch.set_num_threads(1), 1.0).result()
        gate = threading.Event()
        scheduler.lane("gate", 1e-12).submit(gate.wait, 1e-12)
        lanes = {name: scheduler.lane(name, weight) for name, weight in weights.items()}
        pieces = 1000 if quick else 4000
        for name, lane in lanes.items():
            for _ in range(pieces):
                last = lane.submit(lambda matrix=matrices[name]: matrix @ matrix, 2.0 * sizes[name] ** 3)
        gate.set()
        while lanes["k4"].delivery().pieces < pieces * 3 // 4:
            time.sleep(0.005)
        deliveries = [lane.delivery() for lane in lanes.values()]
        del last
    work = sum(each.flops for each in deliveries)
    worst = max(abs(each.flops / work / (each.share / 15) - 1) for each in deliveries)
    parts = " : ".join(f"{each.flops / work * 15:.2f}" for each in deliveries)
    verdict(
        "delivered share off the promised, at worst",
        worst,
        SHARE_ERROR,
        least=False,
        detail=f"{parts} of 1 : 2 : 4 : 8",
    )


def sessions_at_once(server: Server, steps: int) -> tuple[float, float, float]:
    """Of 64 sessions, each in a thread: the part that holds, steps a second, KiB of each at the server."""
    before = server.issue("echo", SESSION_BYTES)[1]
    clients = [Echo(server, SESSION_BYTES) for _ in range(SESSIONS)]
    failures: list[BaseException] = []

    def run(client: Echo) -> None:
        try:
            for _ in range(steps):
                client()
            assert client.client.openings == 1
        except BaseException as error:
            failures.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - began
    after = server.issue("echo", SESSION_BYTES)[1]
    held = sum(client.client.finish() == steps for client in clients) if not failures else 0
    for client in clients:
        client.close()
    return held / SESSIONS, SESSIONS * steps / taken, (after - before) / SESSIONS / 1024


def many(server: Server, quick: bool, verdict: Verdicts) -> None:
    """Sessions side by side; and what one of them costs the server while it is open.

    They come twice, because the first ones leave behind what a process keeps of what it once needed.
    """
    sessions_at_once(server, 10)
    held, rate, kib = sessions_at_once(server, 10 if quick else 40)
    verdict(
        "sessions that hold, of 64 at once", held, 1.0, least=True, detail=f"{rate:,.0f} steps/s of 256 KiB"
    )
    limit = (2 * SESSION_BYTES + MIB) / 1024
    detail = f"{kib:,.0f} KiB; two steps and 1 MiB are {limit:,.0f} KiB"
    verdict("memory of an open session, of what it may take", kib / limit, 1.0, least=False, detail=detail)


def coded(quick: bool, verdict: Verdicts) -> None:
    """What codecs cost, and shares with windows open: see windows.py."""
    times = []
    for _ in range(2 if quick else SETS):
        with process("stream") as ours:
            times.append(time_codecs(Server(ours), 40))
    windows.int8_step(times, verdict)
    windows.shares_with_windows(quick, verdict)


ROLES = {"stream": serve_stream, "bare": serve_bare, "by hand": serve_by_hand}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=["windows", "jobs", "steps"], help="one part alone")
    parser.add_argument("--serve", choices=ROLES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.serve:
        ROLES[arguments.serve]()
        return 0
    keep_freed_memory()  # as the ClientApp does
    verdict, pairs, times = Verdicts(), list[Pairs](), list[Times]()
    if arguments.only in (None, "windows"):
        coded(arguments.quick, verdict)
    if arguments.only in (None, "jobs"):
        jobs.shares_of_jobs(arguments.quick, verdict)
        jobs.rates_of_a_line(arguments.quick, verdict)
    if arguments.only in ("windows", "jobs"):
        return 0 if verdict.kept else 1
    for _ in range(2 if arguments.quick else SETS):
        with process("stream") as ours, process("bare") as theirs, process("by hand") as hand:
            server, bare = Server(ours), address(theirs)
            pairs.append(time_throughput(server, bare, 7))
            times.append(time_steps(server, bare, address(hand), 20))
    judge_throughput(pairs, verdict)
    for model in MODELS:
        judge_steps(model, [each[model] for each in times], verdict)
    if arguments.only is not None:
        return 0 if verdict.kept else 1
    answers(arguments.quick, verdict)
    with process("stream") as ours:
        many(Server(ours), arguments.quick, verdict)
    shares(arguments.quick, verdict)
    return 0 if verdict.kept else 1


if __name__ == "__main__":
    sys.exit(main())
