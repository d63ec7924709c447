"""All planners through their one interface."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import alone, make_profile, network_like, problems, random_problem

from cutwater.base.errors import PlanError
from cutwater.plan import planners as registry
from cutwater.plan.baselines import fedavg, greedy, random, splitfed
from cutwater.plan.exact import exact
from cutwater.plan.fleet import Client
from cutwater.plan.latency import latency, whole_model_latency
from cutwater.plan.planners import planners, register, solve, solve_by
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.plan.value import assemble

BUILT_IN = ("exact", "alternating", "fedavg", "splitfed", "splitfed-best", "greedy", "random", "exhaustive")


@settings(deadline=None, max_examples=200)
@given(problem=problems(max_clients=4), name=st.sampled_from(BUILT_IN))
def test_no_planner_is_ever_below_its_lower_bound_or_beyond_the_limits(problem, name):
    try:
        plan = solve(problem, name)
    except PlanError:
        assert name in ("fedavg", "splitfed", "splitfed-best", "exhaustive")  # these may have no plan at all
        return
    assert 0 < plan.lower_bound <= plan.latency
    assert plan.lower_bound == pytest.approx(exact(problem).latency, rel=1e-9)
    assert plan.shares.sum() <= problem.server.compute * (1 + 1e-9)
    assert all(client.cut in problem.allowed.cuts(k) for k, client in enumerate(plan.clients))
    assert plan.latencies == pytest.approx(latency(problem, plan.cuts, plan.shares))


def paper_like(count=6, seed=0):
    return random_problem(np.random.default_rng(seed), network_like(), count)


def test_fedavg_is_the_whole_model_everywhere():
    problem = paper_like()
    plan = fedavg(problem)
    assert plan.latencies == pytest.approx(whole_model_latency(problem))
    assert {client.mode for client in plan.clients} == {"fedavg"}


def test_fedavg_names_the_client_that_cannot():
    small = Client(name="tiny", compute=1e10, rate=1e7, samples=10, forbidden=[59])
    problem = Problem(network_like(), [*paper_like().fleet, small], Server(1e12), Session(epochs=1))
    with pytest.raises(PlanError, match="FedAvg needs cut 59 for every client, but client 'tiny' can't"):
        fedavg(problem)


def test_splitfed_cuts_all_alike_and_shares_equally():
    problem = paper_like()
    plan = splitfed(problem, cut=12)
    assert (plan.cuts == 12).all()
    assert plan.shares == pytest.approx(problem.server.compute / 6)
    assert splitfed(problem).cuts[0] == 1
    best = solve(problem, "splitfed", cut="best")
    assert best.latency == pytest.approx(min(splitfed(problem, cut=cut).latency for cut in range(1, 59)))
    assert best.latency == solve(problem, "splitfed-best").latency


@pytest.mark.parametrize("cut", [0, 59, 60, 2.5, "worst"])
def test_splitfed_refuses_a_cut_that_is_none(cut):
    with pytest.raises(PlanError, match=f"cut is {cut!r}"):
        splitfed(paper_like(), cut=cut)


def test_splitfed_says_why_the_model_has_no_such_cut():
    tied = make_profile([1, 2, 3], [1e6, 2e6, 3e6], [9, 9, 9], ruled_out=[2])
    with pytest.raises(PlanError, match="client 'c1' can't use it: tied parameters"):
        splitfed(paper_like().replace(profile=tied), cut=2)


def test_splitfed_needs_a_cut_that_all_may_use():
    shy = Client(name="shy", compute=1e10, rate=1e7, samples=10, min_cut=20)
    problem = Problem(network_like(), [*paper_like().fleet, shy], Server(1e12), Session(epochs=1))
    assert splitfed(problem).cuts[0] == 20
    with pytest.raises(PlanError, match="client 'shy' can't use it"):
        splitfed(problem, cut=5)
    whole = Client(name="whole", compute=1e10, rate=1e7, samples=10, min_cut=59)
    with pytest.raises(PlanError, match="in common"):
        splitfed(problem.replace(clients=[shy, whole]))
    with pytest.raises(PlanError, match="0 FLOPS"):
        splitfed(paper_like().replace(server=Server(0.0)))


def test_greedy_lands_between_fedavg_and_the_optimum():
    for seed in range(10):
        problem = paper_like(8, seed)
        assert exact(problem).latency <= greedy(problem).latency <= fedavg(problem).latency


def test_greedy_with_finer_portions_comes_closer():
    problem = paper_like(8)
    coarse, fine = greedy(problem, portions=20), greedy(problem, portions=2000)
    assert fine.latency <= coarse.latency
    assert fine.latency == pytest.approx(exact(problem).latency, rel=0.01)
    with pytest.raises(PlanError, match="portions is 0"):
        greedy(problem, portions=0)


def test_random_plans_repeat_with_their_seed():
    problem = paper_like()
    assert random(problem, seed=4) == random(problem, seed=4)
    assert random(problem, seed=4) != random(problem, seed=5)
    assert random(problem, seed=4).shares.sum() == pytest.approx(problem.server.compute)


def test_exhaustive_refuses_what_would_take_forever():
    with pytest.raises(PlanError, match="exhaustive tries at most"):
        solve(paper_like(), "exhaustive")


def whole_or_first(problem, *, share=1.0):
    """A user's planner: the first client gets the server, the rest nothing."""
    shares = np.zeros(len(problem))
    shares[0] = problem.server.compute * share
    cuts = np.full(len(problem), problem.layers)
    cuts[0] = problem.allowed.cuts(0)[0]
    return assemble(problem, "mine", cuts, shares)


