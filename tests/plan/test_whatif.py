"""What changes are worth: every number is that of planning the changed fleet anew, and none is better."""

import numpy as np
import pytest
from evidence import evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import network_like, problems, random_problem
from planning_anew import assert_planned_anew

from cutwater.base.errors import PlanError
from cutwater.base.units import show_seconds
from cutwater.plan import nearby
from cutwater.plan.changes import apply, outcomes
from cutwater.plan.exact import exact
from cutwater.plan.explain import FASTER, TOLD
from cutwater.plan.prices import Price, Prices
from cutwater.plan.problem import Band, Server
from cutwater.plan.session import Session
from cutwater.plan.whatif import Increment, ranking


def test_a_server_that_is_changed_keeps_its_memory():
    problem = random_problem(np.random.default_rng(1), network_like(6), 2)
    problem = problem.replace(server=Server(1e12, memory=8e9))
    assert apply(problem, "server compute x2")[0].server == Server(2e12, memory=8e9)


FLEETS = evidence(12, 200)
STEPS = (Increment(), Increment(0.0, 0.0, 1.1), Increment(1e11, 1e9), Increment(1e6, 1e3))


@pytest.mark.parametrize("seed", FLEETS)
def test_every_number_and_every_hint_is_that_of_planning_anew_and_none_is_better(seed):
    rng = np.random.default_rng(seed)
    count = int(np.exp(rng.uniform(np.log(3), np.log(2000))))
    per_client = float(10 ** rng.uniform(9, 12.5))
    problem = random_problem(rng, network_like(), count, limits=seed % 2 == 1, per_client=per_client)
    if seed % 5 == 0:
        problem = problem.replace(session=Session(epochs=20, micro_batches=4))

    def some(others):
        return rng.integers(0, others, min(others, 12)).tolist()

    assert_planned_anew(problem, STEPS[seed % 4], top=int(rng.integers(1, 12)), among=some)
    hints = assert_planned_anew(problem, Increment(0.0, 0.0, FASTER), top=TOLD, among=some)
    said = exact(problem).explain()
    for change in hints.changes:
        assert f"{change.client or 'more server compute'} ({show_seconds(change.saved)} less)" in said
    assert said.count(" less)") == len(hints.changes)


@settings(deadline=None, max_examples=60)
@given(problem=problems(max_clients=5), step=st.sampled_from(STEPS))
def test_so_it_is_for_odd_problems(problem, step):
    assert_planned_anew(problem, step)


def priced(rng):
    """Prices by which now the server, now links, now devices are the best buy; one of them may have none."""
    amounts = 10 ** rng.uniform(-12, -6, 3)
    given = {
        key: Price(float(amount)) for key, amount in zip(("compute", "link", "device"), amounts, strict=True)
    }
    given.pop(("compute", "link", "device", "")[rng.integers(4)], None)
    return Prices(**given)


@pytest.mark.parametrize(("seed", "shared"), [*((seed, False) for seed in FLEETS), (4, True)])
def test_the_most_for_the_money_is_that_of_all_changes_however_few_are_shown(seed, shared):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, network_like(layers=6), int(rng.integers(2, 4 if shared else 40)))
    if shared:
        problem = problem.replace(band=Band(up=float(problem.fleet.up.sum() / 3)))
    prices, step = priced(rng), STEPS[(0, 2)[seed % 2]]
    everything = ranking(problem, step, top=1 + 2 * len(problem))
    paid = [each for each in everything.changes if each.per_money(prices) is not None]
    paid.sort(key=lambda each: -each.per_money(prices))
    best = ranking(problem, step, top=1).most_for_money(prices)
    assert (best is None) == (not paid)
    if best is not None:
        assert best.per_money(prices) == pytest.approx(paid[0].per_money(prices), rel=1e-6)
    for top in (1, 3, len(paid) + 1):
        found = ranking(problem, step, top=top, by=prices)
        rates = [each.per_money(prices) for each in found.changes]
        assert rates == pytest.approx([each.per_money(prices) for each in paid[:top]], rel=1e-6)
        costly = (1 if prices.compute else 0) + sum(len(problem) for p in (prices.link, prices.device) if p)
        assert len(found.changes) + found.others == costly
        assert all(each.per_money(prices) <= found.at_most * (1 + 1e-6) for each in paid[top:])


