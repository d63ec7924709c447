"""A Plan: frozen, readable, and the same after a trip through JSON."""

import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import make_profile, network_like, problems, random_problem

from cutwater.base.errors import FileFormatError, PlanError
from cutwater.base.schema import schema_of
from cutwater.base.units import show_seconds
from cutwater.plan.fleet import Client
from cutwater.plan.latency import OVERLAP, PHASES
from cutwater.plan.planners import planners, solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.plan.value import ClientPlan, Plan


def plan(planner="exact", count=6):
    return solve(random_problem(np.random.default_rng(1), network_like(), count), planner)


@settings(deadline=None, max_examples=40)
@given(problem=problems(), planner=st.sampled_from(["exact", "alternating", "greedy", "random"]))
def test_json_brings_back_an_equal_plan(problem, planner):
    original = solve(problem, planner)
    again = Plan.from_json(json.loads(json.dumps(original.to_json(), allow_nan=False)))
    assert again == original
    assert again.latency == original.latency
    assert len(again.trace) == len(original.trace)


def test_json_has_what_programs_look_for():
    document = plan().to_json()
    assert document["format"] == "cutwater.plan"
    assert {"latency", "lower_bound", "planner", "clients"} <= document.keys()
    client = document["clients"][0]
    assert client.keys() == {each.key for each in schema_of(ClientPlan)} - {"rate_up", "rate_down"}
    phases = client["phases"]
    assert tuple(phases) == (*PHASES, OVERLAP)
    assert sum(phases.values()) - 2 * phases[OVERLAP] == pytest.approx(client["latency"])


def spoil(change):
    document = json.loads(json.dumps(plan("alternating").to_json()))
    change(document)
    return document


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.pop("clients"),
        lambda d: d.pop("layers"),
        lambda d: d.update(version=2),
        lambda d: d.update(format="cutwater.profile"),
        lambda d: d.update(clients=[]),
        lambda d: d.update(lower_bound="low"),
        lambda d: d["clients"][0].update(cut=60),
        lambda d: d["clients"][0].update(cut=0),
        lambda d: d["clients"][0].update(mode="magic"),
        lambda d: d["clients"][0].update(share=-1.0),
        lambda d: d["clients"][0].update(share=None),
        lambda d: d["clients"][0]["phases"].pop("server_forward"),
        lambda d: d["clients"][0].update(name=d["clients"][1]["name"]),
        lambda d: d["clients"][0].update(name=7),
        lambda d: d["trace"][0].pop("cuts"),
    ],
)
def test_a_spoiled_plan_is_refused(change):
    with pytest.raises(FileFormatError):
        Plan.from_json(spoil(change))


def test_something_else_is_refused():
    for other in ([], 3, None, {"format": "cutwater.fit"}):
        with pytest.raises(FileFormatError, match=r"'cutwater\.plan' document is needed"):
            Plan.from_json(other)


def test_a_plan_is_frozen():
    one = plan()
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.planner = "mine"
    with pytest.raises(ValueError, match="read-only"):
        one.cuts[0] = 3


def test_a_plan_can_be_sent_to_another_process():
    one = plan()
    assert pickle.loads(pickle.dumps(one)) == one


def test_clients_are_found_by_number_and_name():
    one = plan()
    assert one["c2"] == one[1] == one.clients[1]
    assert one.clients[-1].name == "c6"
    assert [client.name for client in one.clients[1:3]] == ["c2", "c3"]
    with pytest.raises(PlanError, match="no client 'c7'"):
        one["c7"]


def test_it_says_who_is_last_who_shares_and_what_would_help():
    text = plan().explain()
    assert "no plan is faster" in text
    assert "share the server's" in text
    assert "What would help most, each planned anew:" in text
    alone = plan("fedavg").explain()
    assert "No client uses the server; 6 train the whole model." in alone
    assert "The bottleneck is" in alone
    assert "above the optimum" in alone


def test_one_client_shares_and_trains_in_the_singular():
    problem = random_problem(np.random.default_rng(1), network_like(), 1)
    assert "1 of 1 clients shares the server's" in solve(problem).explain()
    assert "; 1 trains the whole model." in solve(problem, "fedavg").explain()


def test_the_advice_is_what_really_helps():
    """Of ten percent more of everything: each number of the sentence is what planning anew finds."""
    problem = random_problem(np.random.default_rng(1), network_like(), 6)
    told = re.findall(r"(10 % [^(]*|a 10 % [^(]*) \(([^)]*) less\)", solve(problem).explain())
    assert len(told) == 3
    fleet, before = problem.fleet, solve(problem).latency
    for what, seconds in told:
        one = 1 + 0.1 * np.array([what.split()[-1] == name for name in fleet.names])
        changed = problem.replace(clients=fleet.replace(compute=fleet.compute * one))
        if "link" in what:
            changed = problem.replace(clients=fleet.replace(up=fleet.up * one, down=fleet.down * one))
        elif "server" in what:
            changed = problem.replace(server=Server(problem.server.compute * 1.1))
        assert seconds == show_seconds(before - solve(changed).latency)


def test_a_plan_that_is_not_the_best_is_told_so():
    problem = random_problem(np.random.default_rng(1), network_like(), 6)
    plan = solve(problem, "fedavg")
    less = show_seconds(plan.latency - solve(problem).latency)
    assert f"What would help most: the exact planner, whose round is {less} shorter." in plan.explain()


def test_ties_among_clients_without_a_share_are_named():
    problem = random_problem(np.random.default_rng(1), network_like(), 1).replace(server=Server(0.0))
    twin = dataclasses.replace(problem.fleet[0], name="twin", rate=None)
    text = solve(problem.replace(clients=[problem.fleet[0], twin])).explain()
    assert "2 clients finish together" in text
    assert "No single change helps" in text


def made(costs, server=1e12, **limits):
    fleet = [Client(name=f"c{k}", compute=k * 1e9, rate=1e7, samples=100, **limits) for k in (1, 2)]
    return Problem(make_profile(**costs), fleet, Server(server), Session(epochs=1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", planners())
def test_a_model_that_costs_nothing_takes_no_time(name):
    result = solve(made({"bits": [0] * 3, "forward": [0.0] * 3, "smashed": [0] * 3}), name)
    assert (result.latency, result.gap) == (0.0, 0.0)
    assert "A round takes 0 s" in result.explain()
    assert "no plan is faster" in result.explain()
    assert "done at once" in result.explain()
    assert result.marginal[0] == 0


@pytest.mark.filterwarnings("error")
def test_a_share_that_nothing_is_computed_with_is_worth_nothing():
    last_is_free = {"bits": [10, 20, 30], "forward": [1e6, 2e6, 2e6], "smashed": [400, 300, 200]}
    result = solve(made(last_is_free, min_cut=2), "splitfed")
    assert (result.shares > 0).all()
    assert result.marginal[0] == 0
    assert result.bottleneck.name == "c1"
    assert "server compute" not in result.explain().splitlines()[-1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("server", [1e-290, 1e300])
def test_numbers_too_far_apart_for_first_order_values_are_no_crash(server):
    costs = {"bits": [100, 200], "forward": [1e6, 2e6], "smashed": [400, 300]}
    per_flops, effect = solve(made(costs, server, forbidden=[2]), "splitfed").marginal
    assert np.isfinite([per_flops, *effect]).all()
