"""Sums whose every addition is exact: against rational arithmetic, in any order, grouping and size."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.train import exactsum
from cutwater.train.exactsum import ExactSum

GRID = Fraction(1, 2**60)


@pytest.fixture(autouse=True, scope="module")
def small_steps():
    """Chunks of three numbers and a settlement after every second addition, so that few terms do it all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactsum, "ROOM", 3)
        patch.setattr(exactsum, "_SETTLE_EVERY", 2)
        yield


magnitudes = st.sampled_from([2.0**30, 2.0**12, 1.0, 2.0**-20, 2.0**-38, 2.0**-58])
numbers = magnitudes.flatmap(lambda top: st.floats(-top, top, width=32))


@st.composite
def many_terms(draw):
    size = draw(st.integers(1, 8))
    vector = st.lists(numbers, min_size=size, max_size=size)
    return draw(st.lists(st.tuples(vector, st.integers(1, 2**20)), min_size=1, max_size=9))


def add_all(total, terms):
    for vector, factor in terms:
        array = np.array(vector, np.float32)
        half = len(array) // 2
        total.add([array[:half], array[half:]], factor, float(np.abs(array).max()))
    return total


def sum_of(terms):
    return add_all(ExactSum(len(terms[0][0])), terms)


def mean_of(total, count=1):
    found = np.empty(len(total))
    for place, values in total.means(slice(0, len(total)), count):
        found[place] = values
    return found


def exactly(terms):
    """Σ in rational numbers, each term rounded to the grid."""
    return [
        sum(round(Fraction(vector[k]) * factor / GRID) * GRID for vector, factor in terms)
        for k in range(len(terms[0][0]))
    ]


@settings(deadline=None)
@given(many_terms(), st.integers(1, 2**28))
def test_the_mean_is_the_exact_sum_rounded_and_divided(terms, count):
    total = sum_of(terms)
    found, exact = mean_of(total, count).tolist(), exactly(terms)
    if len(total._sums) == 2:
        assert found == [float(each) / count for each in exact], "rounded once, then divided"
    for mine, whole in zip(found, exact, strict=True):
        assert abs(Fraction(mine) - whole / count) <= abs(whole / count) * Fraction(2) ** -51


@settings(deadline=None)
@given(many_terms(), st.randoms())
def test_no_order_changes_a_bit(terms, random):
    expected = mean_of(sum_of(terms), 7).tobytes()
    assert mean_of(sum_of(random.sample(terms, len(terms))), 7).tobytes() == expected


@settings(deadline=None)
@given(many_terms())
def test_the_sums_hold_the_exact_total_at_any_time(terms):
    total = ExactSum(len(terms[0][0]))
    for count, term in enumerate(terms, start=1):
        add_all(total, [term])
        held = [sum(Fraction(float(each[k])) for each in total._sums) for k in range(len(total))]
        assert held == exactly(terms[:count])


def test_more_additions_than_a_sum_has_room_for_lose_nothing():
    # The lower sum grows by 2^39 - 1 of its units each time; float64 holds 2^53.
    term, times = np.array([2.0**-21 - 2.0**-60]), 20_001
    total = ExactSum(1)
    for _ in range(times):
        total.add([term], 1, 1.0)
    assert sum(Fraction(float(each[0])) for each in total._sums) == times * Fraction(float(term[0]))


def test_what_cancels_leaves_what_is_small_untouched():
    total = sum_of([([2.0**30], 2**20), ([2.0**-36], 3), ([-(2.0**30)], 2**20)])
    assert len(total._sums) == 3
    assert mean_of(total).tolist() == [3 * 2.0**-36]


def test_a_third_sum_is_there_only_where_two_could_overflow():
    assert len(sum_of([([1.0], 2**28)] * 16)._sums) == 2
    assert len(sum_of([([1.0], 2**28)] * 17)._sums) == 3
    assert len(sum_of([([0.75], 2**28)] * 17)._sums) == 3, "what it may reach is never rated too low"
    small = sum_of([([2.0**-60], 1), ([2.0**30], 2**28)])
    assert mean_of(small).tolist() == [2.0**58]
    assert len(small._sums) == 3


def test_nothing_is_a_sum_too():
    total = ExactSum(0)
    total.add([np.empty(0, np.float32)], 3, 0.0)
    assert list(total.means(slice(0, 0), 1)) == []
