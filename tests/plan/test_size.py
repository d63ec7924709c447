"""The inverse of planning: the smallest server, and the cheapest mix of server and links, for a round."""

import numpy as np
import pytest
from evidence import evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import helped_by_server, network_like, problems, random_problem
from scip_links import scip_links_optimum
from wire_cases import random_wire_problem

from cutwater.base.errors import PlanError
from cutwater.plan.exact import certified_bound, exact
from cutwater.plan.fleet import SETS
from cutwater.plan.latency import latency, server_work
from cutwater.plan.prices import Price, Prices
from cutwater.plan.problem import Band, Server
from cutwater.plan.size import cheapest, faster, smallest_server

PRICED = evidence(10, 50)


def round_with(problem, compute):
    return exact(problem.replace(server=Server(compute)), leftover="none").latency


@settings(deadline=None, max_examples=60)
@given(problem=problems(max_clients=5), part=st.floats(0.05, 0.95))
def test_the_smallest_server_meets_the_target_and_a_smaller_one_does_not(problem, part):
    most, least = round_with(problem, 1e9), round_with(problem, 1e29)
    if least >= most:
        return  # no server helps this fleet
    target = least + part * (most - least)
    found = smallest_server(problem, target)
    assert round_with(problem, found.compute) <= target * (1 + 1e-9)
    if found.compute > 0:
        assert round_with(problem, 0.999 * found.compute) > target


@pytest.mark.parametrize("seed", range(6))
def test_so_it_does_where_parts_overlap(seed):
    problem = random_wire_problem(np.random.default_rng(seed), 4)
    target = 0.5 * (round_with(problem, problem.server.compute) + round_with(problem, 1e29))
    found = smallest_server(problem, target)
    assert round_with(problem, found.compute) <= target * (1 + 1e-9)
    assert found.compute == 0 or round_with(problem, 0.999 * found.compute) > target


@pytest.mark.parametrize("seed", evidence(6, 50))
def test_where_links_are_shared_the_smallest_server_is_proven_within_an_interval(seed):
    problem = helped_by_server(seed, 2 + seed % 3)
    free = exact(problem.replace(server=Server(0.0))).latency
    floor = exact(problem.replace(server=Server(1e29))).latency
    target = floor + (0.2, 0.5, 0.8)[seed % 3] * (free - floor)
    found = smallest_server(problem, target)
    assert exact(problem.replace(server=Server(found.compute))).latency <= target * (1 + 1e-9)
    assert (1 - 1e-3) * found.compute <= found.at_least <= found.compute
    smaller = problem.replace(server=Server(found.at_least * (1 - 1e-6)))
    assert certified_bound(smaller) > target
    assert scip_links_optimum(smaller) > target * (1 - 1e-6)


def test_a_target_that_shared_links_rule_out_says_so():
    problem = helped_by_server(0, 4)
    problem = problem.replace(band=Band(problem.band.up / 10, problem.band.down / 10))
    floor = exact(problem.replace(server=Server(1e29))).latency
    with pytest.raises(PlanError, match=r"no server makes a round take .* as long as they share their links"):
        smallest_server(problem, 0.99 * floor)
    with pytest.raises(PlanError, match="the cheapest mix is not told where links are shared"):
        cheapest(problem, 2 * floor, Prices(compute=Price(1.0), link=Price(1.0)))


def test_a_target_that_no_server_meets_names_who_is_the_floor_and_why():
    problem = random_problem(np.random.default_rng(0), network_like(), 5)
    fleet = problem.fleet
    floor = round_with(problem, 1e29)
    slow_link = fleet.replace(up=np.where(np.arange(5) == 2, 1e5, fleet.up))
    with pytest.raises(PlanError, match=r"no server makes a round take .*: 'c3' takes .* for its link"):
        smallest_server(problem.replace(clients=slow_link), floor)
    slow_device = fleet.replace(
        compute=np.where(np.arange(5) == 3, 1e7, fleet.compute), up=1e12, down=1e12, min_cut=30
    )
    with pytest.raises(PlanError, match=r"'c4' takes .* for its device"):
        smallest_server(problem.replace(clients=slow_device), 1.0)


HELD = ("holds", "holds_last")
COLUMNS = ("compute", "samples", "epochs", "steps", "batch_size", "min_cut", "memory", "rtt", *HELD)


