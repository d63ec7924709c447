"""How much training costs beyond its arithmetic: ratios against bare PyTorch, Flower's simulation and itself.

    python benchmarks/train.py [--repetitions 7] [--only round,flower,steps,memory]

Every ratio is taken within one run on one machine: both sides are repeated in turns, so that whatever else
the machine does falls on both, and the median is taken. Exits with 1 if a target is missed.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from cutwater.base.freed_memory import keep_freed_memory
from cutwater.data.samples import ArraySamples, Data
from cutwater.execute.local import LocalTrainer
from cutwater.federate.clock import VirtualClock
from cutwater.federate.loop import play_round, start
from cutwater.federate.round import plan_round
from cutwater.federate.study import Study
from cutwater.model import zoo
from cutwater.model.discover.layered import layered
from cutwater.plan.fleet import Fleet
from cutwater.plan.problem import Server
from cutwater.plan.session import Session
from cutwater.scenario.settings import DataSettings, TrainSettings
from cutwater.train.session import Task
from cutwater.train.step import ClientSide, ServerSide, optimizer_factory, train_step

CLIENTS, BATCH, LR, MOMENTUM = 10, 32, 0.01, 0.9
INPUT = "1x28x28"
COMPARED = 2
"""The round after which weights are compared; later, roundings have grown into other weights."""
MODEL = os.environ.get("CUTWATER_BENCHMARK_MODEL", "cnn")


class Subject(NamedTuple):
    """A model, and how many samples each client has: in a round it trains on all of them once."""

    model: str
    options: dict[str, Any]
    samples: int
    batch: int = BATCH


# Without dropout, whose masks Flower's clients would draw otherwise.
SUBJECTS = {
    "phone": Subject("cnn", {"width": 8, "dropout": 0.0}, samples=80, batch=40),
    "cnn": Subject("cnn", {"dropout": 0.0}, 320),
    "mlp": Subject("mlp", {}, 320),
    "resnet18": Subject("resnet18", {}, 320),
}
"""By name; a phone has a small model and less than a hundred samples, as in cross-device learning."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Flower and Ray report nothing to anyone."""
console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


class Line:
    """One ratio and what it must be."""

    def __init__(
        self, what: str, ratio: float | None, target: float | None, at_most: bool, detail: str
    ) -> None:
        self.what, self.ratio, self.target, self.at_most, self.detail = what, ratio, target, at_most, detail

    @property
    def met(self) -> bool | None:
        """Whether the ratio is as it must be; None where it was not taken, or may be anything."""
        if self.ratio is None or self.target is None:
            return None
        return self.ratio <= self.target if self.at_most else self.ratio >= self.target


# What is trained on: MNIST's shape, with noise for images, since arithmetic takes as long on noise.
@lru_cache
def data() -> Data:
    random = np.random.RandomState(0)

    def samples(count: int) -> ArraySamples:
        images = random.randint(0, 256, (count, 1, 28, 28), dtype=np.uint8)
        return ArraySamples(images, random.randint(0, 10, count), (33.3,), (78.6,))

    return Data("noise", samples(10_000), samples(1_000), INPUT, 10)


def model(name: str = MODEL) -> torch.nn.Module:
    torch.manual_seed(0)
    subject = SUBJECTS[name]
    return zoo.build(subject.model, input=INPUT, classes=10, **subject.options)


def study(name: str = MODEL, clients: int = CLIENTS, samples: int = 0) -> Study:
    each = samples or SUBJECTS[name].samples
    batch = min(each, SUBJECTS[name].batch)
    fleet = Fleet.from_columns(compute=np.linspace(1e9, 9e9, clients), up=8e6, down=8e6, samples=each)
    return Study.of(
        model(name),
        data(),
        fleet,
        Server(50e9),
        Session(epochs=1, batch_size=batch),
        train=TrainSettings(rounds=1_000, lr=LR, momentum=MOMENTUM, evaluate_every=1_000, seed=1),
        share_out=DataSettings(partition="iid"),
        planner="fedavg",
    )


