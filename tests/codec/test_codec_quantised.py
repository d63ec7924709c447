"""int8 and int4: within a level, right on average, the same everywhere, zeros exact."""

import numpy as np
import pytest
from codec_ends import transfer
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cutwater.base.errors import CodecError
from cutwater.codec import encode_checked, find_codec
from cutwater.codec.quantised import key_of

NAMES = ["int8", "int4"]
REACH = {"int8": 127, "int4": 7}
SHAPES = st.one_of(
    st.tuples(st.integers(1, 4), st.integers(1, 9)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5)),
    st.tuples(st.just(2), st.integers(1, 3), st.integers(1, 2), st.just(3), st.just(3)),
)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TENSORS = SHAPES.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=FINITE))
SEEDS = st.integers(-(2**70), 2**70)


def scales_of(data, shape):
    """Those that a message begins with, as they multiply the tensor."""
    if len(shape) > 3:
        return data[: 4 * shape[1]].view(np.float32).reshape(1, shape[1], *[1] * (len(shape) - 2))
    return data[: 4 * shape[0]].view(np.float32).reshape(shape[0], *[1] * (len(shape) - 1))


def channels(values):
    """The values of each channel that has a scale."""
    if values.ndim > 3:
        return list(np.moveaxis(values, 1, 0).reshape(values.shape[1], -1))
    return list(values.reshape(len(values), -1))


def noise(seed, count):
    """The draws, once more, by numpy."""
    first, second = key_of(seed)
    mixed = np.arange(count, dtype=np.uint32) + first
    mixed = (mixed ^ (mixed >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    mixed = (mixed ^ (mixed >> np.uint32(15)) ^ second) * np.uint32(0xD35A2D97)
    return ((mixed ^ (mixed >> np.uint32(15))) >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=200)
@given(values=TENSORS, seed=SEEDS)
def test_it_is_what_the_same_by_numpy_is(name, values, seed):
    codec, reach = find_codec(name), REACH[name]
    data = codec.encode(values, seed)
    scales = scales_of(data, values.shape)
    step = np.abs(scales)
    with np.errstate(invalid="ignore", divide="ignore"):
        exact = np.where(step > 0, values / step, np.float32(0))
    floor = np.floor(exact)
    levels = floor + ((exact - floor) > noise(seed, values.size).reshape(values.shape))
    low, high = np.where(scales > 0, -reach, 0), np.where(scales > 0, reach, 2 * reach + 1)
    wanted = np.clip(levels, low, high).astype(np.float32) * step + np.float32(0)
    assert codec.decode(data, values.shape).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=200)
@given(values=TENSORS, seed=SEEDS)
def test_every_number_arrives_within_a_level_of_the_least_scale_there_is(name, values, seed):
    codec, reach = find_codec(name), REACH[name]
    data = codec.encode(values, seed)
    found, scales = codec.decode(data, values.shape), scales_of(data, values.shape)
    step = np.abs(scales).astype(np.float64)
    with np.errstate(invalid="ignore"):
        level = np.where(step > 0, np.rint(found / step), 0)
    # A scale that had to be rounded down, so that no level is infinite, leaves that much at its end.
    beyond = np.maximum(
        np.abs(values.astype(np.float64)) - step * np.where(scales > 0, reach, 2 * reach + 1), 0
    )
    assert (beyond <= np.abs(values) * 2.0**-23).all()
    assert (np.abs(level * step - values) - beyond <= step).all()
    assert np.isfinite(found).all()
    for channel, scale in zip(channels(values), scales.reshape(-1), strict=True):
        largest = np.abs(channel).max().astype(np.float64)
        count = reach if (channel < 0).any() else 2 * reach + 1
        assert scale == 0 if largest == 0 else (scale > 0) == (channel < 0).any()
        assert abs(abs(float(scale)) - largest / count) <= np.spacing(abs(scale))


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_over_seeds_is_the_number(name):
    values = np.random.default_rng(0).normal(size=(2, 3, 2, 3)).astype(np.float32)
    codec, seeds = find_codec(name), 4000
    scales = scales_of(codec.encode(values, 0), values.shape)
    total = sum(transfer(codec, values, seed).astype(np.float64) for seed in range(seeds))
    # A mean of n draws of at most half a level's deviation: five deviations, one in 50,000 for 36 numbers.
    assert (np.abs(total / seeds - values) < 5 * 0.5 * np.abs(scales) / np.sqrt(seeds)).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_over_places_is_the_number_too(name):
    values = np.full((4, 1, 128, 128), 0.3217, np.float32)
    values[0, 0, 0, 0] = -1.0
    found = transfer(find_codec(name), values, 7)[values > 0]
    step = 1 / REACH[name]
    assert abs(found.mean(dtype=np.float64) - 0.3217) < 5 * 0.5 * step / np.sqrt(found.size)
    assert len(np.unique(found)) == 2


def test_draws_of_neighbours_seeds_and_places_have_nothing_in_common():
    draws = np.stack([noise(seed, 4096) for seed in range(16)]).astype(np.float64) - 0.5
    assert abs(draws.mean()) < 5 * np.sqrt(1 / 12 / draws.size)
    assert abs(draws.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / draws.size)
    for one, other in ((draws[1:], draws[:-1]), (draws[:, 1:], draws[:, :-1])):
        assert abs((one * other).mean()) < 5 / 12 / np.sqrt(one.size)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_are_exact_for_every_seed(name):
    values = np.random.default_rng(1).normal(size=(3, 5, 4, 4)).astype(np.float32)
    values[values < 0.3] *= np.random.default_rng(2).integers(0, 2, (values < 0.3).sum()).astype(np.float32)
    values[:, 2] = 0
    values[:, 3] = -0.0
    for seed in range(50):
        found = transfer(find_codec(name), values, seed)
        assert not found[values == 0].view(np.uint32).any()


@pytest.mark.parametrize("name", NAMES)
def test_whole_levels_are_exact_for_every_seed(name):
    reach = REACH[name]
    values = np.arange(-reach, reach + 1, dtype=np.float32)[None] * np.float32(0.25)
    for seed in range(200):
        assert (transfer(find_codec(name), values, seed) == values).all()


@pytest.mark.parametrize("name", NAMES)
def test_behind_a_relu_levels_are_twice_as_dense_and_the_error_is_half(name):
    values = np.maximum(np.random.default_rng(3).normal(size=(16, 4, 16, 16)), 0).astype(np.float32)
    below = values.copy()
    below[0, :, 0, 0] = -1e-6  # one number below zero in each channel, and it is signed
    codec = find_codec(name)
    dense, signed = (scales_of(codec.encode(each, 0), values.shape) for each in (values, below))
    assert (dense < 0).all()
    assert (signed > 0).all()
    reach = REACH[name]
    assert np.allclose(-dense / signed, reach / (2 * reach + 1), rtol=1e-6)
    error = [np.sqrt(((transfer(codec, each, 5) - each) ** 2).mean()) for each in (values, below)]
    assert error[0] / error[1] == pytest.approx(reach / (2 * reach + 1), rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_follow_from_values_and_seed_alone(name):
    values = np.random.default_rng(4).normal(size=(4, 6, 5, 3)).astype(np.float32)
    codec = find_codec(name)
    wanted = codec.encode(values, 9).tobytes()
    strided = np.asfortranarray(values)
    locked = values.copy()
    locked.flags.writeable = False
    odd = np.concatenate([np.zeros(1, np.uint8), values.view(np.uint8).reshape(-1)])[1:]
    unaligned = odd.view(np.float32).reshape(values.shape)
    for same in (values.copy(), strided, locked, unaligned):
        assert codec.encode(same, 9).tobytes() == wanted
    assert codec.encode(values, 10).tobytes() != wanted
    assert codec.encode(values, 9 + 2**64).tobytes() == wanted


def test_one_number_a_sample_is_sent_as_it_is():
    values = np.float32([np.nan, np.inf, 1e-40])
    for name in NAMES:
        assert transfer(find_codec(name), values, 0).tobytes() == values.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(3, 7), (2, 3, 4, 5)])
