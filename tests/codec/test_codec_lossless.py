"""Lossless: every bit pattern survives, zeros cost a bit, and nothing else is taken for a message."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cutwater.base.errors import CodecError
from cutwater.codec import find_codec

CODEC = find_codec("lossless")
PATTERN = st.one_of(
    st.just(0), st.sampled_from([0x80000000, 1, 0x7F800001, 0xFFFFFFFF]), st.integers(0, 2**32 - 1)
)
BITS = hnp.arrays(np.uint32, st.integers(0, 90), elements=PATTERN, fill=st.just(0))


@settings(deadline=None, max_examples=300)
@given(BITS)
def test_every_bit_pattern_survives(bits):
    data = CODEC.encode(bits.view(np.float32), 0)
    assert (CODEC.decode(data, bits.shape).view(np.uint32) == bits).all()
    sparse = 4 * np.count_nonzero(bits) + -(-bits.size // 8)
    assert data.size == 8 + min(4 * bits.size, sparse)
    assert data.size * 8 <= CODEC.size(()).bits(bits.size)


def test_minus_zero_is_kept_and_zero_is_not_sent():
    values = np.zeros((4, 16), np.float32)
    values[1, 3] = -0.0
    data = CODEC.encode(values, 0)
    assert data.size == 8 + 4 + 8
    assert np.signbit(CODEC.decode(data, (4, 16))).sum() == 1


def test_behind_a_relu_it_is_about_half():
    values = np.maximum(np.random.default_rng(0).normal(size=(32, 8, 8, 8)), 0).astype(np.float32)
    ratio = CODEC.encode(values, 0).size / values.nbytes
    assert 0.5 < ratio < 0.56  # half of them, and a bit for each


SPARSE = CODEC.encode(np.float32([0, 1, 0, 0, 2, 0, 0, 0, 0, 3]), 0)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (0, 2, "does not begin with a header of lossless"),
        (5, 1, "does not begin with a header of lossless"),
        (20, 0b00010011, "a bitmap that is not one of its 3 numbers"),
        (20, 0b00000010, "a bitmap that is not one of its 3 numbers"),
        (21, 0b00000110, "a bitmap that is not one of its 3 numbers"),
        (21, 0b00000100, "a bitmap that is not one of its 3 numbers"),
        (0, 0, "comes in 22 bytes, but lossless makes 48"),
    ],
)
def test_a_message_that_was_tampered_with_is_refused(place, value, said):
    assert SPARSE.tolist()[20:] == [0b00010010, 0b00000010]
    data = SPARSE.copy()
    data[place] = value
    with pytest.raises(CodecError, match=f"^the tensor .*{said}"):
        CODEC.decode(data, (10,))


def test_a_sparse_message_as_long_as_the_numbers_is_none():
    bits = np.ones(10, np.uint32)
    forged = np.concatenate([np.uint8([1, 0, 0, 0, 0, 0, 0, 0]), bits.view(np.uint8), np.uint8([0xFF, 0x03])])
    with pytest.raises(CodecError, match="never makes of 10 numbers"):
        CODEC.decode(forged, (10,))
