"""Smashed data that repeats itself, as plans have it: less to send, and the optimum all the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import make_profile

from cutwater.plan.costs import REFERENCE, Fresh
from cutwater.plan.exact import exact
from cutwater.plan.exhaustive import exhaustive
from cutwater.plan.fleet import Client
from cutwater.plan.latency import plain_bits, session_bits, session_phases
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires
from cutwater.plan.timeline import timeline


def drawn(seed, *, repeats=True):
    """A few clients, some by epochs and some by steps, some of whose labels stay, and a frozen prefix."""
    random = np.random.default_rng(seed)
    layers = int(random.integers(3, 6))
    profile = make_profile(
        np.cumsum(random.integers(1, 10**6, layers)).tolist(),
        np.cumsum(random.uniform(1e6, 1e8, layers)).tolist(),
        [int(10 ** random.uniform(1, 6)) for _ in range(layers)],
    )
    frozen = int(random.integers(1, layers))
    cuts = tuple(replace(cut, repeats=repeats and cut.cut <= frozen) for cut in profile.cuts)
    lengths = [{}, {"epochs": int(random.integers(1, 9))}, {"steps": int(random.integers(1, 60))}]
    clients = [
        Client(
            name=f"c{k}",
            compute=float(random.uniform(1e8, 1e10)),
            up=float(10 ** random.uniform(5, 8)),
            down=float(10 ** random.uniform(5, 8)),
            samples=int(random.integers(32, 500)),
            labels=str(random.choice(["go", "stay"])),
            **lengths[random.integers(3)],
        )
        for k in range(3)
    ]
    server, session = Server(float(random.uniform(1e9, 1e12))), Session(epochs=4, batch_size=16)
    return Problem(replace(profile, cuts=cuts), clients, server, session)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_the_exact_plan_is_optimal_and_never_slower_than_sending_all_every_time(seed):
    problem = drawn(seed)
    plan = exact(problem)
    assert plan.latency == pytest.approx(exhaustive(problem).latency, rel=1e-9)
    assert plan.latency >= plan.lower_bound
    every_time = exact(drawn(seed, repeats=False))
    assert plan.latency <= every_time.latency * (1 + 1e-9)
    up, _ = session_bits(problem, plan.places, wires=plan.wires)
    phases = session_phases(problem, plan.places, plan.shares, wires=plan.wires)
    moved = (phases.smashed_upload + phases.model_upload) * problem.fleet.up
    assert moved == pytest.approx(up, rel=1e-9, abs=1)


def one(session, smashed=10_000, micro_batches=1, **how):
    profile = make_profile([8, 16, 24], [1e6, 2e6, 3e6], [smashed] * 3)
    cuts = tuple(replace(cut, repeats=cut.cut == 1) for cut in profile.cuts)
    client = Client(name="c1", compute=1e9, rate=1e6, samples=100)
    problem = Problem(
        replace(profile, cuts=cuts),
        [client],
        Server(1e12),
        Session(**session, batch_size=10, micro_batches=micro_batches),
        Wires(**how),
    )
    return problem, float(session_bits(problem, 1)[0][0]) - 8


def test_one_epoch_goes_up_and_a_number_for_every_sample():
    assert one({"epochs": 5})[1] == 100 * 10_000 + 500 * REFERENCE
    assert one({"epochs": 1})[1] == 100 * 10_000
    assert one({"steps": 10})[1] == 100 * 10_000
    assert one({"steps": 40})[1] == 100 * 10_000 + 400 * REFERENCE
    assert one({"steps": 11}, smashed=6400)[1] == 110 * (117 * 50 + REFERENCE)


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 4096))
def test_by_steps_the_rows_are_never_too_few_and_one_in_64_too_many_at_most(samples, steps, batch_size):
    ones = [np.array([value]) for value in (0, steps, samples, batch_size)]
    rows = float(Fresh.of(*ones).samples[0]) * steps * batch_size
    most = min(samples, steps * batch_size)
    assert most * (1 - 1e-12) <= rows <= most * (1 + 1 / 64)


def test_a_fleet_has_few_different_parts_of_new_rows():
    samples = np.arange(1_000, 64_000)
    zeros = np.zeros_like(samples)
    found = Fresh.of(zeros, zeros + 2_000, samples, zeros + 32)
    assert len(np.unique(found.samples)) <= 64 * 6 + 1


def test_a_row_smaller_than_its_number_is_sent_every_time():
    assert one({"epochs": 5}, smashed=REFERENCE)[1] == 500 * REFERENCE
    assert one({"epochs": 5}, smashed=41)[1] == 100 * 41 + 500 * REFERENCE


def test_parts_that_overlap_are_sent_in_full():
    problem, up = one({"epochs": 5}, micro_batches=2, schedule=("overlapped",))
    assert up == 500 * 10_000
    assert not problem.sends_once(1, 0)
    assert float(plain_bits(problem, 1, schedule="overlapped")[0][0]) - 8 == up
    in_turn, up = one({"epochs": 5})
    assert float(plain_bits(in_turn, 1)[0][0]) - 8 == up


def test_a_step_drawn_out_is_the_average_of_a_session():
    problem, _ = one({"epochs": 5})
    plan = solve(problem, "splitfed", cut=1)
    client, step = plan.clients[0], timeline(problem, plan, 0)
    trained = client.latency - client.phases.model_download - client.phases.model_upload
    assert step.seconds * float(problem.steps.count[0]) == pytest.approx(trained, rel=1e-9)
