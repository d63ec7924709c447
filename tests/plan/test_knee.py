"""The knee of round latency over server compute."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import helped_by_server
from run_folders import coded_problem, small_problem

from cutwater.plan.exact import certified_bound, exact
from cutwater.plan.knee import KNEE, knee, server_curve
from cutwater.plan.problem import Server
from cutwater.plan.session import Wires


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 12), st.integers(0, 100))
def test_at_the_knee_a_server_saves_nine_tenths_of_what_any_could(clients, seed):
    problem = small_problem(clients, seed)
    bend = knee(problem, 1e6, 1e16)
    if bend is None:
        return  # no server helps this fleet
    saved = (bend.without - bend.latency) / (bend.without - bend.floor)
    assert saved >= KNEE - 1e-9
    less = exact(problem.replace(server=Server(bend.compute * 0.99))).latency
    assert (bend.without - less) / (bend.without - bend.floor) < KNEE + 0.01
    assert bend.floor <= bend.latency <= bend.without


def test_there_is_no_knee_outside_of_the_range():
    assert knee(small_problem(), 1e3, 1e4) is None
    assert knee(small_problem(), 1e15, 1e16) is None


def test_where_links_are_shared_the_knee_is_proven_within_an_interval():
    problem = helped_by_server(0, 4)
    bend = knee(problem)
    goal = bend.without - KNEE * (bend.without - bend.floor)
    assert bend.latency == pytest.approx(
        exact(problem.replace(server=Server(bend.compute))).latency, rel=1e-9
    )
    assert bend.floor < bend.latency <= goal * (1 + 1e-9)
    assert bend.at_least >= (1 - 1e-3) * bend.compute
    assert certified_bound(problem.replace(server=Server(bend.at_least * (1 - 1e-6)))) > goal
    assert knee(helped_by_server(0, 51)) is None


def test_the_curve_is_the_exact_planners_and_never_rises():
    problem, computes = small_problem(), [1e8, 1e9, 1e10, 1e11]
    curve = server_curve(problem, computes)
    assert curve == sorted(curve, reverse=True)
    assert curve[2] == pytest.approx(exact(problem.replace(server=Server(1e10))).latency)


def test_no_server_goes_below_the_floor_whichever_wire_is_the_fastest():
    def bend(*codecs: str):
        problem = coded_problem().replace(wires=Wires(up=codecs, schedule=("overlapped",)))
        found = knee(problem, 1e6, 1e14)
        assert found is not None
        curve = server_curve(problem, [1e9, 1e12, 1e15])
        assert min(curve) >= found.floor * (1 - 1e-9)
        assert curve[-1] == pytest.approx(found.floor, rel=1e-3)
        return found

    assert bend("fp32", "int4").floor < bend("fp32").floor
