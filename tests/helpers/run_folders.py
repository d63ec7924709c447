"""Run folders in the format of docs/run-folder.md: really planned, then played under other conditions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cutwater.base.jsonfile import document, write_json
from cutwater.codec.crossing import Crossing
from cutwater.federate.record import ClientRound, KeptRound, Record
from cutwater.plan.fleet import Fleet
from cutwater.plan.latency import session_phases
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires
from cutwater.plan.value import Plan
from cutwater.profile.values import Cut, Profile
from cutwater.runs.layout import ROUND_FORMAT
from cutwater.runs.metrics import parse


def small_profile(layers: int = 8) -> Profile:
    """A made-up model whose compute is spread evenly and whose smashed data shrinks with depth."""
    cuts = tuple(
        Cut(
            cut=cut,
            name=f"block{cut}",
            stage="blocks",
            client_bits=32 * 20_000 * cut * cut,
            client_forward_flops=4e6 * cut,
            client_backward_flops=8e6 * cut,
            server_forward_flops=4e6 * (layers - cut),
            server_backward_flops=8e6 * (layers - cut),
            smashed_bits=32 * 9_000 // (cut + 1),
            gradient_bits=32 * 9_000 // (cut + 1),
            client_memory_bits=32 * 60_000 * cut * cut,
        )
        for cut in range(1, layers + 1)
    )
    return Profile("made_up", "1x28x28", 10, "exact", 2.0, 32, "sgd", cuts)


def crossing_profile(layers: int = 8) -> Profile:
    """The same model with the tensors at its cuts, so that codecs have a price."""
    plain = small_profile(layers)
    cuts = tuple(
        replace(cut, crossing=(Crossing((int(cut.smashed_bits) // 32,), "float32", True),))
        for cut in plain.cuts[:-1]
    )
    return replace(plain, cuts=(*cuts, plain.cuts[-1]))


def small_problem(clients: int = 6, seed: int = 1, server: float = 200e9) -> Problem:
    rng = np.random.default_rng(seed)
    fleet = Fleet.from_columns(
        compute=rng.uniform(2e9, 20e9, clients),
        up=rng.uniform(4e6, 40e6, clients),
        down=rng.uniform(8e6, 80e6, clients),
        samples=rng.integers(200, 900, clients),
    )
    return Problem(small_profile(), fleet, Server(server), Session(epochs=1))


def coded_problem(up: str = "int8", schedule: str = "overlapped") -> Problem:
    """The same clients with slower links, whose parts overlap, behind round trips and a codec."""
    plain = small_problem()
    fleet = plain.fleet.replace(up=plain.fleet.up / 8, rtt=np.linspace(0, 0.05, len(plain)))
    session = Session(epochs=1, micro_batches=4)
    wires = Wires(up=(up,), schedule=(schedule,))
    return Problem(crossing_profile(), fleet, plain.server, session, wires)


def a_row(number: int, **more: Any) -> dict[str, Any]:
    """A line of metrics.jsonl, as a program writes it."""
    return {
        "round": number,
        "virtual_seconds": 10.0 * number,
        "wall_seconds": 0.5 * number,
        "loss": 1.0,
        "accuracy": None,
        "bytes_up": 3,
        "bytes_down": 4,
        "weights_sha256": "ab" * 32,
        **more,
    }


def a_line(number: int, **more: Any) -> Record:
    """The same, as it is read."""
    ((line, _),) = parse(json.dumps(a_row(number, **more)).encode() + b"\n")
    assert isinstance(line, Record), line
    return line


def write_run(
    folder: Path,
    rounds: int = 5,
    clients: int = 6,
    planner: str = "exact",
    measured: bool = False,
    seed: int = 1,
    problem: Problem | None = None,
) -> Path:
    """A run of some rounds: client c2 is lost in every third, and the last but one fails."""
    problem = problem or small_problem(clients, seed)
    folder.mkdir(parents=True)
    versions = {"cutwater": "0.1.0", "torch": "2.13.0", "python": "3.11"}
    body = {
        "scenario_sha256": "ab" * 32,
        "planner": planner,
        "seed": seed,
        "engine": "local",
        "server_compute": problem.server.compute,
        "versions": versions,
    }
    write_json(folder / "run.json", document("cutwater.run", 1, body))
    (folder / "scenario.toml").write_text('profile = "profile.json"\n\n[server]\ncompute = "200 GFLOPS"\n')
    write_json(folder / "profile.json", problem.profile.to_json())
    time = 0.0
    for number in range(1, rounds + 1):
        plan = solve(problem, planner)
        record = _round(folder, number, plan, problem, measured, failed=number == rounds - 1 and rounds > 2)
        time += record["actual_seconds"]
        line = record | {
            "virtual_seconds": time,
            "wall_seconds": number * 0.5,
            "loss": None if record["failed"] else 2.3 * 0.8**number,
            "test_loss": 2.3 * 0.82**number,
            "accuracy": 1 - 0.9 * 0.75**number,
            "bytes_up": 12_000_000 + number,
            "bytes_down": 9_000_000,
            "weights_sha256": f"{number:064x}",
        }
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    return folder


def _round(
    folder: Path, number: int, plan: Plan, problem: Problem, measured: bool, failed: bool
) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    write_json(folder / f"plans/{number:05d}.json", plan.to_json())
    fleet = problem.fleet
    slower = rng.uniform(0.8, 1.1, len(fleet))
    truth = problem.replace(clients=fleet.replace(compute=fleet.compute * slower, up=fleet.up / slower))
    actual = session_phases(truth, plan.cuts, plan.shares, wires=plan.wires)
    lost = {"c2": "dropped out after 40% of its session"} if number % 3 == 0 else {}
    clients = tuple(
        ClientRound.of(
            client,
            actual.at(k),
            lost.get(client.name, "done"),
            delivered_share=client.share * 0.97 if measured and client.share else None,
            bytes_up=round(client.bytes_up) + 100,
            bytes_down=round(client.bytes_down) + 100,
        )
        for k, client in enumerate(plan.clients)
    )
    seconds = max(client.actual_seconds for client in clients if client.done)
    reason = "3 of 6 clients were done, but the quorum is 5" if failed else None
    body = {"round": number, "planned_seconds": plan.latency, "actual_seconds": seconds, "failed": reason}
    kept = KeptRound(**body, planner=plan.planner, clients=clients)
    write_json(folder / f"rounds/{number:05d}.json", ROUND_FORMAT.document(kept))
    names = [client.name for client in clients if client.done]
    slowest = max(clients, key=lambda client: client.actual_seconds).name
    return {**body, "bottleneck": slowest, "clients": [] if failed else names, "lost": lost}
