"""Selection of a round's clients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_study import small_study

from cutwater.base.errors import ScenarioError
from cutwater.federate.selection import select
from cutwater.plan.fastest import fastest

FLEET = [f"c{number}" for number in range(1, 31)]


@settings(deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**40), st.integers(1, 500), st.floats(0, 3))
def test_a_round_has_distinct_clients_in_the_fleets_order(count, seed, round_, over):
    chosen = select(FLEET, count, seed=seed, round_=round_, over_selection=over)
    assert count <= len(chosen) <= min(30, int(np.ceil(count * (1 + over))))
    assert [name for name in FLEET if name in chosen] == list(chosen)
    assert chosen == select(FLEET, count, seed=seed, round_=round_, over_selection=over)


def test_rounds_and_seeds_choose_differently_and_everybody_gets_a_turn():
    rounds = [select(FLEET, 10, seed=7, round_=r) for r in range(1, 301)]
    assert len(set(rounds)) > 290
    assert rounds[0] != select(FLEET, 10, seed=8, round_=1)
    often = np.array([sum(name in chosen for chosen in rounds) for name in FLEET])
    # 100 turns each on average; five standard deviations of a binomial count.
    assert np.all(np.abs(often - 100) < 5 * np.sqrt(300 / 3 * 2 / 3))


@pytest.mark.parametrize(
    ("over", "expected"), [(0.0, 10), (0.1, 11), (0.25, 13), (0.3, 13), (1.0, 20), (9.0, 30)]
)
def test_over_selection_adds_that_part_rounded_up(over, expected):
    assert len(select(FLEET, 10, seed=1, round_=1, over_selection=over)) == expected


def test_over_selection_keeps_those_that_would_have_been_chosen_without_it():
    few = select(FLEET, 10, seed=1, round_=4)
    assert set(few) <= set(select(FLEET, 10, seed=1, round_=4, over_selection=0.3))


def test_without_a_number_all_clients_take_part():
    assert select(FLEET, None, seed=1, round_=1) == tuple(FLEET)


@pytest.mark.parametrize("count", [0, 31, -1])
def test_a_number_the_fleet_does_not_have_is_refused(count):
    with pytest.raises(ScenarioError, match=f"clients_per_round is {count}, but the scenario has 30 clients"):
        select(FLEET, count, seed=1, round_=1)


def test_the_fastest_are_chosen_by_name_and_the_same_in_every_round():
    study = small_study(train={"clients_per_round": 2, "selection": "fastest"})
    wanted = tuple(study.fleet.names[k] for k in fastest(study.problem(study.fleet), 2))
    assert study.select(1) == study.select(7) == wanted
    more = small_study(train={"clients_per_round": 2, "selection": "fastest", "over_selection": 0.5})
    assert len(more.select(1)) == 3
