"""Several jobs on one server, and rates of a shared line: what was promised against what was delivered.

    python benchmarks/stream.py --only jobs        about a minute on two cores

Two jobs with models of their own are planned together and train at the same time, as two runs against one
stream server and one fair queue; all their sessions are real, over TLS on this machine, with windows of four
parts. What a job was promised is what the shares of its sessions entitled them to of all that the server did
while they had work. Then a session sends and is sent 1 MiB a step over a line of which it has 8 MB/s each
way.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

import torch
from stream_rig import expecting
from torch import nn

from cutwater.data.custom import from_datasets
from cutwater.execute.emulate import Meter
from cutwater.federate.study import Study
from cutwater.plan.fleet import Client
from cutwater.plan.jobs import Job, plan_jobs
from cutwater.plan.problem import Server
from cutwater.plan.session import Session
from cutwater.plan.value import Plan
from cutwater.scenario.settings import TrainSettings
from cutwater.serve.device import run_at_device
from cutwater.serve.expectations import expectation
from cutwater.serve.sessions import LocalSessions
from cutwater.serve.several_jobs import SeveralJobs
from cutwater.stream.client import StreamClient
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import StepResult
from cutwater.train.session import Task

SHARE_ERROR = 0.05
RATE_ERROR = 0.05
RATE = 64e6
SERVER = Server(4e9)
Verdict = Callable[..., None]


def study(width: int, depth: int, clients: int, steps: int) -> Study:
    """A job: thin layers first, wide ones after them, so that a cut leaves the server most of the work."""
    torch.manual_seed(width)
    wide = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)]
    model = nn.Sequential(nn.Linear(16, width), *wide, nn.Linear(width, 4))
    samples = [(torch.randn(16), place % 4) for place in range(64 * clients)]
    return Study.of(
        model,
        from_datasets(samples, classes=4, name=f"noise {width}"),
        [Client(name=f"c{k}", compute=1e7, rate=1e9, samples=64) for k in range(clients)],
        SERVER,
        Session(steps=steps, batch_size=64, micro_batches=4),
        train=TrainSettings(rounds=1, seed=1),
    )


def shares_of_jobs(quick: bool, verdict: Verdict) -> None:
    """Two jobs side by side."""
    steps = 20 if quick else 150
    studies = {"wide": study(1024, 4, 2, steps), "deep": study(512, 12, 3, steps)}
    jobs = [Job(name, each.problem(list(each.fleet))) for name, each in studies.items()]
    found = plan_jobs(jobs, SERVER)
    with SeveralJobs() as server:
        threads = [
            threading.Thread(target=session, args=(hosted, each, plan, task))
            for name, each in studies.items()
            for plan in (found[name].plan,)
            for hosted in (joined(server, name, each),)
            for task in each.tasks(1, plan)
            if task.cut < len(each.model)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        given = server.given()
    short = max(1 - each.delivered / each.promised for each in given.values())
    told = ", ".join(f"{name} {each.delivered / each.promised:.3f} of 1" for name, each in given.items())
    verdict(
        "share of a job short of the promised, at worst",
        max(short, 0.0),
        SHARE_ERROR,
        least=False,
        detail=told,
    )


def joined(server: SeveralJobs, run: str, study: Study) -> LocalSessions:
    """Have a run hosted."""
    server.join(run, study.job(), study.profile, SERVER.compute)
    return server.sessions(run)


def session(hosted: LocalSessions, study: Study, plan: Plan, task: Task) -> None:
    """One client's, from its ticket to its end."""
    ticket = hosted.open(task, expectation(study, task), plan[task.client].share, study.initial, 600.0)
    half = study.job().split(task.cut).client
    weights = {name: study.initial[name] for name in half.state_dict()}
    run_at_device(study, task, ticket, weights, study.batches(task), Meter())
    assert hosted.is_over(ticket), "whoever is told that it is done may count on that"


class Mirror:
    """Sends what came."""

    async def step(self, session: object, part: object, smashed: object, labels: object) -> StepResult:
        """The smashed data as gradients."""
        del session, part, labels
        return StepResult(tuple(each.detach() for each in smashed), 0.0)  # type: ignore[attr-defined]

    async def closed(self, session: object, record: object) -> None:
        """Nothing to do."""


def rates_of_a_line(quick: bool, verdict: Verdict) -> None:
    """A session that is paced both ways."""
    steps, smashed, labels = 3 if quick else 20, (torch.randn(16, 1 << 14),), torch.zeros(16).long()
    smashed[0].requires_grad_()
    expect = expecting(smashed, labels, batches=[16] * steps, classes=10)
    with StreamServer(Mirror()) as server:
        ticket = server.issue(
            run="rates", round=0, client="k", cut=1, expect=expect, rate_up=RATE, rate_down=RATE
        )
        with StreamClient(ticket, expect, client="k") as client:
            for number in range(steps):
                client.step(number, smashed, labels)
            client.finish()
        record = server.wait(ticket, 60)
    off = [abs(rate / RATE - 1) if rate is not None else 1.0 for rate in record.rates]
    verdict(
        "rate of a shared line off the promised, at worst",
        max(off),
        RATE_ERROR,
        least=False,
        detail=", ".join(f"{rate / 8e6:.2f}" for rate in record.rates if rate) + f" of {RATE / 8e6:.0f} MB/s",
    )


if __name__ == "__main__":
    print("run by: python benchmarks/stream.py --only jobs")
