"""What the planner believes of clients."""

import json
import math
from dataclasses import astuple, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutwater.federate.conditions import Condition, Conditions
from cutwater.federate.estimates import Estimate, Estimates, robust_average
from cutwater.plan.fleet import Client
from cutwater.scenario.settings import ConditionSettings

CLIENT = Client(name="c1", compute=100e9, up=32e6, down=64e6, samples=10)
SAID = Condition(100e9, 32e6, 64e6)
FAST = Condition(200e9, 64e6, 128e6)
positive = st.floats(1e-6, 1e18)


def after(estimates, *observed):
    for condition in observed:
        estimates = estimates.after([(CLIENT, condition)])
    return estimates


def believed(estimates, *observed):
    return after(estimates, *observed).believed(CLIENT)


def test_estimates_start_from_the_scenario_and_follow_their_kind():
    assert Estimates("average").believed(CLIENT) == SAID
    assert believed(Estimates("nominal"), FAST) == SAID
    assert believed(Estimates("last"), FAST, SAID, FAST) == FAST
    once = believed(Estimates("average", 0.5), FAST)
    assert once.compute == pytest.approx(math.sqrt(2) * SAID.compute)
    assert believed(Estimates("average", 0.5), *[FAST] * 30).up == pytest.approx(FAST.up)


@pytest.mark.parametrize("smoothing", [0.1, 0.3, 1.0])
def test_what_is_settled_follows_by_the_robust_average(smoothing):
    settled = after(Estimates("average", smoothing), SAID, SAID)
    for rounds in (1, 2, 3):
        before, settled = settled.believed(CLIENT), after(settled, FAST)
        found = settled.believed(CLIENT)
        assert found.up == pytest.approx(robust_average(before.up, FAST.up, smoothing)), rounds


@pytest.mark.parametrize("kind", ["nominal", "true"])
def test_whoever_does_not_learn_remembers_nothing(kind):
    assert after(Estimates(kind), FAST, FAST) == Estimates(kind)


def test_an_oracle_knows_the_truth_and_nobody_else_does():
    def conditions(estimate):
        return Conditions.of(ConditionSettings(change="jitter", estimate=estimate), 7)

    truth = conditions("true")
    assert Estimates.of(truth.settings).in_round(truth, CLIENT, 5) == truth.true(CLIENT, 5)
    assert Estimates.of(conditions("average").settings).in_round(truth, CLIENT, 5) == SAID


@settings(deadline=None)
@given(positive, st.floats(1e-320, 1e308), st.floats(0.01, 1.0))
@example(before=9e12, observed=2e-311, smoothing=1.0)
def test_no_observation_moves_a_robust_average_more_than_threefold(before, observed, smoothing):
    found = robust_average(before, observed, smoothing)
    assert before / 3.0001 <= found <= before * 3.0001


@settings(deadline=None)
@given(positive, positive)
def test_a_robust_average_arrives_at_what_lasts(before, lasting):
    value = before
    for _ in range(400):
        value = robust_average(value, lasting, 0.3)
    assert value == pytest.approx(lasting, rel=1e-9)


@settings(deadline=None)
@given(positive, positive, positive)
def test_of_the_scenario_and_the_first_two_observations_the_middle_one_is_believed(said, first, second):
    once = Estimate.said(said).after(first, 0.3)
    assert once.value == pytest.approx(tenfold(math.sqrt(said) * math.sqrt(first), said))
    if once.value == pytest.approx(math.sqrt(said) * math.sqrt(first)):
        middle = sorted((said, first, second))[1]
        assert once.after(second, 0.3).value == pytest.approx(tenfold(middle, once.value))


def tenfold(value, before):
    """A value as far as one round may move a number that is not settled."""
    return min(max(value, before / 10), 10 * before)


