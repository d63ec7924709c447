"""The exact planner over cuts and wires, against a search that tries everything and simulates every part."""

import numpy as np
import pytest
from step_events import session_events
from wire_cases import random_wire_problem
from wire_oracle import feasible, may, optimum, options, seconds

from cutwater.plan.exact import certified_bound, exact

# Many pairs with a wide choice of wires, and threes with a smaller one.
CASES = [(seed, 2, 3) for seed in range(120)] + [(seed, 3, 2) for seed in range(120, 200)]


def drawn(seed, count, codecs):
    return random_wire_problem(np.random.default_rng(seed), count, codecs=codecs, layers=(2, 4 + (count < 3)))


@pytest.mark.parametrize(("seed", "count", "codecs"), CASES)
def test_exact_is_the_best_of_all_cuts_and_wires_with_a_certificate(seed, count, codecs):
    problem = drawn(seed, count, codecs)
    plan = exact(problem, leftover="none" if seed % 3 == 0 else "lexicographic")
    assert plan.latency == pytest.approx(optimum(problem), rel=1e-9)
    assert plan.lower_bound <= plan.latency <= plan.lower_bound * (1 + 1e-9)
    assert not feasible(problem, plan.lower_bound * (1 - 1e-9))
    assert certified_bound(problem) == plan.lower_bound


@pytest.mark.parametrize(("seed", "count", "codecs"), CASES[::4])
def test_every_plan_keeps_the_limits_and_takes_what_it_says(seed, count, codecs):
    problem = drawn(seed, count, codecs)
    plan = exact(problem)
    assert plan.shares.sum() <= problem.server.compute * (1 + 1e-12)
    for k, client in enumerate(problem.fleet):
        wire = problem.options[plan.wires[k]]
        assert may(problem, client, int(plan.cuts[k]), wire)
        wanted = session_events(problem, k, int(plan.cuts[k]), wire, plan.shares[k])
        assert plan.latencies[k] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_oracle_takes_what_the_events_take(seed):
    problem = drawn(seed, 2, 3)
    rng = np.random.default_rng(seed)
    for k, each in enumerate(options(problem)):
        for place in rng.permutation(len(each))[:5]:
            cut, wire, *laid_out = each[place]
            share = 10 ** rng.uniform(6, 11)
            wanted = session_events(problem, k, cut, problem.options[wire], share)
            assert seconds(share, *laid_out) == pytest.approx(wanted, rel=1e-12)