@pytest.fixture
def clean_registry(monkeypatch):
    monkeypatch.setattr(registry, "_PLANNERS", dict(registry._PLANNERS))


def test_users_can_register_a_planner(clean_registry):
    register("mine", whole_or_first)
    assert "mine" in planners()
    plan = solve(paper_like(), "mine", share=0.5)
    assert plan.planner == "mine"
    assert plan.lower_bound > 0
    with pytest.raises(PlanError, match="there is a planner 'mine' already"):
        register("mine", whole_or_first)


def test_an_installed_package_can_bring_a_planner(tmp_path, monkeypatch):
    (tmp_path / "brought_planner.py").write_text(
        "from cutwater.plan.value import assemble\n"
        "def brought(problem):\n"
        "    return assemble(problem, 'brought', problem.layers, 0.0)\n"
    )
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[cutwater.planners]\nbrought = brought_planner:brought\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert "brought" in planners()
    assert solve(paper_like(), "brought").latency == fedavg(paper_like()).latency


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "import nothing_of_this_name",
            r"can't be imported \(ModuleNotFoundError: .*, at .*broken_planner\.py:1",
        ),
        ("planned = 3", "is 3, but must be a function of a Problem"),
        ("other = 3", r"can't be imported \(AttributeError: "),
        ("planned = min", r"does not tell what it takes \(ValueError: "),
        ("def planned(): pass", "takes nothing, but must be a function of a Problem"),
    ],
)
def test_an_installed_planner_that_is_none_is_told_of_in_a_sentence(tmp_path, monkeypatch, code, sentence):
    (tmp_path / "broken_planner.py").write_text(code + "\n")
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[cutwater.planners]\nbroken = broken_planner:planned\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "broken_planner", raising=False)
    with pytest.raises(PlanError, match=f"^planner 'broken' {sentence}"):
        solve(paper_like(), "broken")


def test_an_unknown_planner_is_refused_with_a_suggestion():
    with pytest.raises(PlanError, match="there is no planner 'exakt': did you mean 'exact'"):
        solve(paper_like(), "exakt")


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("option", ["problem", "planner", "name", "speed"])
def test_an_unknown_option_is_refused_by_name(name, option):
    with pytest.raises(PlanError, match=f"planner '{name}' has no option '{option}'"):
        solve_by(paper_like(), name, {option: 1})


def test_the_planner_may_be_named_by_position_or_by_name():
    problem = paper_like()
    assert (
        solve(problem, planner="fedavg").latency
        == solve(problem, "fedavg").latency
        == fedavg(problem).latency
    )


def test_an_option_that_is_nearly_right_is_refused_with_a_suggestion():
    with pytest.raises(PlanError, match="no option 'portion': did you mean 'portions'"):
        solve(paper_like(), "greedy", portion=3)
    with pytest.raises(PlanError, match="'fedavg' has no option 'cut': it takes none"):
        solve(paper_like(), "fedavg", cut=3)


def test_a_planner_of_any_options_gets_them_all_but_not_another_problem(clean_registry):
    register("any", lambda problem, **options: whole_or_first(problem, share=options["part"]))
    assert solve(paper_like(), "any", part=0.5).planner == "mine"
    with pytest.raises(PlanError, match="planner 'any' has no option 'problem'"):
        solve(paper_like(), "any", problem=1)


