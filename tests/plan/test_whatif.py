"""What changes are worth: to first order, and by solving again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import network_like, problems, random_problem

from cutwater.plan.exact import exact
from cutwater.plan.problem import Server
from cutwater.plan.whatif import Increment, whatif

TINY = Increment(compute=1e5, rate=1e2)


def by_name(changes):
    return {(change.kind, change.client): change for change in changes}


@pytest.mark.parametrize("seed", range(8))
def test_for_tiny_steps_both_methods_agree(seed):
    problem = random_problem(np.random.default_rng(seed), network_like(), 6, limits=True)
    analytic = by_name(whatif(problem, TINY, method="analytic")[1])
    resolved = by_name(whatif(problem, TINY, method="re-solved")[1])
    assert analytic.keys() == resolved.keys()
    scale = max(change.saved for change in resolved.values())
    for key, change in analytic.items():
        assert change.saved == pytest.approx(resolved[key].saved, rel=0.02, abs=scale * 1e-3)


@settings(deadline=None, max_examples=40)
@given(problem=problems(max_clients=5))
def test_no_improvement_is_worth_less_than_nothing(problem):
    plan, changes = whatif(problem, method="re-solved")
    assert all(0 <= change.saved <= plan.latency for change in changes)
    assert [change.saved for change in changes] == sorted((c.saved for c in changes), reverse=True)


@settings(deadline=None, max_examples=30)
@given(problem=problems(max_clients=5), data=st.data())
def test_a_client_that_is_not_last_is_worth_nothing(problem, data):
    """Leaving out what can't matter is right: solving with its change gives the same round."""
    plan = exact(problem, leftover="none")
    early = np.flatnonzero(plan.latencies < plan.latency * (1 - 1e-6))
    if not early.size:
        return
    k = data.draw(st.sampled_from(early.tolist()))
    one = np.arange(len(problem)) == k
    fleet = problem.fleet
    better = fleet.replace(
        up=fleet.up * (1 + one), down=fleet.down * (1 + one), compute=fleet.compute * (1 + one)
    )
    assert exact(problem.replace(clients=better)).latency == pytest.approx(plan.latency, rel=1e-9)


def test_every_client_has_its_row_and_every_row_its_method():
    problem = random_problem(np.random.default_rng(0), network_like(), 5)
    _, changes = whatif(problem)
    assert len(changes) == 1 + 2 * 5
    assert {change.method for change in changes} == {"re-solved"}
    large = random_problem(np.random.default_rng(0), network_like(), 600)
    assert {change.method for change in whatif(large)[1]} == {"analytic"}


def test_a_server_that_nobody_needs_is_worth_nothing():
    problem = random_problem(np.random.default_rng(0), network_like(), 5)
    fleet = problem.fleet.replace(min_cut=59)
    changes = by_name(whatif(problem.replace(clients=fleet, server=Server(1e12)))[1])
    assert changes["server compute", None].saved == 0


@settings(deadline=None, max_examples=40)
@given(problem=problems(max_clients=5), size=st.sampled_from([1e3, 1e9, 1e15, 1e30]))
def test_not_even_a_large_step_saves_more_than_the_round_takes(problem, size):
    plan, changes = whatif(problem, Increment(compute=size, rate=size), method="analytic")
    assert all(0 <= change.saved <= plan.latency * (1 + 1e-9) for change in changes)


def test_the_analytic_value_of_a_device_alone_is_exact_however_much_faster_it_gets():
    problem = random_problem(np.random.default_rng(1), network_like(), 1).replace(server=Server(0.0))
    step = Increment(compute=1e13, rate=1e11)
    analytic, resolved = (by_name(whatif(problem, step, method=m)[1]) for m in ("analytic", "re-solved"))
    for key in (("link", "c1"), ("device compute", "c1")):
        assert analytic[key].saved == pytest.approx(resolved[key].saved, rel=1e-9)
