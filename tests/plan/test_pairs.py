"""Plans over pairs of cuts: the optimum of an oracle that knows nothing of the planner's tables."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_cases import clients, make_profile, network_like, profiles, random_fleet

from cutwater.base.errors import PlanError
from cutwater.plan import tables
from cutwater.plan.exact import exact
from cutwater.plan.places import Places, place_of
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires
from cutwater.plan.timeline import timeline
from cutwater.plan.value import Plan, assemble
from cutwater.profile.values import SharedWeight

LENGTH = Session(epochs=2, labels="stay")


def seconds(problem, k, cut, second_cut, share):
    """A session in three parts, by the sum in the module of places, from the profile's own rows."""
    rows, client = problem.profile.cuts, problem.fleet[k]
    head, middle, whole = rows[cut - 1], rows[second_cut - 1], rows[-1]
    gamma = [r.client_forward_flops + r.client_backward_flops for r in (head, middle, whole)]
    bits = head.client_bits + whole.client_bits - middle.client_bits
    samples, parts = float(problem.work[k]), float(problem.steps.parts[k])
    on_client = samples * (gamma[2] - gamma[1] + gamma[0]) / client.compute
    work = samples * (gamma[1] - gamma[0])
    up = (bits + samples * (head.smashed_bits + middle.gradient_bits)) / client.up
    down = (bits + samples * (head.gradient_bits + middle.smashed_bits)) / client.down
    return on_client + up + down + 2 * parts * client.rtt, work, share


def options(problem, k):
    """(seconds without the server, FLOPs for it) of everything that a client whose labels stay may do."""
    client, profile = problem.fleet[k], problem.profile
    layers = len(profile)
    cuts = [cut for cut in range(client.min_cut, layers) if cut not in client.forbidden]
    torn = {cut.cut for cut in profile.cuts if cut.ruled_out}
    found = []
    for cut, second in itertools.combinations([*cuts], 2):
        if not {cut, second} & torn:
            found.append(seconds(problem, k, cut, second, 1.0)[:2])
    if layers not in client.forbidden:
        whole = profile.cuts[-1]
        gamma = whole.client_forward_flops + whole.client_backward_flops
        alone = whole.client_bits * (1 / client.up + 1 / client.down)
        found.append((alone + float(problem.work[k]) * gamma / client.compute, 0.0))
    return found


def best_by_trying(problem):
    """The smallest latency over all combinations, each with its best shares, by bisection."""
    best = np.inf
    for chosen in itertools.product(*(options(problem, k) for k in range(len(problem)))):
        before, work = np.array(chosen).T
        busy = work > 0
        low, high = before.max(), (before + work * len(problem) / problem.server.compute).max()
        for _ in range(80):
            middle = (low + high) / 2
            left = middle - before[busy]
            fits = (left > 0).all() and (
                work[busy] / np.maximum(left, 1e-300)
            ).sum() <= problem.server.compute
            low, high = (low, middle) if fits else (middle, high)
        best = min(best, high)
    return best


@st.composite
def problems(draw):
    profile = draw(profiles(max_layers=5))
    count = draw(st.integers(1, 2))
    rows = [replace(draw(clients(f"c{k}", len(profile))), memory=np.inf, rate=None) for k in range(count)]
    rtt = draw(st.sampled_from([0.0, 0.01]))
    rows = [replace(row, rtt=rtt, codecs=frozenset(), schedules=frozenset(), rate=None) for row in rows]
    try:
        return Problem(profile, rows, Server(draw(st.floats(1e9, 1e13))), LENGTH)
    except PlanError:
        assume(condition=False)


@given(problems())
@settings(max_examples=60, deadline=None)
def test_no_combination_of_pairs_is_faster(problem):
    plan = exact(problem)
    best = best_by_trying(problem)
    assert plan.latency == pytest.approx(best, rel=1e-6)
    assert plan.lower_bound <= plan.latency * (1 + 1e-9)
    assert plan.gap < 1e-6
    split = plan.cuts < plan.layers
    assert (plan.second_cuts[split] > plan.cuts[split]).all()
    assert not plan.second_cuts[~split].any()