def test_a_mistake_inside_a_planner_is_told_with_file_and_line_and_not_blamed_on_its_options(clean_registry):
    register("broken", lambda problem: whole_or_first(problem, speed=1))
    with pytest.raises(
        PlanError, match=r"'broken' failed \(TypeError: .*'speed', at .*test_planners\.py:\d+"
    ):
        solve(paper_like(), "broken")


COUNTS = [("random", "seed"), ("greedy", "portions"), ("alternating", "iterations"), ("splitfed", "cut")]


@pytest.mark.parametrize(("name", "option"), COUNTS)
@pytest.mark.parametrize("value", [-1, 1.5, 2.0, True, "x", [1], float("nan"), 10**30])
def test_an_option_that_is_no_whole_number_is_refused(name, option, value):
    with pytest.raises(PlanError, match=rf"{option} is .* but must be a whole number from [01] to [\d,]+"):
        solve(paper_like(), name, **{option: value})


@pytest.mark.parametrize(("name", "option"), COUNTS[:3])
def test_an_option_that_counts_can_not_be_nothing(name, option):
    with pytest.raises(PlanError, match=f"{option} is None"):
        solve(paper_like(), name, **{option: None})


@pytest.mark.parametrize(("name", "option"), COUNTS)
def test_whole_numbers_of_numpy_are_whole_numbers(name, option):
    plain, numpy = (solve(paper_like(), name, **{option: kind(3)}) for kind in (int, np.int64))
    assert plain == numpy


def test_portions_that_would_not_fit_into_memory_are_refused():
    with pytest.raises(PlanError, match=r"portions is 10000000000, but .* from 1 to 100,000"):
        greedy(paper_like(), portions=10**10)


@pytest.mark.parametrize(
    ("cuts", "shares", "message"),
    [
        (0, 1.0, "gave client 'c1' cut 0"),
        (60, 1.0, "gave client 'c1' cut 60"),
        (3, -1.0, "gave client 'c1' share -1.0"),
        (3, float("nan"), "gave client 'c1' share nan"),
        (3, 1e15, "shares out 6 PFLOPS, but the server has"),
        (3, 0.0, "gave client 'c1' share 0.0 at cut 3, so it would never be done"),
        (3, 1e-300, "gave client 'c1' share 1e-300 at cut 3, so it would never be done"),
    ],
)
def test_a_planner_that_breaks_the_rules_is_found_out(cuts, shares, message):
    with pytest.raises(PlanError, match=message):
        assemble(paper_like(), "mine", cuts, shares)


def test_the_reference_for_waiting_alone_agrees():
    problem = paper_like()
    assert [alone(problem, k) for k in range(6)] == pytest.approx(whole_model_latency(problem))


def test_splitfed_says_that_it_is_the_model_which_can_not_be_cut():
    one = Client(name="one", compute=1e10, rate=1e7, samples=10)
    tied = make_profile([10, 20, 30], [1e6, 2e6, 3e6], [5, 5, 0], ruled_out=(1, 2))
    with pytest.raises(PlanError, match="'made' can't be cut anywhere: tied parameters"):
        solve(Problem(tied, [one], Server(1e9), Session(epochs=1)), "splitfed")
    single = make_profile([10], [1e6], [0])
    with pytest.raises(PlanError, match="'made' has one layer and can't be cut"):
        solve(Problem(single, [one], Server(1e9), Session(epochs=1)), "splitfed")


def test_a_planner_must_be_a_function_that_returns_a_plan(clean_registry):
    with pytest.raises(PlanError, match="planner 'three' is 3, but must be a function of a Problem"):
        register("three", 3)
    register("none", lambda problem: None)
    with pytest.raises(PlanError, match="planner 'none' returned NoneType, but must return a Plan"):
        solve(paper_like(), "none")


@pytest.mark.parametrize("cuts", [1.5, [1, 2, 3, 4, 5, float("nan")]])
def test_a_cut_that_is_no_whole_number_is_refused_and_not_rounded(cuts):
    problem = paper_like()
    with pytest.raises(PlanError, match=r"gave a client cut (1\.5|nan), but a cut is a whole number"):
        assemble(problem, "own", cuts, 1e9)


def test_among_those_at_the_optimum_exact_comes_first_and_those_without_a_plan_last():
    rows = [("none", None, None), ("slow", 12.0, 0.2), ("ulp below", 10.0 - 2e-15, 0.0), ("exact", 10.0, 0.0)]
    ranked = sorted((registry.PlannerResult(*row) for row in rows), key=registry.standing)
    assert [result.planner for result in ranked] == ["exact", "ulp below", "slow", "none"]
