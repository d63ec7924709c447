"""The committed fleet: the paper's client as given, ten that show Fig. 8, thirty that fit into MNIST."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cutwater.plan.latency import whole_model_latency
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem
from cutwater.reproduce.paper_setup import SERVER, lone_client, profile, ten, thirty
from cutwater.scenario.file import load_scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper-ten.toml"


def test_the_first_ten_are_the_example_s_ten():
    example = load_scenario(EXAMPLE)
    assert list(ten().fleet) == list(example.fleet)
    assert (example.server, example.session) == (thirty().server, thirty().session)
    assert example.model == thirty().model


def test_the_client_of_the_paper_is_there_as_it_is_given():
    (given,) = lone_client().fleet
    assert thirty().fleet[9] == given
    assert thirty().server == SERVER


def test_sizes_span_the_paper_s_range_and_fit_into_mnist():
    samples = thirty().fleet.samples
    assert len(samples) == 30
    assert (samples.min(), samples.max()) == (361, 3578)
    assert samples.sum() <= 60_000


def test_the_client_of_the_paper_is_the_slowest_of_all():
    everyone = Problem(profile(), thirty().fleet, SERVER, thirty().session)
    assert thirty().fleet.names[int(np.argmax(whole_model_latency(everyone)))] == "c10"


@pytest.mark.parametrize("seed", range(10))
def test_any_ten_of_the_thirty_gain_by_splitting(seed):
    chosen = sorted(np.random.default_rng(seed).choice(30, 10, replace=False).tolist())
    problem = replace(ten(), clients=[thirty().fleet[k] for k in chosen])
    fedavg, best = solve(problem, "fedavg").latency, solve(problem).latency
    assert 1.5 < fedavg / best < 5
    assert best <= solve(problem, "alternating").latency <= fedavg
