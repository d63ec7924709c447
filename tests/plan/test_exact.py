"""The exact planner: optimal, certified, and fair with what is left over."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import alone, make_profile, need, network_like, problems, random_problem

from cutwater.base.errors import PlanError
from cutwater.plan import kernel
from cutwater.plan import optimum as optimum_module
from cutwater.plan.exact import certified_bound, exact
from cutwater.plan.exhaustive import exhaustive
from cutwater.plan.fleet import Client, Fleet
from cutwater.plan.latency import latency
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.plan.tables import NOT_SEEN, ROWS, ClientTables, CutTables, without_server

LEFTOVER = pytest.mark.parametrize("leftover", ["lexicographic", "none"])


@settings(deadline=None, max_examples=150)
@given(problem=problems(), leftover=st.sampled_from(["lexicographic", "none"]))
def test_exact_equals_exhaustive_search(problem, leftover):
    best = exhaustive(problem)
    plan = exact(problem, leftover=leftover)
    assert plan.latency == pytest.approx(best.latency, rel=1e-8)


@settings(deadline=None, max_examples=150)
@given(problem=problems(max_clients=8, max_layers=12), leftover=st.sampled_from(["lexicographic", "none"]))
def test_the_certificate_holds_within_1e9(problem, leftover):
    plan = exact(problem, leftover=leftover)
    assert plan.lower_bound <= plan.latency <= plan.lower_bound * (1 + 1e-9)
    just_faster = plan.lower_bound * (1 - 1e-9)
    demand = sum(need(problem, k, just_faster) for k in range(len(problem)))
    assert demand > problem.server.compute or problem.server.compute == 0 == plan.shares.sum()
    assert certified_bound(problem) == plan.lower_bound


@settings(deadline=None, max_examples=100)
@given(problem=problems(max_clients=6))
def test_nobody_gets_more_than_there_is_and_phases_add_up(problem):
    plan = exact(problem)
    assert plan.shares.sum() <= problem.server.compute * (1 + 1e-12)
    assert (plan.shares >= 0).all()
    assert plan.latencies == pytest.approx(latency(problem, plan.cuts, plan.shares))
    for client in plan.clients:
        assert sum(client.phases) == pytest.approx(client.latency, rel=1e-12)


@settings(deadline=None, max_examples=100)
@given(problem=problems(max_clients=6))
def test_left_over_compute_goes_to_the_next_slowest(problem):
    plan = exact(problem)
    F = problem.server.compute
    sharing = np.flatnonzero(plan.shares > 0)
    if sharing.size:
        # Those that share finish together and use the server up.
        together = plan.latencies[sharing]
        assert together == pytest.approx(together[0], rel=1e-9)
        assert plan.shares.sum() == pytest.approx(F, rel=1e-3)
    level = plan.latencies[sharing[0]] if sharing.size else 0.0
    for k in range(len(problem)):
        if plan.shares[k] == 0 and plan.latencies[k] > level * (1 + 1e-9):
            # This one is slower and got nothing: had it shared, the server would have been too small.
            just_below = plan.latencies[k] * (1 - 1e-9)
            assert plan.latencies[k] == pytest.approx(alone(problem, k))
            assert need(problem, k, just_below) + sum(need(problem, j, just_below) for j in sharing) >= F


@settings(deadline=None, max_examples=100)
@given(problem=problems(max_clients=6))
def test_lexicographic_is_never_worse_for_anyone_down_the_line(problem):
    fair, bare = exact(problem), exact(problem, leftover="none")
    ranked = zip(np.sort(fair.latencies)[::-1], np.sort(bare.latencies)[::-1], strict=True)
    for ours, theirs in ranked:
        assert ours <= theirs * (1 + 1e-9)
        if ours < theirs * (1 - 1e-9):
            break


@settings(deadline=None, max_examples=60)
@given(problem=problems(max_clients=6), factor=st.floats(1.0, 10.0))
def test_more_server_compute_never_hurts(problem, factor):
    more = problem.replace(server=Server(problem.server.compute * factor))
    assert exact(more).latency <= exact(problem).latency * (1 + 1e-9)


@settings(deadline=None, max_examples=60)
@given(problem=problems(max_clients=6), factor=st.floats(0.01, 100.0))
def test_a_world_faster_by_a_factor_is_faster_by_that_factor(problem, factor):
    fleet = problem.fleet
    faster = fleet.replace(compute=fleet.compute * factor, up=fleet.up * factor, down=fleet.down * factor)
    scaled = problem.replace(clients=faster, server=Server(problem.server.compute * factor))
    assert exact(scaled).latency == pytest.approx(exact(problem).latency / factor, rel=1e-8)


@settings(deadline=None, max_examples=60)
@given(problem=problems(max_clients=6), seed=st.integers(0, 100))
def test_the_order_of_clients_does_not_matter(problem, seed):
    order = np.random.default_rng(seed).permutation(len(problem))
    shuffled = problem.replace(clients=[problem.fleet[int(k)] for k in order])
    assert exact(shuffled).latency == pytest.approx(exact(problem).latency, rel=1e-9)


@pytest.mark.parametrize("count", [1, 3, 100, 5000])
@pytest.mark.parametrize("limits", [False, True])
def test_need_is_met_exactly_on_large_fleets(count, limits):
    rng = np.random.default_rng(count)
    problem = random_problem(rng, network_like(), count, limits=limits)
    plan = exact(problem)
    table = latency(problem, np.arange(1, problem.layers + 1)[:, None], plan.shares)
    allowed = problem.allowed.masks[problem.allowed.of].T
    best = np.where(allowed, table, np.inf).min(axis=0)
    assert (plan.latencies <= best * (1 + 1e-9)).all()  # with its share, no client has a better cut
    assert plan.gap <= 1e-9
    assert plan.shares.sum() <= problem.server.compute * (1 + 1e-12)


@settings(deadline=None, max_examples=150)
@given(problem=problems(max_clients=8), leftover=st.sampled_from(["lexicographic", "none"]))
def test_looking_only_at_clients_that_may_need_the_server_changes_nothing(problem, leftover):
    """What large fleets get: a bound from the slowest few says whom to look at."""
    everyone = exact(problem, leftover=leftover)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimum_module, "MANY", 1)
        few = exact(problem, leftover=leftover)
    assert few.latencies == pytest.approx(everyone.latencies, rel=1e-9)
    assert few.lower_bound == pytest.approx(everyone.lower_bound, rel=1e-9)
    assert few.gap <= 1e-9


@pytest.mark.parametrize("per_client", [1e6, 3e9, 300e9, 1e13])
def test_a_large_fleet_is_planned_like_a_small_one(monkeypatch, per_client):
    rng = np.random.default_rng(5)
    problem = random_problem(rng, network_like(), optimum_module.MANY + 1, per_client=per_client)
    plan = exact(problem)
    monkeypatch.setattr(optimum_module, "MANY", 10**9)
    assert plan.latencies == pytest.approx(exact(problem).latencies, rel=1e-9)
    assert plan.gap <= 1e-9


def test_clients_with_the_same_limits_share_a_pattern():
    rng = np.random.default_rng(0)
    problem = random_problem(rng, network_like(20), 20_000, limits=True)
    assert len(problem.allowed.masks) <= 21 * 20


def test_without_server_compute_everyone_trains_the_whole_model():
    problem = random_problem(np.random.default_rng(0), network_like(), 10)
    plan = exact(problem.replace(server=Server(0.0)))
    assert (plan.cuts == problem.layers).all()
    assert plan.latency == plan.lower_bound / (1 - 1e-11)


def test_a_huge_server_leaves_only_what_it_cannot_shorten():
    problem = random_problem(np.random.default_rng(0), network_like(), 10)
    plan = exact(problem.replace(server=Server(1e30)))
    table = latency(problem, np.arange(1, problem.layers + 1)[:, None], np.inf)
    assert plan.latency == pytest.approx(table.min(axis=0).max(), rel=1e-6)


def test_a_client_that_the_server_cannot_help_leaves_it_to_the_others():
    slow_link = Client(name="remote", compute=1e11, rate=1e6, samples=10, min_cut=59)
    near = [Client(name=f"near{k}", compute=1e10, rate=1e9, samples=1000) for k in range(3)]
    problem = Problem(network_like(), [slow_link, *near], Server(3e12), Session(epochs=1))
    plan = exact(problem)
    assert plan["remote"].mode == "fedavg"
    assert plan.bottleneck.name == "remote"
    assert plan.shares[1:] == pytest.approx(1e12)
    bare = exact(problem, leftover="none")
    assert bare.shares.sum() < plan.shares.sum()
    assert bare.latency == plan.latency


def test_a_cut_without_work_for_the_server_needs_no_share():
    # Layers 2 and 3 cost nothing, and what crosses after layer 2 is tiny: best to send that and go home.
    profile = make_profile([1000, 1000, 10**9], [1e9, 1e9, 1e9], [10**6, 8, 320])
    problem = Problem(
        profile, [Client(name="c", compute=1e9, rate=1e6, samples=10)], Server(1e9), Session(epochs=1)
    )
    plan = exact(problem)
    assert (plan.cuts[0], plan.shares[0]) == (2, 0.0)
    assert plan["c"].mode == "split"


@LEFTOVER
def test_identical_clients_finish_together(leftover):
    fleet = [Client(name=f"c{k}", compute=1e10, rate=1e8, samples=100) for k in range(7)]
    plan = exact(Problem(network_like(), fleet, Server(1e12), Session(epochs=2)), leftover=leftover)
    assert np.ptp(plan.latencies) <= 1e-9 * plan.latency


def test_an_unknown_rule_for_what_is_left_is_refused():
    problem = random_problem(np.random.default_rng(0), network_like(), 2)
    with pytest.raises(PlanError, match="leftover is 'all'"):
        exact(problem, leftover="all")


@pytest.mark.parametrize("server", [1e12, 1e15, 1e20, 1e25, 1e30])
def test_a_server_so_fast_that_its_time_vanishes_in_rounding_is_planned_for(server):
    profile = make_profile([10**6, 10**9], [1.0, 1e3], [10**14, 320])
    client = Client(name="c", compute=1e-6, rate=1e6, samples=10**6)
    plan = exact(Problem(profile, [client], Server(server), Session(epochs=1)))
    assert plan.lower_bound <= plan.latency <= plan.lower_bound * (1 + 1e-9)


def one_by_one(F, order, split, count, clients):
    """What the sweep over T̃ means, with the sum made anew for every client."""
    alone = clients.alone

    def need(T, k):
        fresh, least = np.tile(NOT_SEEN, (len(alone), 1)), np.empty(clients.rows.shape[2])
        return kernel.need(T, k, clients._replace(seen=fresh), least)

    for visited, b in enumerate(order):
        T = alone[b]
        used = sum(need(T, k) for k in split[:count])
        if used > F:
            return count, visited
        if used + need(T, b) > F:
            alone[b] = -np.inf
        else:
            split[count] = b
            count += 1
    return count, len(order)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 120),
    st.sampled_from([0.0, 1e-12, 1e-5, 1e-2, 1.0]),
    st.floats(0.05, 2.0),
    st.sampled_from([1, 3]),
)
def test_a_sweep_in_blocks_decides_as_one_client_by_client(seed, count, spread, room, parts):
    rng = np.random.default_rng(seed)
    fleet = Fleet.from_columns(
        compute=1e10 * rng.choice([1.0, 1.5], count) * (1 + spread * rng.random(count)),
        up=rng.choice([8e6, 3.2e7], count),
        down=3.2e7,
        samples=rng.choice([300, 500], count),
    )
    problem = Problem(network_like(), fleet, Server(1e12), Session(epochs=2, micro_batches=parts))
    alone = without_server(problem)[0]
    tables = ClientTables.of(problem, CutTables.of(problem), alone, np.arange(count))
    order = np.argsort(-alone, kind="stable")
    needs = [kernel.used(alone[k], np.array([k]), 1, tables.laid_out) for k in order]
    found = []
    for sweep in (kernel.sweep, one_by_one):
        split, left = np.zeros(count, dtype=np.int64), alone.copy()
        sharing, visited = sweep(room * sum(needs), order, split, 0, tables.with_alone(left).laid_out)
        found.append((sharing, visited, split[:sharing].tolist(), left.tolist()))
    assert found[0] == found[1]


def test_where_nothing_can_be_kept_the_loops_are_compiled_all_the_same():
    source = Path(kernel.__file__).read_text()
    nowhere = {"__name__": "cutwater.plan.kernel"}
    exec(compile(source, "<nowhere>", "exec"), nowhere)  # as if read from what can't be written to
    weight, scaled = np.linspace(1.0, 6.0, 9), np.linspace(0.1, 2.0, 33).reshape(ROWS, 3)
    arguments = (90.0, weight, scaled, scaled, 3, np.array(NOT_SEEN), np.empty(3))
    wanted = kernel.need_by_wires.py_func(*arguments)
    assert 0 < wanted < np.inf
    assert nowhere["need_by_wires"](*arguments) == wanted
    assert kernel.need_by_wires(*arguments) == wanted
