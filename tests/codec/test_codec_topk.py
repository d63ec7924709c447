"""topk: the largest of each sample as a plain sort finds them, in as many bits as it says."""

import math

import numpy as np
import pytest
from codec_ends import transfer
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cutwater.base.errors import CodecError
from cutwater.codec import Size, encode_checked, find_codec

KEEP = st.floats(0.001, 1)
FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, 1e-45])
NUMBERS = st.one_of(FEW, st.floats(width=32, allow_nan=False))
TENSORS = hnp.arrays(np.float32, st.tuples(st.integers(0, 4), st.integers(1, 70)), elements=NUMBERS)


def naive(values, keep):
    """Sorted by magnitude, and of equal ones by place."""
    found = np.zeros_like(values)
    count = max(1, round(keep * values.shape[1]))
    for row, sample in zip(found, values, strict=True):
        order = sorted(range(len(sample)), key=lambda i: (-abs(sample[i]), i))[:count]
        row[order] = sample[order]
    return found


@settings(deadline=None, max_examples=300)
@given(TENSORS, KEEP)
def test_it_keeps_what_a_sort_keeps(values, keep):
    assert transfer(find_codec("topk", keep=keep), values, 0).tobytes() == naive(values, keep).tobytes()


@pytest.mark.parametrize("keep", [0.001, 0.1, 0.5])
def test_it_does_so_for_many_numbers_that_differ_in_their_last_bits(keep):
    bits = np.random.default_rng(0).integers(0x3F800000, 0x3F800800, (2, 3000)).astype(np.uint32)
    values = bits.view(np.float32) * np.random.default_rng(1).choice([-1, 1], bits.shape).astype(np.float32)
    assert transfer(find_codec("topk", keep=keep), values, 0).tobytes() == naive(values, keep).tobytes()


@given(st.integers(1, 5000), KEEP)
def test_places_take_a_bitmap_or_indices_whichever_is_shorter(size, keep):
    kept = max(1, round(keep * size))
    places = min(size, kept * math.ceil(math.log2(size)))
    assert find_codec("topk", keep=keep).size((size,)) == Size(32 * kept + 8 * math.ceil(places / 8), 0)


def test_a_sample_of_one_number_needs_no_place():
    values = np.float32([1, -0.0, 3])
    codec = find_codec("topk", keep=0.01)
    assert codec.encode(values, 0).tobytes() == values.tobytes()
    assert transfer(codec, values, 0).tobytes() == values.tobytes()


def test_nan_is_refused_and_infinity_is_the_largest():
    values = np.ones((2, 40), np.float32)
    values[1, 30] = -np.inf
    assert transfer(find_codec("topk", keep=0.01), values, 0)[1].tolist() == [*[0] * 30, -np.inf, *[0] * 9]
    values[1, 39] = -np.nan
    with pytest.raises(CodecError, match=r"^gradients holds NaN, which topk can't carry"):
        encode_checked(find_codec("topk"), values, 0, "gradients")


@pytest.mark.parametrize("keep", [0, -0.1, 1.01, np.nan, "half"])
def test_a_fraction_that_is_none_is_refused(keep):
    with pytest.raises(CodecError, match=r"^keep of topk is .*, but must be a number above 0 and at most 1"):
        find_codec("topk", keep=keep)


def sent(kept, places):
    return np.concatenate([np.float32(kept).view(np.uint8), np.uint8(places)])


@pytest.mark.parametrize(
    ("places", "right"),
    [
        ([5 | 9 << 6 & 0xFF, 9 >> 2], True),
        ([9 | 5 << 6 & 0xFF, 5 >> 2], False),  # not in order
        ([5 | 5 << 6 & 0xFF, 5 >> 2], False),  # twice the same
        ([5 | 50 << 6 & 0xFF, 50 >> 2], False),  # beyond the sample
        ([5 | 9 << 6 & 0xFF, 9 >> 2 | 16], False),  # bits of padding
    ],
)
def test_indices_that_are_no_places_are_refused(places, right):
    codec = find_codec("topk", keep=0.04)  # 2 of 50, of 6 bits each
    if right:
        wanted = np.zeros(50, np.float32)
        wanted[[5, 9]] = [1, 2]
        assert (codec.decode(sent([1, 2], places), (1, 50)) == wanted).all()
        return
    with pytest.raises(CodecError, match="does not say where in a sample of 50 numbers the 2 were"):
        codec.decode(sent([1, 2], places), (1, 50))


@pytest.mark.parametrize("bitmap", [[0b111, 0], [0b1, 0], [0b1, 0b100000], [0b11, 0b10000000]])
def test_a_bitmap_of_other_places_is_refused(bitmap):
    codec = find_codec("topk", keep=0.5)
    wanted = codec.encode(np.float32([[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]]), 0)
    assert wanted[-2:].tolist() == [0b111111, 0]
    wanted[-2:] = bitmap
    with pytest.raises(CodecError, match="does not say where in a sample of 13 numbers the 6 were"):
        codec.decode(wanted, (1, 13))
