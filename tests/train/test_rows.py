"""Rows that cross once: the server has the bytes of the client, whatever comes again, is lost or lies."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import EngineError
from cutwater.train.rows import KeptRows, RowsInProcess, SentRows

WIDTH = 3


def rows_of(places):
    """Two tensors of so many samples; a sample's rows follow from its place."""
    values = torch.stack([torch.randn(WIDTH, generator=torch.Generator().manual_seed(p)) for p in places])
    return values, torch.tensor(places) % 5


def same(one, other):
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


parts = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=12)


@settings(deadline=None)
@given(parts, st.integers(0, 12), st.data())
def test_the_server_has_what_the_client_has_however_often_a_part_is_handed_over(given_parts, most, data):
    sent, kept, gone = SentRows(most), KeptRows(most), []
    for places in given_parts:
        tensors = rows_of(places)
        for _ in range(data.draw(st.integers(0, 2))):
            sent.told(tensors)  # lost on the way, or with its reply
        numbers, fresh = sent.told(tensors)
        assert kept.lacking(numbers) == len(fresh[0])
        assert same(kept.whole(numbers, fresh), tensors)
        sent.arrived()
        gone += places[: len(fresh[0])]
    distinct = len({place for places in given_parts for place in places})
    assert kept.bytes == min(most, distinct) * (4 * WIDTH + 8)
    assert most < distinct or len(gone) == distinct


def test_what_is_kept_is_a_copy_and_a_row_of_another_shape_is_another_row():
    kept, sent = KeptRows(4), SentRows(4)
    tensors = rows_of([1, 2])
    kept.whole(*sent.told(tensors))
    sent.arrived()
    before = tensors[0].clone()
    numbers, fresh = sent.told((tensors[0].clone(), tensors[1]))
    tensors[0].zero_()
    assert not len(fresh[0])
    assert torch.equal(kept.whole(numbers, fresh)[0], before)
    wider = (torch.cat([before, before], dim=1), tensors[1])
    assert len(sent.told(wider)[1][0]) == 2


def test_a_number_differs_by_one_bit_and_the_row_goes_again():
    sent = SentRows(9)
    values, labels = rows_of([1, 2, 3])
    sent.told((values, labels))
    sent.arrived()
    values[1, 0] = torch.nextafter(values[1, 0], torch.tensor(9.0))
    numbers, fresh = sent.told((values, labels))
    assert numbers.tolist() == [0, 3, 2]
    assert torch.equal(fresh[0], values[1:2])


@pytest.mark.parametrize("numbers", [[0, 2], [1, 0], [-1, 0], [5, 0]])
def test_numbers_that_nobody_counts_to_are_refused(numbers):
    with pytest.raises(EngineError, match="a part refers to row"):
        KeptRows(9).whole(torch.tensor(numbers, dtype=torch.int32), rows_of([1]))


def test_rows_that_do_not_fit_their_numbers_are_refused():
    with pytest.raises(EngineError, match=r"brings \[1, 1\] rows of its tensors, but its numbers call for 2"):
        KeptRows(9).whole(torch.tensor([0, 1], dtype=torch.int32), rows_of([1]))


def test_a_row_beyond_those_that_are_kept_can_not_be_referred_to():
    kept = KeptRows(1)
    kept.whole(torch.tensor([0, 1], dtype=torch.int32), rows_of([1, 2]))
    with pytest.raises(EngineError, match="row 1, but there are 1, and 2 is next"):
        kept.lacking(torch.tensor([1], dtype=torch.int32))


def test_a_second_time_costs_a_number_each():
    rows, sizes = RowsInProcess(9), []
    for _ in range(2):
        whole, size = rows.across(rows_of([4, 5]), lambda fresh: (fresh, sum(t.nbytes for t in fresh)))
        assert same(whole, rows_of([4, 5]))
        sizes.append(size)
    assert sizes == [2 * (4 * WIDTH + 8) + 8, 8]