def test_what_can_not_be_ranked_by_money_is_refused():
    problem = random_problem(np.random.default_rng(0), network_like(), 3)
    with pytest.raises(PlanError, match=r"nothing costs any: add \[prices\] to the scenario"):
        ranking(problem, by=Prices())
    with pytest.raises(PlanError, match="ask for an amount more, not for a multiple"):
        ranking(problem, Increment(0.0, 0.0, 1.1), by=Prices(link=Price(1.0)))


def test_changes_of_ones_own_are_sorted_by_seconds_or_by_money():
    problem = random_problem(np.random.default_rng(4), network_like(), 12)
    texts = [
        "all compute x1.5",
        "server compute x4",
        "server compute x1.01",
        "c1..c11 removed",
        "all rtt = 1 s",
    ]
    prices, before = Prices(compute=Price(1e-12)), exact(problem, leftover="none").latency
    by_seconds = outcomes(problem, texts, before, prices)
    assert [each.saved for each in by_seconds] == sorted((each.saved for each in by_seconds), reverse=True)
    by_money = {each.change: each for each in outcomes(problem, texts, before, prices, by_money=True)}
    free, *bought, unknown, worse = by_money.values()
    assert free.change == "c1..c11 removed"
    assert [each.per_money for each in bought] == sorted((e.per_money for e in bought), reverse=True)
    assert {each.change for each in bought} == {"server compute x4", "server compute x1.01"}
    assert (unknown.change, unknown.cost) == ("all compute x1.5", None)
    assert worse.saved < 0


def test_ties_are_no_trouble():
    """Two hundred clients that are all alike, of which ten are told of."""
    problem = random_problem(np.random.default_rng(0), network_like(), 200)
    fleet = problem.fleet
    alike = fleet.replace(**{name: getattr(fleet, name)[0] for name in ("compute", "up", "down", "samples")})
    found = assert_planned_anew(
        problem.replace(clients=alike), Increment(), among=lambda others: range(0, others, 60)
    )
    assert len(found.changes) == 10
    assert found.changes[1].saved == pytest.approx(found.changes[-1].saved, rel=1e-3)


def test_where_links_are_shared_every_change_is_planned_anew():
    problem = random_problem(np.random.default_rng(2), network_like(layers=6), 3)
    shared = problem.replace(band=Band(up=1e8, down=2e8))
    assert_planned_anew(shared, Increment(1e10, 8e6))


def test_a_server_that_nobody_needs_is_worth_nothing():
    problem = random_problem(np.random.default_rng(0), network_like(), 5)
    fleet = problem.fleet.replace(min_cut=59)
    found = ranking(problem.replace(clients=fleet, server=Server(1e12)))
    assert "server compute" not in {change.kind for change in found.changes}


def test_passes_over_all_clients_are_few():
    """Of a thousand clients, the best ten are not found one by one."""
    problem, passes = random_problem(np.random.default_rng(3), network_like(), 1000), []
    with pytest.MonkeyPatch.context() as patch:
        look = nearby._Passes.look
        patch.setattr(nearby._Passes, "look", lambda *given: passes.append(1) or look(*given))
        ranking(problem)
    assert 0 < len(passes) <= 30


def test_more_clients_that_share_links_than_are_ranked_are_told_so():
    problem = random_problem(np.random.default_rng(0), network_like(layers=4), 51)
    shared = problem.replace(band=Band(up=float(problem.fleet.up.sum() / 4)))
    with pytest.raises(PlanError, match=r"of 51 clients .* ask for changes of your own, such as 'uplink"):
        ranking(shared)


def test_what_a_wider_line_is_worth_is_planned_anew_and_priced():
    problem = random_problem(np.random.default_rng(2), network_like(layers=6), 3)
    shared = problem.replace(band=Band(up=1e8, down=2e8))
    before = exact(shared).latency
    prices = Prices(uplink=Price(2e-7), downlink=Price(1e-7))
    texts = {
        "uplink capacity x2": (Band(2e8, 2e8), 20.0),
        "uplink + 1 MB/s; downlink capacity - 1 MB/s": (Band(1.08e8, 1.92e8), 0.8),
        "downlink capacity = 50 MB/s": (Band(1e8, 4e8), 20.0),
    }
    for found in outcomes(shared, list(texts), before, prices):
        band, cost = texts[found.change]
        assert found.latency == pytest.approx(exact(shared.replace(band=band)).latency, rel=1e-7)
        assert found.cost == pytest.approx(cost)
    with pytest.raises(PlanError, match=r"not shared: add \[downlink\] to the scenario"):
        apply(problem.replace(band=Band(up=1e8)), "downlink capacity x2")


