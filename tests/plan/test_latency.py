"""Latency: the paper's equations, one by one and put together."""

import numpy as np
import pytest
from hypothesis import given, settings
from plan_cases import make_profile, network_like, problems, random_problem

from cutwater.plan import latency as eq
from cutwater.plan.fleet import Client
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.fit import fit

# Two layers of 1 and 3 MFLOPs forward, κ = 2; 8 and 24 kbit of parameters; 400 bits smashed, 160 bits back.
PROFILE = make_profile([8000, 32000], [1e6, 4e6], [400, 80], gradient=[160, 80])
CLIENT = Client(name="c", compute=1e7, up=1000.0, down=2000.0, samples=50)


def problem(**session):
    return Problem(PROFILE, [CLIENT], Server(1e8), Session(**session))


def test_each_equation_by_hand():
    assert eq.model_download(8000, 2000) == 4.0  # (9)
    assert eq.client_forward(1e6, 32, 1e7) == 3.2  # (10)
    assert eq.smashed_upload(400, 32, 1000) == 12.8  # (11)
    assert eq.server_forward(3e6, 32, 1e8) == 0.96  # (12)
    assert eq.server_backward(6e6, 32, 1e8) == 1.92  # (13)
    assert eq.gradient_download(160, 32, 2000) == 2.56  # (14)
    assert eq.client_backward(2e6, 32, 1e7) == 6.4  # (15)
    assert eq.model_upload(8000, 1000) == 8.0  # (16)


def test_a_split_session_by_hand():
    phases = eq.session_phases(problem(epochs=2), 1, 1e8).at(0)
    assert list(phases) == pytest.approx([4.0, 10.0, 40.0, 3.0, 6.0, 8.0, 20.0, 8.0, 0.0])
    assert phases.overlap == 0.0
    assert phases.total == pytest.approx(99.0)  # (17)
    assert (phases.client, phases.server, phases.link) == pytest.approx((30.0, 9.0, 60.0))


def test_the_whole_model_sends_no_smashed_data_and_needs_no_server():
    phases = eq.session_phases(problem(epochs=2), 2, 0.0).at(0)
    assert (phases.server, phases.smashed_upload, phases.gradient_download) == (0, 0, 0)  # (18)
    assert phases.total == pytest.approx(32000 / 1000 + 32000 / 2000 + 100 * 12e6 / 1e7)  # (19)
    assert eq.whole_model_latency(problem(epochs=2))[0] == phases.total


def test_a_session_is_epochs_over_the_data_or_so_many_mini_batches():
    assert problem(epochs=2).work == [100.0]
    assert problem(steps=3, batch_size=8).work == [24.0]
    own = Client(name="c", compute=1.0, rate=1.0, samples=50, steps=4, batch_size=5)
    assert Problem(PROFILE, [own], Server(1.0), Session(epochs=2)).work == [20.0]
    own = Client(name="c", compute=1.0, rate=1.0, samples=50, epochs=4)
    assert Problem(PROFILE, [own], Server(1.0), Session(steps=2)).work == [200.0]


def test_work_without_a_share_is_never_done():
    assert eq.latency(problem(epochs=1), 1, 0.0)[0] == np.inf


@settings(deadline=None, max_examples=50)
@given(problem=problems(max_clients=5))
def test_the_table_of_all_cuts_is_each_cut_alone(problem):
    share = problem.server.compute / len(problem) + 1.0
    cuts = np.arange(1, problem.layers + 1)
    table = eq.latency(problem, cuts[:, None], share)
    assert table.shape == (problem.layers, len(problem))
    for cut in cuts:
        assert (table[cut - 1] == eq.latency(problem, cut, share)).all()
    for k in range(len(problem)):
        assert (table[:, k] == eq.latency(problem, cuts, share, k)).all()
    assert eq.before_server(problem, cuts[:, None]) + eq.server_work(
        problem, cuts[:, None]
    ) / share == pytest.approx(table)


def test_fitted_latency_follows_its_equation_and_meets_the_truth_at_the_whole_model():
    problem = random_problem(np.random.default_rng(0), network_like(), 4)
    curves = fit(problem.profile)
    l, share = 7.5, 2e11  # noqa: E741
    fleet = problem.fleet
    by_hand = 2 * curves.alpha * l**2 / fleet.up + problem.work * (
        curves.beta * (1 + curves.kappa) * (l / fleet.compute + (59 - l) / share)
        + 2 * curves.gamma1 / (l + curves.gamma2) / fleet.up
    )  # (27)
    assert eq.fitted_latency(problem, curves, l, share) == pytest.approx(by_hand)
    assert (eq.fitted_latency(problem, curves, 59, share) == eq.whole_model_latency(problem)).all()


@settings(deadline=None, max_examples=30)
@given(problems())
def test_columns_are_the_numbers_of_every_client(case):
    """``Phases`` of a fleet and of one client: the same names, the same sums, to the last bit."""
    columns = eq.session_phases(case, 1, case.server.compute)
    for k in range(len(case.fleet)):
        one = columns.at(k)
        assert one.to_json() == {name: columns.named(name)[k] for name in (*eq.PHASES, eq.OVERLAP)}
        assert all(type(seconds) is float for seconds in one)
        for of_all, of_one in (("total", one.total), ("client", one.client), ("link", one.link)):
            assert getattr(columns, of_all)[k] == of_one
