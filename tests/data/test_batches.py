"""Mini-batches of a session."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import DataError
from cutwater.base.seeded import stream
from cutwater.data.batches import batch_sizes, batches
from cutwater.plan.session import Session

KEY = {"seed": 7, "round_": 3, "client": "c1"}
sessions = st.integers(1, 200).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@settings(deadline=None, max_examples=150)
@given(sessions, st.integers(1, 4))
def test_an_epoch_is_a_shuffled_pass_over_all_samples(session, epochs):
    count, batch_size = session
    samples = np.arange(count) * 3 + 11
    drawn = list(batches(samples, Session(batch_size=batch_size, epochs=epochs), **KEY))
    assert [len(batch) for batch in drawn] == batch_sizes(
        count, Session(batch_size=batch_size, epochs=epochs)
    )
    each = len(drawn) // epochs
    for epoch in range(epochs):
        one_pass = np.concatenate(drawn[epoch * each : (epoch + 1) * each])
        assert sorted(one_pass) == samples.tolist()
    assert all(len(batch) <= batch_size + (batch_size > 1) for batch in drawn)
    if batch_size > 1 and count > 1:
        assert min(map(len, drawn)) > 1, "batch normalisation can't work on one sample"


@settings(deadline=None, max_examples=150)
@given(sessions, st.integers(1, 30))
def test_a_step_is_a_random_batch_without_repetition(session, steps):
    count, batch_size = session
    samples = np.arange(count) * 3 + 11
    by_steps = Session(batch_size=batch_size, steps=steps)
    drawn = list(batches(samples, by_steps, **KEY))
    assert [len(batch) for batch in drawn] == [batch_size] * steps
    assert batch_sizes(count, by_steps) == [batch_size] * steps
    for batch in drawn:
        assert len(np.unique(batch)) == batch_size
        assert np.isin(batch, samples).all()


@pytest.mark.parametrize("session", [{"epochs": 3}, {"steps": 20}])
def test_batches_are_a_function_of_seed_round_and_client(session):
    samples = np.arange(300)

    def drawn(**other):
        return np.concatenate(list(batches(samples, Session(**session), **(KEY | other)))).tolist()

    assert drawn() == drawn()
    assert len({str(drawn(**other)) for other in ({}, {"seed": 8}, {"round_": 4}, {"client": "c2"})}) == 4


def test_two_passes_are_shuffled_differently():
    first, second = batches(np.arange(100), Session(batch_size=100, epochs=2), **KEY)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("count", [40, 1000])
def test_steps_draw_every_sample_equally_often(count):
    session = Session(batch_size=20, steps=count * 10)
    drawn = np.concatenate(list(batches(np.arange(count), session, **KEY)))
    often = np.bincount(drawn, minlength=count)
    # 200 times each on average; five standard deviations of a binomial count.
    assert np.all(np.abs(often - 200) < 5 * np.sqrt(200))


def test_a_batch_larger_than_the_data_is_refused_by_name():
    for session in ({"epochs": 1}, {"steps": 1}):
        with pytest.raises(DataError, match="batch_size is 32, but client 'c1' has 12 samples"):
            batches(np.arange(12), Session(**session), **KEY)
        with pytest.raises(DataError, match="client 'c1' has no samples"):
            batches(np.arange(0), Session(batch_size=1, **session), **KEY)


def test_streams_of_different_purposes_differ_and_do_not_run_together():
    draws = {
        stream(*key).randint(2**31)
        for key in ((1, "a"), (1, "b"), (2, "a"), (1, "a", 1), (1, "a", "1"), (11, "a"), (1, "1a"))
    }
    assert len(draws) == 7


def test_streams_are_frozen_for_good():
    # These numbers are a promise to every run that is resumed with a later release.
    assert stream(7, "batches", 3, "c1").randint(1000, size=5).tolist() == FROZEN_INTEGERS
    assert stream(7, "batches", 3, "c1").permutation(6).tolist() == FROZEN_ORDER


FROZEN_INTEGERS = [115, 599, 964, 587, 60]
FROZEN_ORDER = [1, 2, 0, 5, 4, 3]
