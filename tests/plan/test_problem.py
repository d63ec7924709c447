"""Problems as values: what they hold, and what is refused."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from plan_cases import make_profile, network_like, problems

from cutwater.base.errors import PlanError
from cutwater.plan.allowed import client_memory
from cutwater.plan.fleet import Client, Fleet, Numbered
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session

PROFILE = network_like(8)


def client(**changes):
    return Client(**{"name": "c1", "compute": 1e11, "rate": 3.2e7, "samples": 100} | changes)


def problem(*clients, server=1e12, profile=PROFILE, **session):
    return Problem(profile, clients, Server(server), Session(**session or {"epochs": 1}))


def test_one_rate_sets_both_directions():
    assert (client().up, client().down) == (3.2e7, 3.2e7)
    assert client(rate=None, up=1.0, down=2.0).down == 2.0


@settings(deadline=None, max_examples=30)
@given(problem=problems(max_clients=5))
def test_a_fleet_is_its_clients_again(problem):
    rows = list(problem.fleet)
    again = Fleet.of(rows)
    assert list(again) == rows
    assert problem.fleet[-1] == rows[-1]
    assert problem.fleet[:2] == rows[:2]
    assert list(problem.fleet.take(1)) == rows[:1]


def test_values_are_frozen():
    one = problem(client())
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.server = Server(1.0)
    with pytest.raises(ValueError, match="read-only"):
        one.fleet.compute[0] = 1.0


def test_a_million_clients_are_columns():
    fleet = Fleet.from_columns(compute=np.full(10**6, 1e11), up=1e7, down=2e7, samples=10)
    assert len(fleet) == 10**6
    assert fleet[999_999].name == "c1000000"
    assert isinstance(fleet.names, Numbered)
    assert fleet.names[3:5] == ("c4", "c5")


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), None, "100 GFLOPS", True])
@pytest.mark.parametrize("field", ["compute", "rate"])
def test_a_senseless_number_is_refused_with_its_client(field, value):
    with pytest.raises(PlanError, match="client 'c1'"):
        problem(client(**{field: value}))


@pytest.mark.parametrize("value", [0, -3, 2.5, float("nan"), None, "7", 1e300])
def test_a_senseless_count_is_refused_with_its_client(value):
    with pytest.raises(PlanError, match=r"client 'c1' samples is .*, but must be a whole number from 1 to"):
        problem(client(samples=value))


@pytest.mark.parametrize("value", [10**12 + 1, 9.3e18, 2**63, 10**31, 10**400])
def test_samples_beyond_sense_are_refused_with_their_client_and_the_most(value):
    with pytest.raises(
        PlanError, match=r"client 'c1' samples is .* whole number from 1 to 1,000,000,000,000"
    ):
        problem(client(name="c0"), client(samples=value))
    with pytest.raises(
        PlanError, match=r"client 'c1' samples is .* whole number from 1 to 1,000,000,000,000"
    ):
        Fleet.from_columns(compute=1e9, up=1e6, down=1e6, samples=value)


@pytest.mark.parametrize("field", ["epochs", "steps", "batch_size"])
@pytest.mark.parametrize("value", [10**9 + 1, 10**31, 10**400, "x", True])
def test_settings_beyond_sense_are_refused_with_their_client_and_the_most(field, value):
    with pytest.raises(
        PlanError, match=rf"client 'c1' {field} is .* a whole number from 1 to 1,000,000,000$"
    ):
        problem(client(**{field: value}))
    if not isinstance(value, int) or value is True:
        return
    columns = {"compute": [1e9, 1e9], "up": 1e6, "down": 1e6, "samples": 1, field: [None, value]}
    with pytest.raises(
        PlanError, match=rf"client 'c2' {field} is .* a whole number from 1 to 1,000,000,000$"
    ):
        Fleet.from_columns(**columns)


def test_compute_beyond_all_numbers_is_refused_with_its_client():
    with pytest.raises(
        PlanError, match=r"client 'c1' compute is 1000.*…, but must be a finite number above 0"
    ):
        problem(client(compute=10**400))


@pytest.mark.parametrize("field", ["epochs", "steps", "batch_size", "min_cut"])
@pytest.mark.parametrize("value", [0, -1, 1.5, float("nan")])
def test_senseless_settings_are_refused_with_their_client(field, value):
    with pytest.raises(PlanError, match=f"client 'c1' {field} is .*, but must be a whole number"):
        problem(client(**{field: value}))


@pytest.mark.parametrize("value", [0.0, -5.0, float("nan")])
def test_senseless_memory_is_refused_with_its_client(value):
    with pytest.raises(PlanError, match=r"client 'c1' memory is .*, but must be a number above 0"):
        problem(client(memory=value))


def test_two_clients_of_one_name_are_refused():
    with pytest.raises(PlanError, match="client 'c1' appears more than once"):
        problem(client(), client())


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_client_needs_a_name(name):
    with pytest.raises(PlanError, match="must be text"):
        problem(client(name=name))


def test_rates_are_given_once():
    with pytest.raises(PlanError, match="client 'c1' has rate and up: give either rate, or up and down"):
        client(up=1.0)
    with pytest.raises(PlanError, match="client 'c1' has up: give either rate, or up and down"):
        client(rate=None, up=1.0)
    with pytest.raises(PlanError, match="client 'c1' has none of rate, up, down: give either rate"):
        client(rate=None)


def test_epochs_and_steps_exclude_each_other():
    with pytest.raises(PlanError, match="'c1' has both epochs and steps"):
        problem(client(epochs=1, steps=1))
    with pytest.raises(
        PlanError, match="the session has none of epochs, steps: give either epochs, or steps"
    ):
        Session()
    with pytest.raises(PlanError, match="the session has epochs and steps: give either epochs, or steps"):
        Session(epochs=1, steps=1)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, 10**400])
def test_a_senseless_session_is_refused(value):
    with pytest.raises(PlanError, match="from 1 to 1,000,000,000"):
        Session(epochs=value)
    with pytest.raises(PlanError, match="from 1 to 1,000,000,000"):
        Session(epochs=1, batch_size=value)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), None, "3 TFLOPS", True, 10**400])
def test_a_senseless_server_is_refused(value):
    with pytest.raises(
        PlanError, match=r"the server compute is .*, but must be a finite number of at least 0"
    ):
        Server(value)


def test_no_clients_is_no_problem():
    with pytest.raises(PlanError, match="no clients"):
        problem()


def test_columns_must_be_as_long_as_the_fleet():
    with pytest.raises(PlanError, match="samples has 3 values, but the fleet has 2 clients"):
        Fleet.from_columns(names=["a", "b"], compute=1e9, up=1e6, down=1e6, samples=[1, 2, 3])
    with pytest.raises(PlanError, match="2 dimensions"):
        Fleet.from_columns(compute=np.ones((2, 2)), up=1e6, down=1e6, samples=1)


def test_min_cut_beyond_the_model_is_refused():
    with pytest.raises(PlanError, match=r"client 'c1' has min_cut 9, but 'made' has only 8 layers"):
        problem(client(min_cut=9))


@pytest.mark.parametrize("cut", [0, 9, "2"])
def test_a_forbidden_cut_must_exist(cut):
    with pytest.raises(PlanError, match=f"client 'c1' forbids cut {cut!r}"):
        problem(client(forbidden=[cut]))


def test_a_client_that_nothing_fits_is_refused_with_what_it_would_need():
    with pytest.raises(PlanError, match=r"client 'c1' has memory 1 B, but the smallest .* at batch size 32"):
        problem(client(memory=8.0))
    with pytest.raises(
        PlanError, match=r"client 'c1' has no cut left: min_cut 7 and its forbidden cuts \[7, 8\]"
    ):
        problem(client(min_cut=7, forbidden=[7, 8]))


def test_tied_weights_that_leave_no_cut_are_named_where_they_count():
    tied = make_profile([1, 2, 3], [1e6, 2e6, 3e6], [9, 9, 9], ruled_out=[1, 2])
    with pytest.raises(
        PlanError,
        match=r"its forbidden cuts \[3\] and the model's tied weights \(at cuts \[1, 2\]; .* rule out",
    ):
        problem(client(forbidden=[3]), profile=tied)
    with pytest.raises(PlanError, match=r"tied weights \(at cuts \[2\]; .* rule out all 3"):
        problem(client(forbidden=[1, 3]), profile=tied)
    with pytest.raises(PlanError, match=r"left: min_cut 3 and its forbidden cuts \[3\] rule out all 3"):
        problem(client(min_cut=3, forbidden=[3]), profile=tied)


def test_a_server_without_compute_beside_a_client_that_needs_it_is_refused():
    memory = float(PROFILE.column("client_memory_bits")[3])
    problem(client(memory=memory))
    with pytest.raises(
        PlanError, match=r"client 'c1' can't train the whole model in its .* but the server has no compute"
    ):
        problem(client(memory=memory), server=0.0)
    problem(client(), server=0.0)
    with pytest.raises(PlanError, match=r"the server has next to no compute \(1e-300 FLOPS\) to share"):
        problem(client(memory=memory), server=1e-300)
    problem(client(), server=1e-300)


def test_every_limit_takes_its_cuts_away():
    profile = make_profile([100, 200, 300, 400], [1e6, 2e6, 3e6, 4e6], [9, 9, 9, 9], ruled_out=[2])
    assert problem(client(), profile=profile).allowed.cuts(0).tolist() == [1, 3, 4]
    assert problem(client(min_cut=3), profile=profile).allowed.cuts(0).tolist() == [3, 4]
    assert problem(client(memory=300.0), profile=profile).allowed.cuts(0).tolist() == [1, 3]
    assert problem(client(forbidden=[4]), profile=profile).allowed.cuts(0).tolist() == [1, 3]


def test_memory_need_not_grow_with_the_cut():
    profile = make_profile([1, 2, 3], [1e6, 2e6, 3e6], [9, 9, 9], memory=[500, 100, 300])
    assert problem(client(memory=350.0), profile=profile).allowed.cuts(0).tolist() == [2, 3]


def test_activations_grow_with_the_batch_and_weights_do_not():
    # 100 bits of weights and as many of gradients; the other 320 are activations of 32 samples.
    profile = make_profile([100, 100], [1e6, 2e6], [9, 9], memory=[520, 520], batch_size=32)
    assert client_memory(profile, 32) == pytest.approx([520, 520])
    assert client_memory(profile, 64) == pytest.approx([840, 840])
    assert client_memory(profile, 1) == pytest.approx([210, 210])
    assert problem(client(memory=300.0, batch_size=4), profile=profile).allowed.cuts(0).tolist() == [1, 2]
    with pytest.raises(PlanError, match="batch size 32"):
        problem(client(memory=300.0), profile=profile)


@pytest.mark.parametrize("cuts", [3, "12", {1: 2}, None])
def test_forbidden_cuts_must_be_a_list(cuts):
    with pytest.raises(PlanError, match=r"client 'c1' forbidden is .*, but must be a list"):
        client(forbidden=cuts)
