"""Cuts and shares planned anew on what is left: as good as trying all, and no more moves than pay."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import make_profile

from cutwater.plan.again import Rest, plan_again, whole_sessions
from cutwater.plan.fleet import Client
from cutwater.plan.moving import WORTH, Pace, plan_cuts, soonest, ways
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires

SECONDS, FLOPS = st.floats(0.0, 100.0), st.floats(0.1, 1e3)


@st.composite
def choices(draw):
    """A few sessions with a few cuts each, in turn or of several lines, some without work."""
    found = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        some = []
        for _ in range(draw(st.integers(1, 3))):
            lines = draw(st.lists(st.tuples(SECONDS, st.one_of(FLOPS, st.just(0.0))), min_size=1, max_size=2))
            away, work = zip(*lines, strict=True)
            some.append(Rest(name, away, work, draw(SECONDS)))
        found.append(some)
    return found


def tried(some, compute):
    """The soonest end of all combinations."""
    return min(plan_again(list(each), compute).seconds for each in product(*some))


@settings(deadline=None, max_examples=60)
@given(choices(), st.floats(1.0, 1e3))
def test_the_soonest_end_is_that_of_the_best_of_all_combinations(some, compute):
    assert soonest(some, compute) == pytest.approx(tried(some, compute), rel=1e-6, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(choices(), st.floats(1.0, 1e3))
def test_cuts_move_only_where_it_pays_and_then_as_well_as_can_be(some, compute):
    again, chosen = plan_cuts(some, compute)
    best, stay = tried(some, compute), plan_again([one[0] for one in some], compute).seconds
    assert sum(again.shares.values()) <= compute * (1 + 1e-9)
    if any(chosen):
        assert again.seconds <= 1.01 * best * (1 + 1e-6)
        assert again.seconds < (1 - WORTH) * stay * 1.011
    else:
        assert again.seconds == stay
        assert stay * (1 - WORTH) <= best * 1.011


def test_who_need_not_move_for_it_stays():
    slow = [Rest("slow", (100.0,), (10.0,)), Rest("slow", (10.0,), (10.0,), 5.0)]
    quick = [Rest("quick", (5.0,), (10.0,)), Rest("quick", (4.9,), (9.0,))]
    again, chosen = plan_cuts([slow, quick], 10.0)
    assert chosen == [1, 0]
    assert again.seconds < 20.0


PROFILE = make_profile([1_000, 3_000, 4_000, 10**12], [1e6, 2e6, 3e6, 1e8], [8_000, 800, 4_000, 80])
FLEET = [Client(name=n, compute=1e7, up=1e5, down=2e5, samples=10, steps=40, rtt=0.01) for n in "ab"]


def planned(**how):
    return solve(Problem(PROFILE, FLEET, Server(1e9), Session(steps=1, batch_size=10, **how)))


def test_the_way_at_its_own_cut_is_the_session_as_planned():
    plan = planned()
    found, whole = ways(plan, {"a": [1, 2, 3], "b": []}), whole_sessions(plan)["a"]
    assert set(found) == {"a"}
    rest = found["a"].rest(plan["a"].cut, 1.0, Pace())
    assert rest.away == pytest.approx(whole.away)
    assert rest.work == pytest.approx(whole.work)
    assert rest.besides == pytest.approx(plan["a"].phases.model_upload)
    half = found["a"].rest(plan["a"].cut, 0.5, Pace())
    assert half.away[0] == pytest.approx(0.5 * rest.away[0])


def test_a_way_at_another_cut_is_the_session_planned_there():
    plan = planned()
    found = ways(plan, {"a": [1, 2, 3]})["a"]
    for cut in (1, 2, 3):
        fleet = [replace(FLEET[0], min_cut=cut, forbidden=frozenset({1, 2, 3, 4} - {cut})), FLEET[1]]
        there = solve(Problem(PROFILE, fleet, Server(1e9), Session(steps=1, batch_size=10)))
        assert there["a"].cut == cut
        assert found.rest(cut, 1.0, Pace()).away == pytest.approx(whole_sessions(there)["a"].away)
        assert found.rest(cut, 1.0, Pace()).work == pytest.approx(whole_sessions(there)["a"].work)


def test_a_move_takes_its_layers_with_what_the_optimizer_keeps_over_the_link():
    problem = Problem(replace(PROFILE, optimizer="adam"), FLEET, Server(1e9), Session(steps=1, batch_size=10))
    found = ways(solve(problem), {"a": [1, 2, 3]})["a"]
    assert found.transfer(1, 3, Pace()) == pytest.approx(3 * 3_000 / 2e5)
    assert found.transfer(3, 1, Pace(up=4.0)) == pytest.approx(4 * 3 * 3_000 / 1e5)
    assert found.transfer(2, 2, Pace()) == 0.0


SLOWER = st.floats(1.0, 20.0)


@settings(deadline=None, max_examples=30)
@given(SLOWER, SLOWER, st.floats(0.05, 1.0), st.sampled_from([1, 2, 3]))
def test_what_is_slow_is_found_from_the_time_away_and_the_rate_that_was_seen(device, link, part, cut):
    found = ways(planned(), {"a": [1, 2, 3]})["a"]
    for pace in (Pace(device=device), Pace(up=link, down=link)):
        rest = found.rest(cut, part, pace)
        seen = found.seen(cut, part, rest.away[0], 1e5 / pace.up, None)
        assert (seen.device, seen.up, seen.down) == pytest.approx((pace.device, pace.up, pace.down))
    both = Pace(device, link, link)
    rest = found.rest(cut, part, both)
    seen = found.seen(cut, part, rest.away[0], 1e5 / link, None)
    assert found.rest(cut, part, seen).away == pytest.approx(rest.away), "all of the time is accounted for"
    assert seen.device <= device * (1 + 1e-9)
    assert link * (1 - 1e-9) <= seen.up <= 1.5 * link, "and the link is slower than seen by half at most"


@settings(deadline=None, max_examples=30)
@given(st.floats(2.0, 20.0), st.floats(0.75, 1.0), st.sampled_from([1, 2, 3]))
def test_a_slow_link_that_was_seen_a_little_too_fast_does_not_make_its_device_seem_slow(link, hidden, cut):
    found = ways(planned(), {"a": [1, 2, 3]})["a"]
    away = found.rest(cut, 0.5, Pace(up=link, down=link)).away[0]
    seen = found.seen(cut, 0.5, away, 1e5 / (1 + hidden * (link - 1)), None)
    assert (seen.device, seen.up, seen.down) == pytest.approx((1.0, link, link))


def test_a_link_that_is_slow_one_way_is_seen_as_that_and_its_device_as_believed():
    found = ways(planned(), {"a": [1, 2, 3]})["a"]
    away = found.rest(1, 0.5, Pace(up=10.0)).away[0]
    assert found.seen(1, 0.5, away, 1e4, None) == Pace(1.0, 10.0, pytest.approx(1.0))
    away = found.rest(1, 0.5, Pace(down=10.0)).away[0]
    assert found.seen(1, 0.5, away, 1e5, 2e4) == Pace(1.0, 1.0, pytest.approx(10.0))


def test_a_link_that_buffers_make_look_fast_is_as_believed():
    found = ways(planned(), {"a": [1, 2, 3]})["a"]
    away = found.rest(1, 0.5, Pace()).away[0]
    assert found.seen(1, 0.5, away, 1e12, 1e12) == Pace(1.0, 1.0, pytest.approx(1.0))


def test_sessions_whose_parts_overlap_have_no_other_way_nor_any_that_its_client_may_not_have():
    session = Session(steps=1, batch_size=10, micro_batches=2)
    for schedule, some in (("overlapped", set()), ("in turn", {"a"})):
        problem = Problem(PROFILE, FLEET, Server(1e9), session, Wires(schedule=(schedule,)))
        assert set(ways(solve(problem), {"a": [1, 2, 3]})) == some
    forbidden = [replace(one, forbidden=frozenset({2, 3})) for one in FLEET]
    problem = Problem(PROFILE, forbidden, Server(1e9), Session(steps=1, batch_size=10))
    assert not ways(solve(problem), {"a": [1, 2, 3]})
    assert np.all(solve(problem).cuts == 1)
