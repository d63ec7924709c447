"""Steps that overlap and codecs, over links that the kernel holds to a rate: predicted against measured.

    python benchmarks/network.py --only schedules        about two minutes on two cores, as root

One client in a network namespace trains against the stream's server outside of it, with 1, 2, 4 and 8
micro-batches, as fp32 and as int8. The seconds of its steps must be those of the plan, the bytes that the
kernel counts those of the plan, and the weights those of the same session in one process, bit for bit. Then
the same with a round trip, made by a proxy that holds every byte back.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from cutwater.execute.emulate import Meter
from cutwater.federate.from_scenario import study_of
from cutwater.federate.study import Study
from cutwater.plan.planners import solve
from cutwater.plan.session import Wires
from cutwater.plan.value import ClientPlan
from cutwater.scenario.file import load_scenario
from cutwater.serve.device import expectation, run_at_device
from cutwater.serve.hosting import Hosting
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Ticket
from cutwater.train.aggregate import weights_sha256
from cutwater.train.session import Task, run_both_sides

OFF = 0.05
"""How far measured seconds may be from predicted, of predicted."""
BYTES_OFF = 0.02
FASTER = 2.0
"""How many times as fast as fp32 in turn the fastest must be."""
CLIENT = "fast"
"""Of network.py's links."""
TRIP = 0.04
"""Seconds that the proxy makes a round trip take."""
SCENARIO = """
[model]
name = "cnn"
input = "1x28x28"
[server]
compute = "{compute}"
[session]
steps = 4
batch_size = 512
[data]
source = "schedules:images"
partition = "iid"
[train]
lr = 0.05
seed = 1
[[client]]
name = "fast"
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
    bytes: int
    """By the kernel's counters, both ways."""
    sha256: str


def of_plan(study: Study) -> tuple[ClientPlan, float, float]:
    """The client's plan, and the seconds and bytes of its steps, the model's transfer aside."""
    (client,) = solve(study.problem(list(study.fleet))).clients
    model = sum(study.job().model_bytes(task_of(study, client)))
    phases = client.phases
    seconds = phases.total - phases.model_download - phases.model_upload
    return client, seconds, client.bytes_up + client.bytes_down - model


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


def measure(
    scenario: Path, parts: int, codec: str, inside: list[str], host: str, counted, through
) -> Measured:
    """Train one session from within the namespace."""
    study = variant(scenario, parts, codec)
    client, _, _ = of_plan(study)
    task, job = task_of(study, client), study.job()
    hosting = Hosting(job, study.profile, study.server.compute)
    with through(host) as proxy, StreamServer(hosting, host=host, advertise=proxy.address) as server:
        proxy.lead_to(server)
        ticket = server.issue(
            run="bench",
            round=1,
            client=task.client,
            cut=task.cut,
            expect=expectation(study, task),
            open_seconds=60.0,
            session_seconds=300.0,
        )
        hosting.expect(ticket.claims.id, task, study.server.compute, study.initial)
        order = {"scenario": str(scenario), "parts": parts, "codec": codec, "ticket": ticket.to_text()}
        before = counted()
        said = subprocess.run(
            [*inside, sys.executable, __file__, "--device"],
            input=json.dumps(order),
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        after = counted()
        server.wait(ticket, timeout=10.0)
        trained = hosting.collect(ticket.claims.id)
        server.revoke(ticket)
    hosting.close()
    found = json.loads(said)
    whole = dict(study.job().split(task.cut).client.state_dict())
    assert set(found["sha256"]) == set(whole)
    shas = {**found["sha256"], **{name: weights_sha256({name: one}) for name, one in trained.state.items()}}
    return Measured(found["steps"], after - before, json.dumps(shas, sort_keys=True))


def device() -> None:
    """The client's end, in its namespace; prints what it took and the digests of its half."""
    order = json.load(sys.stdin)
    torch.set_num_threads(1)
    study = variant(Path(order["scenario"]), order["parts"], order["codec"])
    client, _, _ = of_plan(study)
    task, meter = task_of(study, client), Meter()
    half = study.job().split(task.cut).client
    weights = {name: study.initial[name] for name in half.state_dict()}
    run_at_device(study, task, Ticket.from_text(order["ticket"]), weights, study.batches(task), meter)
    digests = {name: weights_sha256({name: one}) for name, one in half.state_dict().items()}
    print(json.dumps({"steps": meter.seconds["steps"], "sha256": digests}))


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
        self._target = server._port

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
    scenario, kept = folder / "schedules.toml", []
    scenario.write_text(SCENARIO.format(**link), encoding="utf-8")
    seconds = {}
    for codec in ("fp32", "int8"):
        for parts in (1, 2, 4, 8):
            found = measure(scenario, parts, codec, inside, host, counted, direct)
            seconds[codec, parts] = found.seconds
            kept.append(_judge(scenario, parts, codec, found, f"{codec}, {parts} parts", bytes_too=True))
    fastest = min(seconds, key=lambda each: seconds[each])
    ratio = seconds["fp32", 1] / seconds[fastest]
    kept.append(ratio >= FASTER)
    plain = seconds["fp32", 1] / seconds["fp32", 8]
    print(
        f"{'ok  ' if kept[-1] else 'MISS'} {fastest[0]} in {fastest[1]} parts is {ratio:.2f} times as "
        f"fast as fp32 in turn (limit {FASTER:g}); fp32 in 8 parts {plain:.2f} times"
    )
    far = folder / "far.toml"
    trip = float(link["rtt"].removesuffix(" s")) + TRIP
    far.write_text(SCENARIO.format(**link | {"rtt": f"{trip:.6f} s"}), encoding="utf-8")
    for parts in (1, 4):
        found = measure(far, parts, "int8", inside, host, counted, delayed)
        what = f"int8, {parts} parts, {1000 * TRIP:.0f} ms round trip"
        kept.append(_judge(far, parts, "int8", found, what, bytes_too=False))
    return all(kept)


def _judge(scenario: Path, parts: int, codec: str, found: Measured, what: str, *, bytes_too: bool) -> bool:
    _, seconds, bytes_ = of_plan(variant(scenario, parts, codec))
    time_off, bytes_off = found.seconds / seconds - 1, found.bytes / bytes_ - 1
    same = found.sha256 == in_one_process(scenario, parts, codec)
    good = abs(time_off) <= OFF and same and (not bytes_too or abs(bytes_off) <= BYTES_OFF)
    told = f"{1 + time_off:.3f} of {seconds:.2f} s (1 ± {OFF:g})"
    told += f", bytes {1 + bytes_off:.3f} (1 ± {BYTES_OFF:g})" if bytes_too else ""
    bits = "the bits of one process" if same else "OTHER BITS"
    print(f"{'ok  ' if good else 'MISS'} {what:<34} {told}, {bits}")
    return good


if __name__ == "__main__":
    if "--device" in sys.argv:
        device()
    else:
        print("run by: python benchmarks/network.py --only schedules")
