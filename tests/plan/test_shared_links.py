"""Links that clients share: rates planned with cuts and shares, within an interval that holds the optimum."""

import numpy as np
import pytest
from evidence import evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import network_like, random_problem, shared_problem
from scip_links import scip_links_optimum
from wire_cases import random_wire_problem

from cutwater.base.errors import PlanError
from cutwater.plan.band_kernel import LINKS, cheapest
from cutwater.plan.baselines import fedavg
from cutwater.plan.exact import certified_bound, exact
from cutwater.plan.jobs import Job, plan_jobs
from cutwater.plan.planners import solve
from cutwater.plan.problem import Band, Server, SharedLink
from cutwater.plan.session import Session, Wires
from cutwater.plan.shared_links import fair_rates
from cutwater.plan.simplex import Simplex
from cutwater.plan.value import Plan


def used(plan):
    return [float(rates.sum()) for rates in plan.rates]


@pytest.mark.parametrize("seed", evidence(8, 200))
def test_the_optimum_of_scip_lies_in_the_interval(seed):
    problem = shared_problem(seed, 1 + seed % 4)
    plan, optimum = exact(problem), scip_links_optimum(problem)
    # SCIP keeps its own constraints to 1e-9 of the largest numbers.
    assert plan.lower_bound <= optimum * (1 + 1e-6)
    assert optimum <= plan.latency * (1 + 1e-6)
    assert plan.gap <= 1e-6


@pytest.mark.parametrize("seed", evidence(4, 100))
@pytest.mark.parametrize(("clients", "gap"), [(5, 0.01), (30, 0.001)])
def test_the_interval_is_narrow(clients, gap, seed):
    plan = exact(shared_problem(seed, clients, layers=20))
    assert plan.gap <= gap
    assert plan.latency >= plan.lower_bound


@pytest.mark.parametrize("seed", range(6))
def test_rates_keep_to_the_links_and_to_every_clients_own(seed):
    problem = shared_problem(seed, 7, layers=12)
    plan = solve(problem)
    for rates, own, capacity in zip(
        plan.rates,
        (problem.fleet.up, problem.fleet.down),
        (problem.band.up, problem.band.down),
        strict=True,
    ):
        assert (rates <= own * (1 + 1e-12)).all()
        assert rates.sum() <= capacity * (1 + 1e-9)
    # Under its rates, nothing is left to gain, and it takes what it says.
    again = exact(problem.at_rates(*plan.rates))
    assert plan.latencies == pytest.approx(again.latencies, rel=1e-12)
    assert plan.shares.sum() <= problem.server.compute * (1 + 1e-9)


def test_links_that_are_wide_enough_change_nothing():
    problem = random_problem(np.random.default_rng(3), network_like(12), 6)
    wide = problem.replace(band=Band(problem.fleet.up.sum() * 1.01, problem.fleet.down.sum() * 1.01))
    assert exact(wide).latency == pytest.approx(exact(problem).latency, rel=1e-6)
    assert certified_bound(wide) <= exact(problem).latency


@pytest.mark.parametrize("seed", range(3))
def test_wider_links_are_never_slower_and_other_rates_never_faster(seed):
    problem = shared_problem(seed, 5)
    plan = exact(problem)
    wider = problem.replace(band=Band(problem.band.up * 1.5, problem.band.down * 1.5))
    assert exact(wider).latency <= plan.latency * (1 + 1e-6)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        rates = [
            np.minimum(own, rng.dirichlet(np.ones(5)) * capacity if np.isfinite(capacity) else own)
            for own, capacity in (
                (problem.fleet.up, problem.band.up),
                (problem.fleet.down, problem.band.down),
            )
        ]
        assert exact(problem.at_rates(*rates)).latency >= plan.lower_bound


def test_other_planners_have_fair_rates_and_the_same_bound():
    problem = shared_problem(0, 6, layers=12)
    best = solve(problem)
    for name in ("fedavg", "alternating", "greedy", "splitfed-best"):
        plan = solve(problem, name)
        assert plan.lower_bound == pytest.approx(best.lower_bound)
        assert plan.latency >= best.lower_bound
        assert np.array_equal(plan.rates, fair_rates(problem))


@settings(deadline=None)
@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=6), st.floats(0.01, 2.0))
def test_fair_rates_are_equal_but_for_those_that_can_use_no_more(own, part):
    problem, capacity = random_problem(np.random.default_rng(1), network_like(4), len(own)), sum(own) * part
    fleet = problem.fleet.replace(up=np.array(own))
    problem = problem.replace(clients=fleet, band=Band(up=capacity))
    rates = fair_rates(problem)[0]
    assert rates.sum() == pytest.approx(min(capacity, sum(own)))
    below = rates < np.array(own)
    assert np.ptp(rates[below]) <= 1e-9 * capacity if below.any() else True
    assert (rates[~below] <= rates[below].max() * (1 + 1e-9)).all() if below.any() else True


