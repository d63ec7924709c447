"""The n of K clients that make the fastest round, against trying all of them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import problems

from cutwater.base.errors import PlanError
from cutwater.plan.fastest import fastest
from cutwater.plan.optimum import optimum


@settings(deadline=None, max_examples=40)
@given(problem=problems(max_clients=5), data=st.data())
def test_no_other_choice_is_faster(problem, data):
    count = data.draw(st.integers(1, len(problem)))

    def round_of(places):
        return optimum(problem.replace(clients=problem.fleet.some(np.array(places))))

    chosen = fastest(problem, count).tolist()
    assert len(set(chosen)) == count
    assert chosen == sorted(chosen)
    best = min(map(round_of, combinations(range(len(problem)), count)))
    assert round_of(chosen) == pytest.approx(best, rel=1e-9)


@settings(deadline=None, max_examples=5)
@given(problem=problems(max_clients=2))
def test_more_than_there_are_can_not_be_chosen(problem):
    with pytest.raises(PlanError, match="4 clients are to be chosen"):
        fastest(problem, 4)