def first_tasks(subject: Study) -> tuple[Task, ...]:
    """What the clients of the first round train."""
    plan = plan_round(subject, 1, subject.select(1), start(subject).estimates, {})
    return subject.tasks(1, plan)


def in_turns(tasks: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each task, run in turns, after one turn that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions + 1):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            taken[name].append(time.perf_counter() - began)
    return {name: seconds[1:] for name, seconds in taken.items()}


def median_ratio(over: list[float], under: list[float]) -> float:
    """Of what was taken right after each other: the speed of a machine that others use drifts."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


# 1. A split step against a whole step.
def steps(repetitions: int) -> list[Line]:
    return [_split_step("cnn", 20 * repetitions), _split_step("resnet18", 5 * repetitions)]


def _split_step(name: str, repetitions: int) -> Line:
    images = torch.randn(BATCH, *map(int, INPUT.split("x")))
    labels = torch.randint(0, 10, (BATCH,))
    make = optimizer_factory("sgd", 1e-4, momentum=MOMENTUM)

    def layers():
        torch.manual_seed(0)
        return layered(zoo.build(name, input=INPUT, classes=10), (images,))

    whole, cut = layers(), layers()
    middle = len(cut) // 2
    alone = ClientSide(whole.split(len(whole))[0], make, 1)
    client_half, server_half = cut.split(middle)
    client, server = ClientSide(client_half, make, 1), ServerSide(server_half, make, 1, F.cross_entropy)
    count = iter(range(10**9))
    taken = in_turns(
        {
            "whole": lambda: train_step(alone, None, F.cross_entropy, next(count), (images,), labels),
            "split": lambda: train_step(client, server, F.cross_entropy, next(count), (images,), labels),
        },
        repetitions,
    )
    ms = {side: statistics.median(seconds) * 1e3 for side, seconds in taken.items()}
    detail = f"{ms['split']:.2f} ms, {ms['whole']:.2f} ms; cut {middle} of {len(cut)}"
    ratio = median_ratio(taken["split"], taken["whole"])
    return Line(f"split step / whole step ({name})", ratio, 1.05, True, detail)


# 2. A FedAvg round on two workers against its bare steps in one thread.
class Bare:
    """The same steps with nothing around them: torch as it comes."""

    def __init__(self, subject: Study, name: str) -> None:
        self.batches = [list(subject.batches(task)) for task in first_tasks(subject)]
        self.model = model(name).train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM)

    def __call__(self) -> None:
        """All steps of a round."""
        for session in self.batches:
            for (images,), labels in session:
                F.cross_entropy(self.model(images), labels).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()


class BareProcess:
    """The bare steps in a process of their own, in which nothing of ours has been set."""

    def __init__(self, name: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, __file__, "--bare", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.steps = int(self._line())
        """Of a round."""

    def _line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline()

    def __call__(self, rounds: int) -> None:
        """The steps of so many rounds."""
        assert self.child.stdin is not None
        self.child.stdin.write(f"{rounds}\n")
        self.child.stdin.flush()
        assert self._line() == "done\n", "the process of the bare steps ended"

    def close(self) -> None:
        """End the process."""
        self.child.communicate()


def run_bare(name: str) -> None:
    bare = Bare(study(name), name)
    print(sum(map(len, bare.batches)), flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            bare()
        print("done", flush=True)


class Rounds:
    """Our rounds, one after the other, as ``cutwater train`` runs them."""

    def __init__(self, subject: Study, workers: int) -> None:
        keep_freed_memory()
        self.study = subject
        self.engine = VirtualClock(subject, LocalTrainer(subject.job(), subject.test(), workers))
        self.progress = start(subject)

    def __call__(self) -> None:
        """The next round."""
        step = play_round(self.study, self.engine, self.progress, 1_000)
        self.progress = step.progress


def whole_round(repetitions: int) -> list[Line]:
    return [_round("phone", 4 * repetitions, in_a_row=5), _round("cnn", repetitions, in_a_row=2)]


def _round(name: str, repetitions: int, in_a_row: int) -> Line:
    """Some rounds one after the other, as in training, then as many times the bare steps, and so on."""
    bare, ours = BareProcess(name), Rounds(study(name), 2)

    def rounds() -> None:
        for _ in range(in_a_row):
            ours()

    try:
        taken = in_turns({"bare": partial(bare, in_a_row), "round": rounds}, repetitions)
    finally:
        ours.engine.close()
        bare.close()
    seconds = {side: statistics.median(rows) / in_a_row for side, rows in taken.items()}
    detail = f"{seconds['round']:.3f} s, {seconds['bare']:.3f} s; {CLIENTS} clients, {bare.steps} steps"
    ratio = median_ratio(taken["round"], taken["bare"])
    return Line(f"round, 2 workers / bare steps, 1 thread ({name})", ratio, 0.6, True, detail)


# 3. The same job on Flower's simulation engine.
def flower(repetitions: int) -> list[Line]:
    """The job of the round above as Flower comes, and others, where it depends on the job what comes out.

    Of a small model it shows what an engine costs; of the CNN arithmetic takes the time, and both engines use
    both cores. Flower gives every client two cores unless told otherwise; told to give it one, it trains two
    at a time.
    """
    if find_spec("flwr") is None or find_spec("ray") is None:
        console.print("SKIPPED: Flower is not installed (pip install 'cutwater[flower]')", style="bold red")
        return [Line("Flower's simulation / our round", None, 3.0, False, "Flower is not installed")]
    return [
        _against_flower("phone", repetitions, cores=0, target=3.0),
        _against_flower("phone", repetitions, cores=1),
        _against_flower("mlp", repetitions, cores=0),
        _against_flower("mlp", repetitions, cores=1),
        _against_flower("cnn", repetitions, cores=0),
        _against_flower("cnn", repetitions, cores=1),
    ]


def _against_flower(name: str, repetitions: int, cores: int, target: float | None = None) -> Line:
    rounds, count = Rounds(study(name), 2), 4 * repetitions
    ours: list[float] = []
    try:
        for _ in range(COMPARED):
            rounds()
        state = rounds.progress.weights
        theirs, weights = _flower_rounds(name, count, cores)
        _check_same_job(name, state, weights)
        for _ in range(count):
            began = time.perf_counter()
            rounds()
            ours.append(time.perf_counter() - began)
    finally:
        rounds.engine.close()
    # Means, as its rounds end when it looks for messages, every tenth of a second: a median jumps.
    flower_seconds, our_seconds = statistics.mean(theirs), statistics.mean(ours)
    ratio = flower_seconds / our_seconds
    how = "1 core a client" if cores else "as it comes"
    detail = f"{flower_seconds:.3f} s, {our_seconds:.3f} s; its start-up left out"
    return Line(f"Flower's simulation ({how}) / our round ({name})", ratio, target, False, detail)


def _flower_rounds(name: str, count: int, cores: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """Seconds of each round but the first, and the weights after an early one."""
    with tempfile.TemporaryDirectory() as home:
        weights = Path(home) / "weights.npz"
        # Ray's workers find this module by its name.
        own = {"PYTHONPATH": str(Path(__file__).parent), "CUTWATER_BENCHMARK_MODEL": name, "FLWR_HOME": home}
        command = [sys.executable, __file__, "--flower", f"{count},{cores}", "--weights", str(weights)]
        done = subprocess.run(
            command, env={**os.environ, **QUIET, **own}, capture_output=True, text=True, check=False
        )
        if done.returncode or not weights.exists():
            sys.exit(f"Flower's simulation failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
        return found, dict(np.load(weights, allow_pickle=False))


def _check_same_job(name: str, ours: Mapping[str, torch.Tensor], theirs: Mapping[str, np.ndarray]) -> None:
    """Flower averages in another order, and uses two threads as it comes: by rounding alone they may differ.

    Not compared are counters (BatchNorm's of its mini-batches), which it averages as floats and cuts off.
    """
    apart = moved = 0.0
    for key, before in model(name).state_dict().items():
        if not before.is_floating_point():
            continue
        apart += float(np.square(ours[key].double().numpy() - theirs[key]).sum())
        moved += float(np.square(ours[key].double().numpy() - before.numpy()).sum())
    if apart > 0.01**2 * moved:  # a client less in one round is more than that
        sys.exit(
            f"Flower did another job: {(apart / moved) ** 0.5:.1%} of the way apart after {COMPARED} rounds"
        )


@lru_cache
def flower_job():
    """Model, study and tasks, made once in each of Flower's worker processes."""
    subject = study()
    tasks = {task.client: task for task in first_tasks(subject)}
    return model().train(), subject, tasks


def run_flower(count: int, cores: int, weights: str) -> None:
    """FedAvg with Flower's message API: the same model, samples, mini-batches and averages."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, moments = ClientApp(), ServerApp(), []

    @client.train()
    def train(message, context):
        # By name: what Ray sends to its workers by value can't hold a cache.
        net, subject, tasks = import_module("train").flower_job()
        torch.set_num_threads(cores or 2)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
        name = subject.fleet.names[int(context.node_config["partition-id"])]
        round_ = int(message.content["config"]["server-round"])
        for (images,), labels in subject.batches(replace(tasks[name], round=round_)):
            F.cross_entropy(net(images), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
        metrics = MetricRecord({"num-examples": tasks[name].samples})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    def evaluate(round_, arrays):
        moments.append(time.perf_counter())
        if round_ == COMPARED:
            state = arrays.to_torch_state_dict()
            np.savez(weights, **{name: tensor.numpy() for name, tensor in state.items()})

    @server.main()
    def main(grid, context):
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model().state_dict()),
            num_rounds=count + 1,
            evaluate_fn=evaluate,
        )

    run_simulation(
        server,
        client,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": cores, "num_gpus": 0.0}} if cores else None,
    )
    # The first round loads data and builds models in the worker processes; it does not count.
    print(json.dumps([after - before for before, after in pairwise(moments[1:])]))


# 4. Memory at many clients.
def memory(repetitions: int) -> list[Line]:
    lines = []
    for workers in (1, 2):
        peaks = {
            count: statistics.median(_peak(count, workers) for _ in range(min(3, repetitions)))
            for count in (10, 1_000)
        }
        detail = (
            f"{peaks[1_000] / 1024:.0f} MiB, {peaks[10] / 1024:.0f} MiB; all take part, {workers} worker(s)"
        )
        ratio = peaks[1_000] / peaks[10]
        lines.append(Line(f"peak memory, 1,000 / 10 clients, {workers} worker(s)", ratio, 1.2, True, detail))
    return lines


def _peak(clients: int, workers: int) -> int:
    command = [sys.executable, __file__, "--peak", f"{clients},{workers}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


def report_peak(clients: int, workers: int) -> None:
    rounds = Rounds(study("cnn", clients, samples=3), workers)
    for _ in range(2):
        rounds()
    rounds.engine.close()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    largest_worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(own + largest_worker)


def show(lines: list[Line]) -> None:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("What", "Ratio", "Target", "Met", "Took"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("Ratio", "Target") else "left")
    for line in lines:
        ratio = "-" if line.ratio is None else f"{line.ratio:.3f}"
        met = {True: "yes", False: "NO", None: "skipped" if line.ratio is None else ""}[line.met]
        target = "" if line.target is None else f"{'≤' if line.at_most else '≥'} {line.target:g}"
        table.add_row(line.what, ratio, target, met, line.detail)
    console.print(table)


# Rounds first: workers are forked, and inherit the memory of whatever this process has done before.
PARTS = {"round": whole_round, "flower": flower, "steps": steps, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--flower", help=argparse.SUPPRESS)
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.bare:
        run_bare(given.bare)
        return
    if given.peak:
        report_peak(*map(int, given.peak.split(",")))
        return
    if given.flower:
        run_flower(*map(int, given.flower.split(",")), given.weights)
        return
    console.print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", style="dim")
    lines: list[Line] = []
    for part in given.only.split(","):
        console.print(f"measuring: {part}", style="dim")  # minutes each
        lines += PARTS[part](given.repetitions)
    show(lines)
    sys.exit(any(line.met is False for line in lines))


if __name__ == "__main__":
    main()