@given(problems(), st.sampled_from(["greedy", "random", "exhaustive", "splitfed-best"]))
@settings(max_examples=40, deadline=None)
def test_every_planner_keeps_labels_at_home(problem, planner):
    try:
        plan = solve(problem, planner)
    except PlanError:
        assume(condition=False)
    assert all(client.second_cut or client.mode == "fedavg" for client in plan.clients)
    assert plan.latency >= exact(problem).lower_bound * (1 - 1e-9)


def weak(seed, count):
    """Clients that the server helps a lot."""
    fleet = random_fleet(np.random.default_rng(seed), count)
    return fleet.replace(compute=fleet.compute / 50, up=fleet.up * 9, down=fleet.down * 9)


def many(layers=12, count=30, **session):
    fleet = weak(3, count)
    return Problem(
        network_like(layers),
        fleet,
        Server(3e12),
        Session(epochs=2, labels="stay", **session),
    )


@pytest.mark.parametrize("wires", [Wires(), Wires(up=("fp32", "int8")), Wires(up=("int8", "fp32"))])
def test_pruned_pairs_change_no_plan(monkeypatch, wires):
    blocks = 10
    equal = make_profile(
        [10_000 * k for k in range(1, blocks + 1)],
        [1e6 * k for k in range(1, blocks + 1)],
        [8_000] * blocks,
    )
    problem = many().replace(profile=equal, wires=wires)
    pruned, cells = exact(problem), tables.CutTables.of(problem)
    kept = cells.cuts[tables.undominated(problem, cells)]
    assert np.count_nonzero(kept > blocks) < np.count_nonzero(cells.cuts > blocks) / 3
    monkeypatch.setattr(tables, "_dominated_pairs", lambda problem, table: np.zeros(len(table.cuts), bool))
    full = exact(problem.replace())
    assert full.latency == pytest.approx(pruned.latency, rel=1e-9)
    assert np.allclose(full.shares, pruned.shares, rtol=1e-6)


def test_a_client_may_have_a_word_of_its_own():
    fleet = weak(1, 3).replace(labels={1: "stay"})
    plan = exact(Problem(network_like(8), fleet, Server(9e11), Session(epochs=1)))
    assert [bool(client.second_cut) for client in plan.clients] == [False, True, False]
    other = exact(
        Problem(
            network_like(8), fleet.replace(labels={1: "go"}), Server(9e11), Session(epochs=1, labels="stay")
        )
    )
    assert [bool(client.second_cut) for client in other.clients] == [True, False, True]


def test_labels_that_go_leave_every_plan_as_it_was():
    fleet = weak(1, 5)
    problem = Problem(network_like(8), fleet, Server(9e11), Session(epochs=1))
    mixed = problem.replace(clients=fleet.replace(labels={4: "stay"}))
    alone = [exact(each).clients[0] for each in (problem, mixed)]
    assert alone[0].cut == alone[1].cut
    assert len(problem.places) == 8
    assert len(mixed.places) == 8 + 21


def test_codecs_and_parts_are_priced_at_both_cuts_and_parts_go_in_turn():
    problem = many(micro_batches=4).replace(wires=Wires())
    assert {wire.schedule for wire in problem.options} == {"in turn", "overlapped"}
    plan = exact(problem)
    assert {client.schedule for client in plan.clients if client.second_cut} == {"in turn"}
    with pytest.raises(
        PlanError, match="labels of client 'c1' stay on the device, and then parts go in turn"
    ):
        problem.replace(wires=Wires(schedule=("overlapped",)))
    with pytest.raises(PlanError, match="client 'c2' can use only overlapped parts, but its labels stay"):
        problem.replace(clients=problem.fleet.replace(schedules={1: frozenset({"overlapped"})}))