def test_nan_and_infinity_are_refused(name, bad, shape):
    values = np.ones(shape, np.float32)
    values.reshape(-1)[-1] = bad
    said = f"^smashed data of step 3 holds NaN or infinity, which {name} can't carry: .*use bf16"
    with pytest.raises(CodecError, match=said):
        encode_checked(find_codec(name), values, 0, "smashed data of step 3")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_a_scale_that_leads_beyond_float32_is_refused(name, scale):
    codec = find_codec(name)
    data = codec.encode(np.ones((1, 4), np.float32), 0)
    data[:4] = np.float32([scale]).view(np.uint8)
    with pytest.raises(CodecError, match=r"^the tensor has a scale that is not finite"):
        codec.decode(data, (1, 4))


@pytest.mark.parametrize(("name", "byte"), [("int8", 0xFF), ("int4", 0x0F), ("int4", 0xF0)])
def test_a_level_that_no_scale_has_is_refused(name, byte):
    codec = find_codec(name)
    data = codec.encode(np.float32([[-1, 1, 1]]), 0)
    data[4] = byte
    with pytest.raises(CodecError, match="levels beyond those of its scales"):
        codec.decode(data, (1, 3))


def test_bits_of_padding_and_of_channels_of_zeros_are_zero():
    int4 = find_codec("int4")
    data = int4.encode(np.float32([[1, 1, 1]]), 0)
    data[-1] |= 0x10
    with pytest.raises(CodecError, match="levels beyond"):
        int4.decode(data, (1, 3))
    data = int4.encode(np.zeros((1, 3), np.float32), 0)
    data[-1] |= 0x01
    with pytest.raises(CodecError, match="levels beyond"):
        int4.decode(data, (1, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("largest", [np.finfo(np.float32).max, 2.0**-149, 60 * 2.0**-149, 190 * 2.0**-149])
def test_the_ends_of_float32_keep_their_levels(name, largest):
    values = np.float32([[largest, -largest, 0], [largest, largest / 2, 0]])
    found = transfer(find_codec(name), values, 0)
    assert np.isfinite(found).all()
    if largest < 2.0**-140 and name == "int8":  # fewer steps of float32 than there are levels
        assert (np.abs(found.astype(np.float64) - values) <= 2.0**-149 * (largest > 127 * 2.0**-149)).all()


def test_where_the_least_scale_would_lead_beyond_float32_the_highest_level_is_still_the_highest():
    largest = np.finfo(np.float32).max
    values = np.full((1, 2**20), largest)
    values[0, 0] = -largest
    data = find_codec("int8").encode(values, 0)
    assert largest / data[:4].view(np.float32)[0] > 127  # so that some would be lifted above it
    assert np.unique(data[4:]).tolist() == [0, 254]
