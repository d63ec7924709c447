"""The whole method in one file gives the plan and the weights of the package."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from collecting import run, tasks_done

from cutwater.data.sources import load as load_data
from cutwater.federate.study import Study
from cutwater.model.discover.layered import layered
from cutwater.plan.fleet import Client
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.count import profile_layered
from cutwater.scenario.settings import DataSettings, TrainSettings
from cutwater.train.aggregate import weights_sha256

SPEC = importlib.util.spec_from_file_location("naive", Path(__file__).parents[2] / "examples" / "naive.py")
naive = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(naive)

STEPS, BATCH, SAMPLES, RATE, SERVER, LR = 5, 32, 200, 8e6, 10e9, 0.1
COMPUTE = {f"c{k}": c * 1e9 for k, c in enumerate([0.05, 0.1, 0.5, 1.0, 2.0, 4.0], start=1)}


def naive_clients():
    return [
        naive.Client(name, compute=compute, rate=RATE, work=STEPS * BATCH, samples=SAMPLES + k)
        for k, (name, compute) in enumerate(COMPUTE.items())
    ]


def clients():
    return [Client(name=c.name, compute=c.compute, rate=c.rate, samples=c.samples) for c in naive_clients()]


@pytest.fixture(scope="module")
def study() -> Study:
    model, data = naive.make_model(), load_data("digits")
    (images,), _ = data.train.batch(np.arange(BATCH))
    # The file counts multiply-adds and takes backward for twice forward: the paper's way, with kappa = 2.
    profile = profile_layered(layered(model, (images,)), (images,), count="paper", kappa=2.0)
    return Study.of(
        model,
        data,
        clients(),
        Server(SERVER),
        Session(steps=STEPS, batch_size=BATCH),
        train=TrainSettings(rounds=3, lr=LR, seed=1),
        share_out=DataSettings(partition="iid"),
        profile=profile,
        planner_options={"leftover": "none"},
    )


@pytest.fixture(scope="module")
def costs(study):
    (images,), _ = study.data.train.batch(np.arange(1))
    return naive.count(naive.make_model(), images[0])


def test_the_cost_of_every_cut_is_the_same(study, costs):
    column = study.profile.column
    assert list(costs.bits) == list(column("client_bits"))
    assert list(costs.smashed) == list(column("smashed_bits"))
    assert list(costs.client_flops) == list(column("client_forward_flops") + column("client_backward_flops"))
    assert list(costs.server_flops) == list(column("server_forward_flops") + column("server_backward_flops"))


def test_the_plan_is_the_same(study, costs):
    seconds, answers = naive.plan(costs, naive_clients(), SERVER)
    problem = Problem(study.profile, study.fleet, Server(SERVER), study.session)
    plan = solve(problem, "exact", leftover="none")
    assert [cut for _, cut in answers] == list(plan.cuts)
    # Both look for the same root, one by halving and one by a faster search, to the last digits.
    assert seconds == pytest.approx(plan.latency, rel=1e-9)
    assert [share for share, _ in answers] == pytest.approx(list(plan.shares), rel=1e-6)
    assert len(set(plan.cuts)) > 1
    for client, (share, cut) in zip(naive_clients(), answers, strict=True):
        assert naive.latency(costs, client, cut, share) == pytest.approx(plan[client.name].latency, rel=1e-6)


def test_fedavg_takes_the_same_time(study, costs):
    slowest = max(naive.latency(costs, client, 4, 0.0) for client in naive_clients())
    problem = Problem(study.profile, study.fleet, Server(SERVER), study.session)
    assert slowest == pytest.approx(solve(problem, "fedavg").latency, rel=1e-12)


def test_three_rounds_have_the_same_bits(study):
    """Each step is the same arithmetic in the same order; averages, in double there and exact here, round to
    the same float32 numbers. The hash says that all bits agree."""
    model, digests = naive.make_model(), []
    steps = run(study)
    for step in steps:
        states, weights = [], []
        for task in tasks_done(study, step.outcome):
            batches = [(images, labels) for (images,), labels in study.batches(task)]
            states.append(naive.session(model, task.cut, batches, lr=LR))
            weights.append(task.samples)
        model.load_state_dict(naive.average(states, weights))
        digests.append(weights_sha256(model.state_dict()))
    assert digests == [step.record.weights_sha256 for step in steps]


def test_the_file_runs_and_learns(capsys):
    torch.manual_seed(0)
    naive.main()
    lines = capsys.readouterr().out.splitlines()
    assert sum("cut" in line for line in lines) == 6
    assert float(lines[-1].split(": ")[1].split("%")[0]) > 90