def test_a_step_drawn_out_takes_as_long_as_a_part_of_the_session():
    problem = many(count=1, micro_batches=3)
    problem = problem.replace(clients=problem.fleet.replace(rtt=0.02, samples=np.array([64])))
    plan = exact(problem)
    client, step = plan.clients[0], timeline(problem, plan, 0)
    assert client.second_cut == step.second_cut > 0
    trained = client.latency - client.phases.model_download - client.phases.model_upload
    assert step.seconds * float(problem.steps.count[0]) == pytest.approx(trained, rel=1e-9)


def test_a_plan_with_pairs_survives_its_file_and_names_both_cuts():
    plan = exact(many())
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert np.array_equal(again.places, plan.places)
    assert "and again after layer" in plan.explain()


def test_old_plans_have_no_second_cut():
    document = exact(
        Problem(network_like(6), random_fleet(np.random.default_rng(0), 2), Server(1e12), Session(epochs=1))
    ).to_json()
    for row in document["clients"]:
        del row["second_cut"]
    assert not Plan.from_json(document).second_cuts.any()


def test_tied_ends_leave_pairs_though_no_single_cut():
    layers = 5
    profile = replace(
        make_profile([8, 16, 24, 32, 40], [1.0, 2.0, 3.0, 4.0, 5.0], [4] * 5, ruled_out={1, 2, 3, 4}),
        shared=(SharedWeight("words", (1, 5), 8, learns=True),),
    )
    problem = Problem(profile, random_fleet(np.random.default_rng(0), 1), Server(1e12), LENGTH)
    allowed = [tuple(map(int, problem.places.cuts(int(place)))) for place in problem.allowed.cuts(0)]
    assert allowed == [(layers, 0), *itertools.combinations(range(1, layers), 2)]
    middle = replace(profile, shared=(SharedWeight("words", (2, 4), 8, learns=True),))
    allowed = problem.replace(profile=middle)
    pairs = [tuple(map(int, allowed.places.cuts(int(place)))) for place in allowed.allowed.cuts(0)]
    assert pairs == [(layers, 0), (1, 4), (2, 3)]
    told = replace(profile, shared=None)
    assert problem.replace(profile=told).allowed.cuts(0).tolist() == [layers]


def test_hand_made_plans_take_pairs():
    problem = many(count=4)
    plan = solve(problem, "splitfed", cut="2-5")
    assert set(zip(plan.cuts.tolist(), plan.second_cuts.tolist(), strict=True)) == {(2, 5)}
    assert plan.outcome == "cuts 2-5 for all"
    own = assemble(problem, "own", 2, problem.server.compute / 4, second_cuts=5)
    assert own.latency == pytest.approx(plan.latency)


@pytest.mark.parametrize(
    ("cut", "sentence"),
    [
        ("5-2", "a pair of cuts has numbers from 1 to 11, the second above the first"),
        ("2-12", "numbers from 1 to 11"),
        (3, "its labels stay, which takes a pair of cuts"),
        ("2-", "a pair such as '2-5' or 'best'"),
    ],
)
def test_a_pair_that_is_none_is_refused(cut, sentence):
    with pytest.raises(PlanError, match=sentence):
        solve(many(count=2), "splitfed", cut=cut)


def test_labels_that_go_take_no_pair():
    problem = many(count=2).replace(session=Session(epochs=1))
    with pytest.raises(PlanError, match=r'needs labels = "stay" in \[session\]'):
        solve(problem, "splitfed", cut="2-5")
    with pytest.raises(PlanError, match="at cuts 2-5, which is not allowed"):
        assemble(problem, "own", 2, 1.0, second_cuts=5)
    with pytest.raises(PlanError, match="alternating cuts a model once"):
        solve(many(count=2), "alternating")


def test_places_and_cuts_are_two_names_of_one_thing():
    places = Places.of(7, pairs=True)
    numbers = np.arange(1, len(places) + 1)
    assert np.array_equal(place_of(*places.cuts(numbers), 7), numbers)
    assert len(set(zip(places.first.tolist(), places.second.tolist(), strict=True))) == len(places)
