"""A frozen backbone: its weights travel once, plan and counters agree, and the bits are FedAvg's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from collecting import run, tasks_done
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import make_profile
from small_study import small_study
from torch import nn

from cutwater.federate.clock import clock_only
from cutwater.plan.exact import exact
from cutwater.plan.exhaustive import exhaustive
from cutwater.plan.fleet import Client, Held
from cutwater.plan.latency import latency, session_bits
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.train.aggregate import weights_sha256


def frozen_model() -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(6, 64),
        nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU()),
        nn.Sequential(nn.Linear(64, 12), nn.Tanh()),
        nn.Linear(12, 3),
    )
    model[0].requires_grad_(False)
    model[1][0].requires_grad_(False)
    return model


def frozen_study(**train):
    return small_study(model=frozen_model(), train={"rounds": 3, **train})


def test_the_first_round_sends_what_is_frozen_and_no_later_one_does():
    study = frozen_study()
    rounds = run(study.with_planner("fedavg"))
    fixed = sum(study.traffic.fixed.values())
    assert fixed == 4 * (6 * 64 + 64 + 64 * 64 + 64)
    first, *rest = (each.record for each in rounds)
    assert {each.bytes_up for each in rest} == {first.bytes_up}
    assert {each.bytes_down for each in rest} == {first.bytes_down - fixed * len(study.fleet)}


def test_frozen_weights_keep_their_bits_wherever_the_model_is_cut():
    study = frozen_study()
    whole, split = run(study.with_planner("fedavg")), run(study.with_planner("random", seed=2))
    assert [each.record.weights_sha256 for each in whole] == [each.record.weights_sha256 for each in split]
    names = study.traffic.fixed
    kept = {name: whole[-1].progress.weights[name] for name in names}
    assert weights_sha256(kept) == weights_sha256({name: study.initial[name] for name in names})


@pytest.mark.parametrize("planner", ["exact", "fedavg", "random"])
def test_the_bytes_of_a_round_are_those_of_its_plan_but_for_labels(planner):
    """Smashed data, gradients and the model, in the first round and after it."""
    study = frozen_study()
    holds = {}
    for each in run(study.with_planner(planner)):
        plan, outcome = each.outcome.plan, each.outcome
        clients = [study.client(name) for name in plan.names]
        fleet = [replace_holds(client, holds.get(client.name, Held()).first) for client in clients]
        up, down = session_bits(study.problem(fleet), plan.cuts)
        labels = sum(8 * 10 for task in tasks_done(study, outcome) if task.cut < len(study.model))
        assert each.record.bytes_up == up.sum() / 8 + labels
        assert each.record.bytes_down == down.sum() / 8
        holds = each.progress.holds


def replace_holds(client, holds):
    return replace(client, rate=None, up=client.up, down=client.down, holds=holds)


def test_the_clock_without_training_knows_what_was_sent_before():
    study = frozen_study(rounds=4, clients_per_round=3)
    assert [outcome.seconds for outcome in clock_only(study, 4)] == [
        each.record.actual_seconds for each in run(study)
    ]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6))
def test_the_exact_plan_is_optimal_whoever_holds_what(seed):
    """Against every combination of cuts, with clients that hold the fixed weights of some layers."""
    random = np.random.default_rng(seed)
    layers = int(random.integers(2, 5))
    plain = make_profile(
        np.cumsum(random.integers(1, 10**6, layers)).tolist(),
        np.cumsum(random.uniform(1e6, 1e8, layers)).tolist(),
        random.integers(10**3, 10**6, layers).tolist(),
    )
    frozen = np.cumsum(random.integers(0, 10**8, layers)).tolist()
    cuts = tuple(
        replace(cut, frozen_bits=bits, buffer_bits=1000 * cut.cut)
        for cut, bits in zip(plain.cuts, frozen, strict=True)
    )
    profile = replace(plain, cuts=cuts)
    clients = [
        Client(
            name=f"c{k}",
            compute=float(random.uniform(1e9, 1e11)),
            up=float(random.uniform(1e6, 1e8)),
            down=float(random.uniform(1e6, 1e8)),
            samples=int(random.integers(10, 500)),
            holds=int(random.integers(0, layers + 2)),
        )
        for k in range(3)
    ]
    problem = Problem(profile, clients, Server(float(random.uniform(1e9, 1e12))), Session(epochs=1))
    plan = exact(problem)
    assert plan.latency == pytest.approx(exhaustive(problem).latency, rel=1e-9)
    assert plan.latency >= plan.lower_bound
    assert latency(problem, plan.cuts, plan.shares).max() == pytest.approx(plan.latency, rel=1e-12)


def test_a_client_that_holds_more_is_never_slower():
    study = frozen_study()
    times = []
    for holds in range(len(study.model) + 1):
        fleet = [replace_holds(client, holds) for client in study.fleet]
        times.append(exact(study.problem(fleet)).latency)
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_a_session_by_steps_that_sees_every_sample_sends_what_was_planned_to_one_in_64():
    study = small_study(
        model=frozen_model(),
        session=Session(steps=60, batch_size=5),
        train={"rounds": 1},
        planner="splitfed",
        planner_options={"cut": 1},
    )
    (first,) = run(study)
    plan = first.outcome.plan
    assert all(task.once for task in study.tasks(1, plan))
    labels = 8 * sum(client.samples for client in study.fleet)
    planned = sum(client.bytes_up for client in plan.clients)
    assert (first.record.bytes_up - labels) * (1 - 1e-12) <= planned
    assert planned <= (first.record.bytes_up - labels) * (1 + 1 / 64)
