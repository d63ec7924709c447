"""Shares planned anew on what is left: never worse than what there was, and as good as can be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_events import overlapped_events
from wire_cases import crossing_profile, random_client

from cutwater.plan.again import Rest, plan_again, seconds_by, whole_sessions
from cutwater.plan.fleet import SCHEDULES
from cutwater.plan.latency import latency
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.schedule import overlapped_lines
from cutwater.plan.session import Session, Wires

SECONDS, FLOPS = st.floats(0.0, 100.0), st.floats(0.1, 1e3)
LINE = st.tuples(SECONDS, FLOPS)


@st.composite
def rests(draw: st.DrawFn) -> list[Rest]:
    """Sessions in turn, with one line, and overlapped, with several, of which some need no server."""
    lines = draw(st.lists(st.lists(LINE, min_size=1, max_size=4), min_size=1, max_size=7))
    found = []
    for number, mine in enumerate(lines):
        idle = [(away, 0.0) for away in draw(st.lists(SECONDS, max_size=1))]
        away, work = zip(*mine, *idle, strict=True)
        found.append(Rest(f"c{number}", away, work, draw(SECONDS)))
    return found


def bisected(some: list[Rest], compute: float) -> float:
    """The soonest end by an independent solver: by T each needs a share that is found by bisection, too."""

    def need(rest: Rest, end: float) -> float:
        low, high = 0.0, compute
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if rest.seconds(middle) <= end else (middle, high)
        return high

    low, high = 0.0, max(rest.seconds(compute / len(some)) for rest in some)
    for _ in range(40):
        middle = 0.5 * (low + high)
        enough = all(rest.seconds(compute) <= middle for rest in some)
        enough = enough and sum(need(rest, middle) for rest in some) <= compute
        low, high = (low, middle) if enough else (middle, high)
    return high


@settings(deadline=None, max_examples=30)
@given(rests(), st.floats(1.0, 1e3))
def test_the_end_is_the_soonest_there_is(some, compute):
    assert plan_again(some, compute).seconds == pytest.approx(bisected(some, compute), rel=1e-6, abs=1e-6)


def test_next_to_no_time_away_is_no_fault():
    least = float(np.finfo(float).tiny)
    again = plan_again([Rest(name="c0", away=(0.0, least), work=(4.0, 1.0), besides=0.0)], 1.0)
    assert again.seconds == pytest.approx(4.0)


@settings(deadline=None)
@given(rests(), st.floats(1.0, 1e3), st.data())
def test_it_is_never_worse_than_keeping_the_shares_and_gives_no_more_than_there_is(some, compute, data):
    old = {rest.name: data.draw(st.floats(0.01, 100.0)) for rest in some}
    again = plan_again(some, compute)
    assert sum(again.shares.values()) <= compute * (1 + 1e-9)
    assert max(rest.seconds(again.shares[rest.name]) for rest in some) <= again.seconds * (1 + 1e-9)
    assert seconds_by(some, again.shares, compute) <= again.seconds * (1 + 1e-9)
    assert again.seconds <= seconds_by(some, old, compute) * (1 + 1e-9)


@settings(deadline=None)
@given(rests(), st.floats(0.0, 20.0), st.floats(0.1, 100.0), st.data())
def test_how_much_slower_a_session_was_is_found_from_two_clocks(some, slower, share, data):
    rest = some[0].slower(1.0)
    whole = max(rest.work)
    took = Rest("c", rest.slower(slower).away, rest.work).seconds(share)
    found = rest.slowness(took, whole / share)
    again = Rest("c", rest.slower(found).away, rest.work).seconds(share)
    assert again == pytest.approx(took, rel=1e-9, abs=1e-9)


def test_a_session_that_needs_no_server_is_given_nothing_and_one_alone_everything():
    again = plan_again([Rest("idle", (5.0,), (0.0,)), Rest("busy", (1.0,), (8.0,))], 2.0)
    assert (again.seconds, again.shares) == (pytest.approx(5.0), {"idle": 0.0, "busy": 2.0})


STATIONS = st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 1.0)), min_size=5, max_size=5)
"""Seconds of the larger parts at each station, and how much of that the smaller ones take."""


@settings(deadline=None)
@given(STATIONS, st.integers(1, 5), st.integers(0, 5), st.floats(0, 3.0), st.floats(0.1, 10.0))
def test_the_longest_line_of_an_overlapped_step_is_the_step_as_it_happens(stations, n1, n2, rtt, share):
    larger = [seconds for seconds, _ in stations]
    smaller = [seconds * part if n2 else 0.0 for seconds, part in stations]
    columns = [[np.array(one) for one in side] for side in (larger, smaller)]
    away, work = overlapped_lines(*columns, (np.array(float(n1)), np.array(float(n2))), np.array(rtt))
    at_server = [[*side[:2], side[2] / share, *side[3:]] for side in (larger, smaller)]
    events = overlapped_events([at_server[0]] * n1 + [at_server[1]] * n2, rtt)
    assert (away + work / share).max() == pytest.approx(events)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("seed", range(8))
def test_before_a_round_what_is_left_is_the_plan(schedule, micro_batches, seed):
    rng = np.random.default_rng(seed)
    profile = crossing_profile(rng, 4)
    fleet = [replace(random_client(rng, f"c{k}", profile), steps=3, epochs=None) for k in range(4)]
    session = Session(steps=3, batch_size=12, micro_batches=micro_batches)
    problem = Problem(profile, fleet, Server(1e9), session, Wires(schedule=(schedule,)))
    plan = solve(problem)
    sessions, split = whole_sessions(plan), np.flatnonzero(plan.cuts < plan.layers)
    assert set(sessions) == {plan.names[k] for k in split}
    for share in (1e7, 7e9):
        seconds = latency(problem, plan.places, share, wires=plan.wires)
        for k in split:
            assert sessions[plan.names[k]].seconds(share) == pytest.approx(seconds[k])
    if split.size:
        again = plan_again(list(sessions.values()), problem.server.compute)
        # Who trains the whole model is left out, and may be slower than all of them.
        assert again.seconds <= plan.latency * (1 + 1e-9)
        if again.seconds >= plan.latency * (1 - 1e-9) and plan.shares.sum() >= 1e9 * (1 - 1e-9):
            assert dict(again.shares) == pytest.approx({plan.names[k]: plan.shares[k] for k in split})
