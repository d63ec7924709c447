"""fp32 is the tensor itself; bf16 and fp16 have the bits of torch's own conversions."""

import numpy as np
import pytest
import torch
from codec_ends import transfer
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cutwater.base.errors import CodecError
from cutwater.codec import encode_checked, find_codec

BITS = hnp.arrays(np.uint32, st.integers(0, 70), elements=st.integers(0, 2**32 - 1))
TORCH = {"bf16": torch.bfloat16, "fp16": torch.float16}


def as_torch(values, name):
    return torch.from_numpy(values).to(TORCH[name]).float().numpy()


def same_bits_where_numbers(found, wanted):
    nan = np.isnan(wanted)
    assert (np.isnan(found) == nan).all()
    assert (found[~nan].view(np.uint32) == wanted[~nan].view(np.uint32)).all()


def test_fp32_copies_nothing():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    fp32 = find_codec("fp32")
    data = fp32.encode(values, 0)
    assert np.shares_memory(data, values)
    assert np.shares_memory(fp32.decode(data, (2, 3)), values)


def test_fp32_of_an_odd_address_is_aligned_for_whoever_computes_with_it():
    values = np.arange(6, dtype=np.float32)
    shifted = np.concatenate([np.zeros(1, np.uint8), values.view(np.uint8)])[1:]
    found = find_codec("fp32").decode(shifted, (6,))
    assert found.flags.aligned
    assert (found == values).all()


@settings(deadline=None)
@given(BITS)
def test_bf16_has_the_bits_of_torch(bits):
    values = bits.view(np.float32)
    same_bits_where_numbers(transfer(find_codec("bf16"), values, 0), as_torch(values, "bf16"))


@settings(deadline=None)
@given(BITS)
def test_fp16_has_the_bits_of_torch(bits):
    values = bits.view(np.float32)
    values = values[~(np.isfinite(values) & (np.abs(values) >= 65520))]
    same_bits_where_numbers(transfer(find_codec("fp16"), values, 0), as_torch(values, "fp16"))


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_every_half_and_the_middle_between_any_two_goes_as_in_torch(name):
    halves = torch.arange(2**15, dtype=torch.int16).view(TORCH[name]).float().numpy()
    finite = halves[np.isfinite(halves)].astype(np.float64)
    middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    around = [np.nextafter(middle, np.float32(to)) for to in (-np.inf, np.inf)]
    values = np.concatenate([finite.astype(np.float32), middle, *around])
    values = np.concatenate([values, -values, np.float32([np.inf, -np.inf])])
    same_bits_where_numbers(transfer(find_codec(name), values, 0), as_torch(values, name))


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_every_half_survives_and_every_nan_stays_one(name):
    codec = find_codec(name)
    halves = np.arange(2**16, dtype=np.uint16)
    values = codec.decode(halves.view(np.uint8), (2**16,))
    same_bits_where_numbers(values, torch.from_numpy(halves.view(np.int16)).view(TORCH[name]).float().numpy())
    numbers = ~np.isnan(values)
    assert (codec.encode(values, 0).view(np.uint16)[numbers] == halves[numbers]).all()
    hidden = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF], np.uint32).view(np.float32)
    assert np.isnan(transfer(codec, hidden, 0)).all()
    assert (np.signbit(transfer(codec, hidden, 0)) == [False, True, False]).all()


def test_what_fp16_would_make_infinite_is_refused_with_the_largest_value():
    fp16 = find_codec("fp16")
    fits = np.float32([65519.996, -65504, np.inf])
    assert transfer(fp16, fits, 0).tolist() == [65504, -65504, np.inf]
    beyond = np.float32([1, -70000, np.inf, 65520, np.nan])
    with pytest.raises(CodecError, match=r"^gradients of step 2 holds 70000, but .* fp16 .* 65504: use bf16"):
        encode_checked(fp16, beyond, 0, "gradients of step 2")
