"""The numbers of the paper, from the real profile of its model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutwater.plan.alternating import fitted_cuts, stationary_cut
from cutwater.plan.fleet import Client
from cutwater.plan.latency import latency, whole_model_latency
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.fit import fit
from cutwater.scenario.file import load_scenario

TEN = Path(__file__).parents[2] / "examples" / "paper-ten.toml"
SHARE = 1484e9


@pytest.fixture(scope="module")
def ten():
    return load_scenario(TEN).problem()


@pytest.fixture(scope="module")
def client(ten):
    """The client of Sec. VI-A."""
    given = Client(name="c10", compute=100e9, rate=4 * 8e6, samples=3396)
    return Problem(ten.profile, [given], Server(SHARE), Session(epochs=20))


def test_the_papers_client_takes_976_s_on_fedavg(client):
    assert client.layers == 59
    assert whole_model_latency(client)[0] == pytest.approx(976, abs=0.5)


def test_its_best_cut_is_10_at_407_s(client):
    seconds = latency(client, np.arange(1, 60)[:, None], SHARE)[:, 0]
    assert seconds.argmin() + 1 == 10
    assert seconds.min() == pytest.approx(407, abs=0.5)
    assert seconds[10] == pytest.approx(437, abs=0.5)
    plan = solve(client)
    assert (plan.cuts[0], plan.latency) == (10, pytest.approx(407, abs=0.5))


def test_with_labels_at_home_the_ten_take_465_s(ten):
    plan = solve(ten.replace(session=replace(ten.session, labels="stay")))
    assert plan.latency == pytest.approx(465, abs=0.5)
    assert plan.gap < 1e-9
    assert [(client.cut, client.second_cut) for client in plan.clients[6:]] == [(15, 58)] * 3 + [(5, 58)]


def test_the_regression_cuts_it_at_11(client):
    curves = fit(client.profile)
    assert stationary_cut(client, curves, np.array([SHARE]))[0] == pytest.approx(11.43, abs=0.005)
    assert fitted_cuts(client, curves, np.array([SHARE]))[0] == 11


def test_the_ten_clients_hold_the_papers_own(ten, client):
    assert ten.fleet[9] == client.fleet[0]
    assert ten.server.compute == 3000e9
    assert ((ten.fleet.samples >= 361) & (ten.fleet.samples <= 3578)).all()


def test_fedavg_takes_the_ten_976_s(ten):
    assert solve(ten, "fedavg").latency == pytest.approx(976, abs=0.5)


def test_the_papers_algorithm_leaves_six_on_fedavg_and_four_finish_together_near_410_s(ten):
    plan = solve(ten, "alternating")
    modes = [client.mode for client in plan.clients]
    assert modes == ["fedavg"] * 6 + ["split"] * 4
    assert plan.latencies[6:] == pytest.approx(plan.latency)
    assert (plan.latencies[:6] < plan.latency).all()
    assert plan.latency == pytest.approx(410, rel=0.03)
    assert plan.outcome == "converged after 5 iterations"
    assert plan["c10"].cut == 11


def test_the_optimum_is_better(ten):
    assert solve(ten).latency < 0.94 * solve(ten, "alternating").latency


def test_the_round_gets_faster_quickly_up_to_2000_gflops_and_slowly_after(ten):
    at = {gflops: solve(ten.replace(server=Server(gflops * 1e9))).latency for gflops in (100, 2000, 9000)}
    assert at[100] - at[2000] > 8 * (at[2000] - at[9000])
