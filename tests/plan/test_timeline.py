"""A step drawn out is as long as the closed form says, and tells what it waits for."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_folders import crossing_profile

from cutwater.base.errors import PlanError
from cutwater.plan.busy import RESOURCES, Busy
from cutwater.plan.exact import exact
from cutwater.plan.fleet import Fleet
from cutwater.plan.latency import overlapped_seconds, session_phases
from cutwater.plan.problem import Problem, Server
from cutwater.plan.schedule import STATIONS
from cutwater.plan.session import Session, Wires, part_sizes
from cutwater.plan.timeline import timeline
from cutwater.plan.value import assemble

PROFILE = crossing_profile()
LAYERS = len(PROFILE)
speeds = st.floats(1e-3, 1e3)


def a_problem(
    *, compute=1e9, up=1e7, down=2e7, rtt=0.0, size=32, parts=4, codec="fp32", schedule="overlapped", count=1
) -> Problem:
    fleet = Fleet.from_columns(compute=compute, up=up, down=down, samples=np.full(count, 10 * size), rtt=rtt)
    session = Session(steps=1, batch_size=size, micro_batches=parts)
    wires = Wires(up=(codec,), down=(codec,), schedule=(schedule,))
    return Problem(PROFILE, fleet, Server(1e12), session, wires)


def a_plan(problem: Problem, cut: int = 3, share: float = 1e10):
    return assemble(problem, "test", cut, share if cut < LAYERS else 0.0)


problems = st.builds(
    a_problem,
    compute=speeds.map(lambda x: x * 1e9),
    up=speeds.map(lambda x: x * 1e7),
    down=speeds.map(lambda x: x * 1e7),
    rtt=st.sampled_from([0.0, 1e-3, 0.3]),
    size=st.integers(16, 37),
    parts=st.integers(1, 16),
    codec=st.sampled_from(["fp32", "int8", "topk"]),
    schedule=st.sampled_from(["in turn", "overlapped"]),
)


@settings(deadline=None)
@given(problems, st.integers(1, LAYERS), speeds)
def test_a_step_takes_what_the_closed_form_says(problem, cut, speed):
    share = speed * 1e9
    step = timeline(problem, a_plan(problem, cut, share), 0)
    phases = session_phases(problem, cut, share if cut < LAYERS else 0.0)
    assert step.seconds == pytest.approx(
        phases.total[0] - phases.model_download[0] - phases.model_upload[0], rel=1e-12
    )
    if step.wire and step.wire.schedule == "overlapped":
        closed = overlapped_seconds(problem, cut, share, slice(None), 0)[0]
        assert step.seconds == pytest.approx(closed, rel=1e-12)


@settings(deadline=None)
@given(problems, st.integers(1, LAYERS), speeds)
def test_no_station_has_two_parts_at_once_and_every_part_passes_all_in_order(problem, cut, speed):
    step = timeline(problem, a_plan(problem, cut, speed * 1e9), "c1")
    assert list(step.sizes) == part_sizes(problem.session.batch_size, problem.session.micro_batches)
    for lane in {stay.lane for stay in step.stays}:
        inside = sorted((stay.begin, stay.end) for stay in step.stays if stay.lane == lane)
        assert all(one[1] <= other[0] for one, other in pairwise(inside))
    stations = ("client_forward", "client_backward") if cut == LAYERS else STATIONS
    for part in range(len(step.sizes)):
        mine = {stay.station: stay for stay in step.stays if stay.part == part}
        assert set(mine) == set(stations)
        for one, other in pairwise(stations):
            assert mine[other].begin >= mine[one].arrives
        if cut < LAYERS:
            for link in ("smashed_upload", "gradient_download"):
                assert mine[link].arrives - mine[link].end == pytest.approx(step.rtt / 2, abs=1e-9)


@settings(deadline=None)
@given(problems, st.integers(1, LAYERS), speeds)
def test_the_longest_path_is_the_whole_step(problem, cut, speed):
    step = timeline(problem, a_plan(problem, cut, speed * 1e9), 0)
    assert sum(step.critical.values()) == pytest.approx(step.seconds, rel=1e-9)
    assert step.critical[step.waits_for] == max(step.critical.values())


@pytest.mark.parametrize("schedule", ["in turn", "overlapped"])
@pytest.mark.parametrize(
    ("slow", "share", "word"),
    [
        ({"compute": 1e6}, 1e11, "client"),
        ({"up": 1e4}, 1e11, "link up"),
        ({"down": 1e4}, 1e11, "link down"),
        ({}, 1e6, "server"),
        ({"rtt": 1e3}, 1e11, "round trip"),
    ],
)
def test_a_step_and_its_session_wait_for_what_is_slow(schedule, slow, share, word):
    problem = a_problem(**slow, schedule=schedule)
    plan = a_plan(problem, 3, share)
    assert timeline(problem, plan, 0).waits_for == word
    assert Busy.of(plan["c1"].phases).waits_for == word


def test_parts_in_turn_wait_for_a_round_trip_each_and_overlapped_ones_for_one():
    for schedule, trips in (("in turn", 4), ("overlapped", 1)):
        problem = a_problem(rtt=100.0, schedule=schedule)
        assert timeline(problem, a_plan(problem), 0).critical["round trip"] == 100.0 * trips


def test_overlapped_parts_are_at_different_stations_at_the_same_time():
    lanes = {}
    for schedule in ("in turn", "overlapped"):
        problem = a_problem(schedule=schedule)
        step = timeline(problem, a_plan(problem), 0)
        first, second = (
            next(s for s in step.stays if (s.part, s.station) == (part, "client_forward")) for part in (0, 1)
        )
        lanes[schedule] = (second.begin == first.end, step.seconds)
    assert lanes["overlapped"][0]
    assert not lanes["in turn"][0]
    assert lanes["overlapped"][1] < lanes["in turn"][1]


def test_the_whole_model_goes_forward_and_backward_part_by_part_on_the_client():
    problem = a_problem(rtt=5.0)
    step = timeline(problem, a_plan(problem, LAYERS), 0)
    assert step.wire is None
    assert [(stay.part, stay.station) for stay in step.stays[:3]] == [
        (0, "client_forward"),
        (0, "client_backward"),
        (1, "client_forward"),
    ]
    assert step.waits_for == "client"
    assert step.critical["round trip"] == 0


def test_a_client_with_fewer_samples_than_a_mini_batch_has_its_only_one_drawn():
    fleet = Fleet.from_columns(compute=1e9, up=1e7, down=1e7, samples=[7])
    problem = Problem(PROFILE, fleet, Server(1e12), Session(epochs=2, batch_size=32, micro_batches=4))
    assert timeline(problem, a_plan(problem), 0).sizes == (2, 2, 2, 1)


def test_busy_seconds_are_the_phases_by_who_works_and_columns_agree_with_clients():
    problem = a_problem(compute=np.geomspace(1e7, 1e12, 9), rtt=np.geomspace(1e-3, 9, 9), count=9)
    plan = exact(problem)
    places = Busy.of(plan.phases).places
    for k, client in enumerate(plan.clients):
        one, phases = Busy.of(client.phases), client.phases
        assert sum(one) == pytest.approx(sum(phases))
        assert sum(one) - phases.overlap == pytest.approx(client.latency)
        assert one.link_up == phases.smashed_upload + phases.model_upload
        assert one.waits_for == RESOURCES[places[k]]
        assert one.named()[one.waits_for] == max(one)


def test_the_client_is_asked_for_by_name_or_place_and_must_be_there():
    problem = a_problem()
    plan = a_plan(problem)
    assert timeline(problem, plan, "c1") == timeline(problem, plan, 0)
    with pytest.raises(PlanError, match="no client 'c2'"):
        timeline(problem, plan, "c2")
    with pytest.raises(PlanError, match="no option of this problem"):
        timeline(a_problem(codec="int8"), plan, "c1")