def test_rounding_is_no_outcome():
    problem = random_problem(np.random.default_rng(4), network_like(), 12)
    quick = problem.replace(clients=problem.fleet.replace(samples=np.where(np.arange(12) < 3, 1, 3000)))
    before = exact(quick, leftover="none").latency
    (found,) = outcomes(quick, ["c1..c3 removed"], before * (1 + 1e-11), Prices())
    assert (found.saved, found.latency) == (0.0, before * (1 + 1e-11))


GROUPS = {
    "all rates x1.2": lambda fleet: {"up": fleet.up * 1.2, "down": fleet.down * 1.2},
    "all rate + 1 MB/s": lambda fleet: {"up": fleet.up + 8e6, "down": fleet.down + 8e6},
    "all rtt = 20 ms": lambda fleet: {"rtt": 0.02},
    "c2..c4 compute x2": lambda fleet: {
        "compute": fleet.compute * np.array([2 if 1 <= k <= 3 else 1 for k in range(len(fleet))])
    },
    "c1, c3: up = 1 MB/s": lambda fleet: {
        "up": np.array([8e6 if k in (0, 2) else up for k, up in enumerate(fleet.up)])
    },
    "c3 rate - 1 kB/s": lambda fleet: {
        name: getattr(fleet, name) - np.array([8e3 if k == 2 else 0 for k in range(len(fleet))])
        for name in ("up", "down")
    },
    "all samples x0.5": lambda fleet: {"samples": np.maximum(np.rint(fleet.samples / 2), 1).astype(int)},
    "c1: samples = 5000": lambda fleet: {
        "samples": np.array([5000 if k == 0 else n for k, n in enumerate(fleet.samples)])
    },
    "clients with rate < 20 MB/s and samples > 1000: up x2": lambda fleet: {
        "up": np.where(
            (np.minimum(fleet.up, fleet.down) < 1.6e8) & (fleet.samples > 1000), fleet.up * 2, fleet.up
        )
    },
    "clients with samples = 1000: compute x2": lambda fleet: {},
    "clients with compute >= 100 GFLOPS: compute = 100 GFLOPS": lambda fleet: {
        "compute": np.minimum(fleet.compute, 1e11)
    },
}


@pytest.mark.parametrize("text", GROUPS)
def test_a_change_of_a_group_is_the_changed_fleet_planned_anew(text):
    problem = random_problem(np.random.default_rng(4), network_like(), 12)
    changed = problem.replace(clients=problem.fleet.replace(**GROUPS[text](problem.fleet)))
    before, after = (exact(each, leftover="none").latency for each in (problem, changed))
    (found,) = outcomes(problem, [text], before, Prices())
    assert (found.latency, found.saved) == pytest.approx((after, before - after), rel=1e-9)
    assert found.cost is None


def test_changes_are_made_together_and_clients_leave_by_name():
    problem = random_problem(np.random.default_rng(5), network_like(), 8)
    changed, bill = apply(
        problem, "c3..c5 removed; server compute x1.5; all rate + 1 MB/s; micro_batches = 2"
    )
    assert tuple(changed.fleet.names) == ("c1", "c2", "c6", "c7", "c8")
    assert changed.server.compute == 1.5 * problem.server.compute
    assert changed.session.micro_batches == 2
    assert (bill["compute"], bill["link"]) == (0.5 * problem.server.compute, 5 * 8e6)
    assert np.array_equal(changed.fleet.up, problem.fleet.up[[0, 1, 5, 6, 7]] + 8e6)


def test_some_clients_of_a_fleet_keep_what_is_theirs():
    fleet = random_problem(np.random.default_rng(6), network_like(), 6).fleet
    fleet = fleet.replace(forbidden={1: frozenset({3}), 4: frozenset({5})})
    some = fleet.some(np.array([4, 0]))
    assert [some[k] for k in range(2)] == [fleet[4], fleet[0]]
    assert fleet.take(2).names == ("c1", "c2") or list(fleet.take(2).names) == ["c1", "c2"]