AMOUNTS = st.lists(st.floats(0.01, 100.0), min_size=LINKS, max_size=LINKS)


@settings(max_examples=200, deadline=None)
@given(AMOUNTS, AMOUNTS, AMOUNTS, st.floats(0.01, 10.0))
def test_the_cheapest_way_is_done_in_time_and_no_other_is_cheaper(work, prices, most, left):
    work, prices, most = map(np.array, (work, prices, most))
    given_ = np.empty(LINKS)
    cost = cheapest(left, work, prices, most, given_)
    if (work / most).sum() > left:
        assert cost == np.inf
        return
    assert (work / given_).sum() <= left * (1 + 1e-9)
    assert (given_ <= most * (1 + 1e-12)).all()
    assert cost == pytest.approx(float(prices @ given_))
    rng = np.random.default_rng(0)
    for _ in range(30):
        other = np.minimum(given_ * np.exp(rng.normal(0, 0.3, LINKS)), most)
        if (work / other).sum() <= left:
            assert prices @ other >= cost * (1 - 1e-9)


def test_a_simplex_is_cut_down_to_the_prices_that_are_left():
    rng = np.random.default_rng(2)
    for size in (2, 3):
        simplex, inside = Simplex(size), rng.dirichlet(np.ones(size))
        for _ in range(200):
            centre = simplex.centre
            assert centre.sum() == pytest.approx(1.0)
            normal = rng.normal(size=size)
            normal = normal if normal @ inside >= normal @ centre else -normal
            simplex.cut(normal, float(normal @ centre))
            if simplex.empty:
                break
        assert simplex.centre == pytest.approx(inside, abs=1e-6)
    line = Simplex(2)
    line.cut(np.array([1.0, 1.0]), 2.0)
    assert line.empty


def test_rates_are_in_the_json_and_read_back():
    plan = exact(shared_problem(0, 4))
    data = plan.to_json()
    assert [row["rate_up"] for row in data["clients"]] == plan.rates[0].tolist()
    again = Plan.from_json(data)
    assert again == plan
    assert np.array_equal(again.rates, plan.rates)
    assert "All clients share the uplink's" in plan.explain()
    own = exact(shared_problem(0, 4).replace(band=Band()))
    assert own.rates is None
    assert "rate_up" not in own.to_json()["clients"][0]


def test_a_server_that_shares_nothing_leaves_the_links_to_plan():
    nothing = shared_problem(0, 3).replace(server=Server(0.0))
    plan = exact(nothing)
    assert (plan.cuts == plan.layers).all()
    assert plan.gap <= 1e-6


def test_mistakes_are_told_in_a_sentence():
    problem = shared_problem(0, 3)
    with pytest.raises(PlanError, match="capacity is 0, but must be"):
        SharedLink(0)
    with pytest.raises(PlanError, match='set schedule = "in turn" in \\[wire\\], or micro_batches = 1'):
        problem.replace(session=Session(epochs=20, micro_batches=2))
    in_turn = problem.replace(session=Session(epochs=20, micro_batches=2), wires=Wires(schedule=("in turn",)))
    assert exact(in_turn).gap <= 1e-6
    with pytest.raises(PlanError, match="planner 'fedavg' plans no rates"):
        fedavg(problem)
    with pytest.raises(PlanError, match="job 'a' shares links"):
        plan_jobs([Job("a", problem)], problem.server)


def test_codecs_are_chosen_with_the_rates():
    problem = random_wire_problem(np.random.default_rng(11), 3, codecs=2)
    wires = Wires(up=("fp32", "int8"), down=("fp32", "bf16"), schedule=("in turn",))
    band = Band(problem.fleet.up.sum() / 5, problem.fleet.down.sum() / 5)
    clients = problem.fleet.replace(codecs={}, schedules={})
    problem = problem.replace(clients=clients, wires=wires, band=band)
    plan = exact(problem)
    assert plan.gap <= 1e-6
    assert plan.latency < exact(problem.replace(wires=Wires(schedule=("in turn",)))).lower_bound


def test_labels_may_stay_where_links_are_shared():
    problem = shared_problem(0, 3, layers=8)
    problem = problem.replace(session=Session(epochs=20, labels="stay"))
    plan = exact(problem)
    assert plan.gap <= 1e-6
    rng = np.random.default_rng(0)
    for _ in range(10):
        rates = [
            np.minimum(own, rng.dirichlet(np.ones(3)) * capacity)
            for own, capacity in (
                (problem.fleet.up, problem.band.up),
                (problem.fleet.down, problem.band.down),
            )
        ]
        assert exact(problem.at_rates(*rates)).latency >= plan.lower_bound