@settings(deadline=None)
@given(positive, st.lists(positive, min_size=1, max_size=6))
def test_no_observation_ever_moves_an_estimate_more_than_tenfold_the_first_ones_included(said, seen):
    estimate = Estimate.said(said)
    for observed in seen:
        after = estimate.after(observed, 0.3)
        assert 0.0999 < after.value / estimate.value < 10.001
        estimate = after


def test_a_scenario_that_is_a_thousand_times_off_is_corrected_tenfold_a_round():
    estimate = Estimate.said(1.0)
    for value in (10.0, 100.0, 1000.0, 1000.0):
        estimate = estimate.after(1000.0, 0.3)
        assert estimate.value == pytest.approx(value)
    assert not estimate.votes


@settings(deadline=None)
@given(positive, st.floats(0.01, 1.0))
def test_an_estimate_that_is_right_stays_what_it_is_to_the_bit(said, smoothing):
    """Then what is planned on and what is true are one problem, which is set up once."""
    estimate = Estimate.said(said)
    for _ in range(5):
        estimate = estimate.after(said, smoothing)
        assert estimate.value == said


@pytest.mark.parametrize("none", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("kind", ["last", "average"])
def test_what_was_not_seen_has_no_vote_and_changes_nothing(kind, none):
    nothing = Condition(none, none, none)
    assert believed(Estimates(kind), nothing) == SAID
    assert after(Estimates(kind), nothing, FAST, nothing, FAST) == after(Estimates(kind), FAST, FAST)
    assert after(Estimates(kind), FAST, FAST, FAST, nothing) == after(Estimates(kind), FAST, FAST, FAST)


def test_a_scenario_that_is_twenty_times_off_is_corrected_in_two_rounds_and_one_odd_round_does_no_harm():
    real, odd = SAID.scaled(20, 1 / 20), SAID.scaled(1e6, 1e-6)
    fleet = Estimates("average", 0.3)
    assert astuple(believed(fleet, real, real)) == pytest.approx(astuple(real))
    for rounds in ((odd, real, real), (real, odd, real), (real, real, odd)):
        found = believed(fleet, *rounds)
        assert 0.5 < found.compute / real.compute < 2
        assert 0.5 < real.up / found.up < 2


def test_every_number_of_a_client_is_believed_by_itself():
    real = Condition(SAID.compute * 20, math.nan, SAID.down / 20, 0.04)
    found = believed(Estimates("average", 0.3), real, real)
    assert astuple(found) == pytest.approx((real.compute, SAID.up, real.down, real.rtt))


def test_a_round_trip_that_nobody_spoke_of_is_believed_when_it_is_seen_and_then_follows():
    near, far = replace(SAID, rtt=0.02), replace(SAID, rtt=0.04)
    assert believed(Estimates("average", 0.5), near).rtt == 0.02
    assert 0.02 < believed(Estimates("average", 0.5), near, far).rtt < 0.04


def test_clients_are_believed_one_by_one():
    other = Client(name="c2", compute=100e9, up=32e6, down=64e6, samples=10)
    real = SAID.scaled(16, 1)
    estimates = after(Estimates("average", 0.3), real).after([(other, real)])
    assert estimates.believed(other).compute == pytest.approx(4 * SAID.compute)


@pytest.mark.parametrize("rounds", [0, 1, 2, 5])
def test_estimates_survive_a_checkpoint_exactly(rounds):
    observed = [FAST, Condition(1e9, 1.1, math.nan), SAID, FAST, Condition(1e9, 1.1, 3.3)]
    estimates = after(Estimates("average", 0.3), *observed[:rounds])
    data = json.loads(json.dumps(estimates.to_json(), allow_nan=False))
    assert Estimates("average", 0.3).resumed(data) == estimates


def test_the_estimates_of_an_older_checkpoint_are_gone_on_with():
    resumed = Estimates("average", 0.3).resumed({"c1": [200e9, 64e6, 128e6]})
    assert resumed.believed(CLIENT) == FAST
    assert believed(resumed, SAID).up == pytest.approx(robust_average(FAST.up, SAID.up, 0.3))
