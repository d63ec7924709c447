"""Algorithm 1: its steps, its corrections, and how it ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import make_profile, network_like, problems, random_problem

from cutwater.base.errors import PlanError
from cutwater.plan.allocate import allocate
from cutwater.plan.alternating import alternating, fitted_cuts, positive_root, stationary_cut
from cutwater.plan.exact import certified_bound, exact
from cutwater.plan.fleet import Client
from cutwater.plan.latency import before_server, fitted_latency, latency, server_work, whole_model_latency
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.fit import fit


@settings(deadline=None, max_examples=300)
@given(b=st.floats(-1e8, 1e8), d=st.floats(1e-6, 1e15))
def test_cardano_finds_the_one_positive_root(b, d):
    x = float(positive_root(np.array([b]), np.array([d]))[0])
    assert x > 0
    assert abs(x**3 + b * x**2 - d) <= 1e-12 * (x**3 + abs(b) * x**2 + d)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), share=st.floats(1e9, 1e13))
def test_the_stationary_cut_is_the_minimum_of_the_fitted_curve(seed, share):
    problem = random_problem(np.random.default_rng(seed), network_like(), 5)
    curves = fit(problem.profile)
    shares = np.full(5, share)
    point = stationary_cut(problem, curves, shares)
    below_L = np.minimum(point, 59 - 1e-9)
    best = fitted_latency(problem, curves, below_L, shares)
    for rival in np.linspace(1, 59 - 1e-9, 40):
        assert (best <= fitted_latency(problem, curves, rival, shares) * (1 + 1e-9)).all()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), share=st.floats(1e9, 1e13))
def test_the_chosen_cut_is_the_best_integer_on_the_fitted_curve(seed, share):
    """Rounding up and the jump at L are looked at, too."""
    problem = random_problem(np.random.default_rng(seed), network_like(), 5)
    curves = fit(problem.profile)
    shares = np.full(5, share)
    chosen = fitted_latency(problem, curves, fitted_cuts(problem, curves, shares), shares)
    table = fitted_latency(problem, curves, np.arange(1, 60)[:, None], shares)
    assert chosen == pytest.approx(table.min(axis=0), rel=1e-12)


def test_without_a_share_the_cut_is_the_whole_model():
    problem = random_problem(np.random.default_rng(0), network_like(), 5)
    assert (fitted_cuts(problem, fit(problem.profile), np.zeros(5)) == 59).all()


@settings(deadline=None, max_examples=80)
@given(problem=problems(max_clients=6), seed=st.integers(0, 1000))
def test_allocation_fills_the_server_and_evens_out_those_that_share(problem, seed):
    rng = np.random.default_rng(seed)
    cuts = np.array([rng.choice(problem.allowed.cuts(k)) for k in range(len(problem))])
    alone = np.where(problem.allowed.at(problem.layers), whole_model_latency(problem), np.inf)
    before, work = before_server(problem, cuts), server_work(problem, cuts)
    F = problem.server.compute
    T, shares = allocate(before, work, alone, F)
    assert shares.sum() <= F * (1 + 1e-9)
    if np.isfinite(T):
        done = np.where(
            (shares == 0) & (work > 0), alone, before + work / np.where(shares > 0, shares, np.inf)
        )
        assert (done <= T * (1 + 1e-9)).all()
        assert done[shares > 0] == pytest.approx(T, rel=1e-6)


@settings(deadline=None, max_examples=80)
@given(problem=problems(max_clients=6, max_layers=10), fitted=st.sampled_from(["cuts", "all", "none"]))
def test_it_never_beats_the_optimum_and_keeps_every_limit(problem, fitted):
    if len(problem.profile) < 3:
        return
    plan = alternating(problem, fitted=fitted)
    assert plan.latency >= exact(problem).lower_bound
    assert all(client.cut in problem.allowed.cuts(k) for k, client in enumerate(plan.clients))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6))
def test_the_trace_is_whole_and_the_best_iterate_is_returned(seed):
    problem = random_problem(np.random.default_rng(seed), network_like(), 8)
    plan = alternating(problem)
    assert [turn.number for turn in plan.trace] == list(range(1, len(plan.trace) + 1))
    for turn in plan.trace:
        assert latency(problem, turn.cuts, turn.shares).max() == pytest.approx(turn.latency)
        assert turn.latency == pytest.approx(turn.target)  # shares are made on the true profile
        assert turn.shares.sum() <= problem.server.compute * (1 + 1e-9)
    assert plan.latency == min(turn.latency for turn in plan.trace)


def outcomes(count, **options):
    problems = (random_problem(np.random.default_rng(seed), network_like(), 8) for seed in range(count))
    return [alternating(problem, **options).outcome for problem in problems]


def test_cycles_are_found_and_named():
    ends = outcomes(30)
    assert any(end.startswith("cycle of") for end in ends)
    assert any(end.startswith("converged") for end in ends)


def test_it_stops_when_told():
    problem = random_problem(np.random.default_rng(0), network_like(), 8)
    plan = alternating(problem, iterations=1)
    assert (len(plan.trace), plan.outcome) == (1, "stopped after 1 iterations")


def test_planned_on_the_curves_it_is_evaluated_on_the_truth():
    problem = random_problem(np.random.default_rng(3), network_like(), 8)
    plan = alternating(problem, fitted="all")
    assert plan.latencies == pytest.approx(latency(problem, plan.cuts, plan.shares))
    assert any(turn.latency != pytest.approx(turn.target, rel=1e-6) for turn in plan.trace)


def test_a_server_without_compute_leaves_fedavg():
    problem = random_problem(np.random.default_rng(0), network_like(), 4).replace(server=Server(0.0))
    assert (alternating(problem).cuts == 59).all()


FLAT = {
    "nothing learns": {"bits": [0] * 4},
    "nothing is sent": {"smashed": [0] * 4},
    "nothing is computed": {"forward": [0.0] * 4},
    "nothing learns or is sent": {"bits": [0] * 4, "smashed": [0] * 4},
    "nothing at all": {"bits": [0] * 4, "smashed": [0] * 4, "forward": [0.0] * 4},
    "everything": {},
}


def flat_problem(case, server, **limits):
    costs = {
        "bits": [100, 200, 300, 400],
        "forward": [1e6, 2e6, 3e6, 4e6],
        "smashed": [4000, 3000, 2000, 1000],
    }
    fleet = [Client(name=f"c{k}", compute=k * 1e9, rate=1e7, samples=100, **limits) for k in range(1, 4)]
    return Problem(make_profile(**costs | FLAT[case]), fleet, Server(server), Session(epochs=1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("fitted", ["cuts", "all", "none"])
@pytest.mark.parametrize("server", [0.0, 5e-324, 1e-310, 1e-300, 1e-100, 1e6, 1e10, 1e12, 1e100, 1e300])
@pytest.mark.parametrize("case", FLAT)
def test_flat_curves_and_absurd_servers_have_a_plan_like_any_other(case, server, fitted):
    problem = flat_problem(case, server)
    plan = alternating(problem, fitted=fitted)
    assert certified_bound(problem) <= plan.latency <= whole_model_latency(problem).max() * (1 + 1e-9)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("server", [3e6, 3e9, 6e9, 3e10, 3e12])
@pytest.mark.parametrize("case", FLAT)
@pytest.mark.parametrize("min_cut", [1, 3])
def test_the_stationary_point_of_a_flat_curve_is_where_the_curve_is_lowest(case, server, min_cut):
    problem = flat_problem(case, server, min_cut=min_cut)
    curves = fit(problem.profile)
    shares = np.full(len(problem), server / len(problem))
    found = stationary_cut(problem, curves, shares)
    # A little short of L, where the curve itself goes on but the latency jumps.
    grid = np.linspace(min_cut, problem.layers - 1e-9, 4001)
    lowest = fitted_latency(problem, curves, grid[:, None], shares).min(axis=0)
    at = fitted_latency(problem, curves, np.minimum(found, grid[-1]), shares)
    assert at == pytest.approx(lowest, rel=1e-6)


def test_unknown_options_are_refused():
    problem = random_problem(np.random.default_rng(0), network_like(), 2)
    with pytest.raises(PlanError, match="fitted is 'some'"):
        alternating(problem, fitted="some")
    with pytest.raises(PlanError, match="iterations is 0"):
        alternating(problem, iterations=0)