def with_links(problem, k, steps):
    """One client many times over, each time with a link that is faster by another step."""
    fleet, count = problem.fleet.some(np.array([k])), len(steps)
    columns = {name: np.full(count, getattr(fleet, name)[0]) for name in COLUMNS}
    sets = {name: dict.fromkeys(range(count), some[0]) for name in SETS if (some := getattr(fleet, name))}
    names = [f"d{i}" for i in range(count)]
    links = {"up": fleet.up[0] + steps, "down": fleet.down[0] + steps}
    return problem.replace(clients=fleet.replace(names=names, **columns, **sets, **links))


def least_cost(problem, k, target, prices):
    """The cheapest of one client by looking at every cut and wire with very many links."""
    coarse = np.concatenate([[0.0], np.geomspace(1e-4, 1e5, 300)]) * problem.fleet.up[k]
    best = np.inf
    for wire in range(len(problem.options)):
        for cut in np.flatnonzero(problem.allowed.cells[problem.allowed.of[k], wire]) + 1:
            steps = coarse
            for _ in range(4):
                many = with_links(problem, k, steps)
                cost = (
                    prices.compute.amount * smallest_share(many, cut, wire, target)
                    + prices.link.amount * steps
                )
                least = int(cost.argmin())
                best = min(best, float(cost[least]))
                steps = np.linspace(steps[max(least - 1, 0)], steps[min(least + 1, len(steps) - 1)], 61)
    return best


def smallest_share(problem, cut, wire, target):
    """From the latency itself: as a quotient, or by bisection where parts overlap."""
    work, before = server_work(problem, cut), latency(problem, cut, np.inf, wires=wire)
    if work[0] == 0:
        return np.where(before <= target, 0.0, np.inf)
    if problem.options[wire].schedule == "in turn":
        return np.where(before < target, work / np.maximum(target - before, 1e-300), np.inf)
    low, high = np.full(len(problem), 1e0), np.full(len(problem), 1e20)
    never = latency(problem, cut, high, wires=wire) > target
    for _ in range(60):
        middle = np.sqrt(low * high)
        late = latency(problem, cut, middle, wires=wire) > target
        low, high = np.where(late, middle, low), np.where(late, high, middle)
    return np.where(never, np.inf, high)


def priced(rng):
    return Prices(
        compute=Price(float(10 ** rng.uniform(-12, -9))), link=Price(float(10 ** rng.uniform(-9, -5)))
    )


@pytest.mark.parametrize("seed", PRICED)
def test_the_cheapest_mix_is_the_cheapest_of_very_many(seed):
    rng = np.random.default_rng(seed)
    if seed % 3 == 0:
        problem = random_wire_problem(rng, 2)
    else:
        problem = random_problem(rng, network_like(layers=7, seed=seed), 3, limits=seed % 2 == 1)
    prices = priced(rng)
    target = round_with(problem, problem.server.compute) * float(rng.uniform(0.5, 1.2))
    wanted = [least_cost(problem, k, target, prices) for k in range(len(problem))]
    if not np.isfinite(wanted).all():
        with pytest.raises(PlanError, match="no server and no links"):
            cheapest(problem, target, prices)
        return
    found = cheapest(problem, target, prices)
    assert found.cost == pytest.approx(sum(wanted), rel=1e-5, abs=1e-12)
    assert found.cost <= sum(wanted) * (1 + 1e-9) + 1e-12
    bought = problem.replace(clients=faster(problem.fleet, found.links), server=Server(found.compute))
    assert exact(bought).latency <= target * (1 + 1e-9)
    alone = smallest_cost(problem, target, prices)
    assert found.cost <= alone * (1 + 1e-9)


def smallest_cost(problem, target, prices):
    try:
        return prices.cost(compute=smallest_server(problem, target).compute)
    except PlanError:
        return np.inf


def test_prices_that_can_not_be_added_up_are_refused():
    with pytest.raises(PlanError, match=r"are in EUR / h and USD / h, which can't be added up"):
        Prices(compute=Price(1.0, "EUR", True), link=Price(1.0, "USD", True))
    with pytest.raises(PlanError, match="needs both prices"):
        cheapest(random_problem(np.random.default_rng(0), network_like(), 2), 1e3, Prices())
