"""A Plan: frozen, readable, and the same after a trip through JSON."""

import dataclasses
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import network_like, problems, random_problem

from cutwater.errors import FileFormatError, PlanError
from cutwater.plan.latency import PHASES
from cutwater.plan.planners import solve
from cutwater.plan.problem import Server
from cutwater.plan.value import Plan


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
    assert set(client) == {"name", "cut", "share", "mode", "latency", "phases"}
    assert tuple(client["phases"]) == PHASES
    assert sum(client["phases"].values()) == pytest.approx(client["latency"])


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
    assert "What would help most:" in text
    alone = plan("fedavg").explain()
    assert "No client uses the server; 6 train the whole model." in alone
    assert "The bottleneck is" in alone
    assert "above the optimum" in alone


def test_the_advice_is_what_really_helps():
    """Ten percent more server: the sentence's estimate is close to what re-planning finds."""
    problem = random_problem(np.random.default_rng(1), network_like(), 6)
    before = solve(problem)
    per_flops, _ = before.marginal
    more = solve(problem.replace(server=Server(problem.server.compute * 1.01)))
    assert before.latency - more.latency == pytest.approx(per_flops * problem.server.compute * 0.01, rel=0.05)


def test_ties_among_clients_without_a_share_are_named():
    problem = random_problem(np.random.default_rng(1), network_like(), 1)
    twin = dataclasses.replace(problem.fleet[0], name="twin", rate=None)
    text = solve(problem.replace(clients=[problem.fleet[0], twin]), "fedavg").explain()
    assert "2 clients finish together" in text
    assert "No single change helps" in text
