"""Linear quantisation with stochastic rounding, as fused loops.

All of them see a tensor as (samples, channels, length) and know its scales as (rows, channels): one row for
all samples, or a row for each (``by_sample`` is 1 then, and 0 otherwise). A level is stored as a whole number
from 0 on. A channel with a positive scale is signed: its levels -``reach`` … ``reach`` are stored ``reach``
higher. One with a negative scale holds nothing below zero: its levels are 0 … 2 ``reach`` + 1. A channel of
zeros has scale zero, and level 0.
"""

import numpy as np
from numpy.typing import NDArray

from cutwater.base.compiled import compiled

Bytes = NDArray[np.uint8]
Words = NDArray[np.int32]
Values = NDArray[np.float32]

_INFINITY = 0x7F800000
_ODD_1, _ODD_2 = np.uint32(0x21F0AAAD), np.uint32(0xD35A2D97)
"""Multipliers of a mixer of 32 bits with hardly any bias, from the searches of hash-prospector."""


@compiled
def extremes(bits: Words, by_sample: int, largest: Words, below: Words) -> bool:
    """The largest magnitude of each channel, as a bit pattern, and whether (< 0) it holds a number below 0.

    Returns whether all numbers are finite. Patterns are compared in place of numbers, because the order of
    whole numbers does not depend on how a loop is compiled, so that it can take many at once.
    """
    largest[:] = 0
    below[:] = 0
    for sample in range(bits.shape[0]):
        for channel in range(bits.shape[1]):
            run = bits[sample, channel]
            top = negative = np.int32(0)
            for i in range(run.shape[0]):
                magnitude = np.int32(run[i] & np.int32(0x7FFFFFFF))
                top = max(top, magnitude)
                # The sign, unless it is that of -0.
                negative = np.int32(negative | (run[i] & np.int32(-magnitude)))
            row = sample * by_sample
            largest[row, channel] = max(largest[row, channel], top)
            below[row, channel] |= negative
    for row in range(largest.shape[0]):
        for channel in range(largest.shape[1]):
            if largest[row, channel] >= _INFINITY:
                return False
    return True


@compiled
def scale_all(largest: Values, below: Words, reach: int, scales: Values) -> None:
    """The scale of each channel: the least float32 whose highest multiple reaches the largest magnitude."""
    for row in range(largest.shape[0]):
        for channel in range(largest.shape[1]):
            most = largest[row, channel]
            signed = below[row, channel] < 0
            levels = np.float32(reach if signed else 2 * reach + 1)
            scale = np.float32(most / levels)
            # Products of float64 are exact here. Near zero, where float32 has few digits, a scale that was
            # rounded down would leave levels out.
            if np.float64(scale) * np.float64(levels) < np.float64(most):
                scale = np.nextafter(scale, np.float32(np.inf))
            if np.float32(scale * levels) == np.float32(np.inf):
                scale = np.nextafter(scale, np.float32(0.0))
            scales[row, channel] = scale if signed else -scale


@compiled
def draw(index: np.uint32, first: np.uint32, second: np.uint32) -> np.float32:
    """A number of 24 bits in [0, 1) that follows from the index of an element and the halves of a key."""
    mixed = np.uint32(index + first)
    mixed = np.uint32(np.uint32(mixed ^ (mixed >> np.uint32(16))) * _ODD_1)
    mixed = np.uint32(np.uint32(mixed ^ (mixed >> np.uint32(15)) ^ second) * _ODD_2)
    mixed = np.uint32(mixed ^ (mixed >> np.uint32(15)))
    return np.float32(np.float32(np.int32(mixed >> np.uint32(8))) * np.float32(2.0**-24))


@compiled
def levels(
    run: Values, scale: float, reach: int, start: int, first: np.uint32, second: np.uint32, row: Bytes
) -> None:
    """The levels of one channel of one sample; ``start`` is the index of its first element."""
    if scale == 0:
        row[:] = 0
        return
    offset, top = np.int32(0), np.int32(2 * reach + 1)
    if scale > 0:
        offset, top = np.int32(reach), np.int32(2 * reach)
    step = np.float32(abs(scale))
    for i in range(run.shape[0]):
        exact = np.float32(run[i] / step)
        floor = np.floor(exact)
        # Up with the probability of what is above the floor. That is exact, so whole levels stay what they
        # are; floor(exact + draw) would round the sum, and lift some.
        up = np.float32(exact - floor) > draw(np.uint32(start + i), first, second)
        level = np.int32(np.int32(floor) + np.int32(up) + offset)
        row[i] = np.uint8(min(max(level, np.int32(0)), top))


@compiled
def quantise(
    values: Values,
    by_sample: int,
    scales: Values,
    reach: int,
    first: np.uint32,
    second: np.uint32,
    packed: bool,
    out: Bytes,
) -> None:
    """All levels, a row of bytes for each sample.

    ``packed`` are two in a byte: the first half of a sample in the low bits, the second in the high bits.
    """
    samples, channels, length = values.shape
    half = out.shape[1]
    spare = np.zeros(2 * half if packed else 0, np.uint8)
    low, high = spare[:half], spare[half:]
    for sample in range(samples):
        row = spare if packed else out[sample]
        for channel in range(channels):
            start = (sample * channels + channel) * length
            scale = scales[sample * by_sample, channel]
            part = row[channel * length : (channel + 1) * length]
            levels(values[sample, channel], scale, reach, start, first, second, part)
        if packed:
            for i in range(half):
                out[sample, i] = low[i] | (high[i] << 4)


@compiled
def sound(scales: Values, reach: int) -> bool:
    """Whether no scale is, or leads to, NaN or infinity."""
    for row in range(scales.shape[0]):
        for channel in range(scales.shape[1]):
            scale = scales[row, channel]
            highest = np.float32(abs(scale) * np.float32(reach if scale > 0 else 2 * reach + 1))
            if not highest < np.inf:
                return False
    return True


@compiled
def numbers(row: Bytes, scale: float, reach: int, run: Values) -> bool:
    """The numbers of one channel of one sample; whether it has no level that its scale does not have."""
    offset, top = np.int32(0), np.uint8(0)
    if scale > 0:
        offset, top = np.int32(reach), np.uint8(2 * reach)
    if scale < 0:
        top = np.uint8(2 * reach + 1)
    step = np.float32(abs(scale))
    highest = np.uint8(0)
    for i in range(run.shape[0]):
        highest = max(highest, row[i])
        run[i] = np.float32(np.int32(np.int32(row[i]) - offset)) * step
    return bool(highest <= top)


@compiled
def restore(data: Bytes, by_sample: int, scales: Values, reach: int, packed: bool, values: Values) -> bool:
    """The other way round; whether the bytes are such as :func:`quantise` makes."""
    samples, channels, length = values.shape
    half, right = data.shape[1], True
    spare = np.zeros(2 * half if packed else 0, np.uint8)
    low, high = spare[:half], spare[half:]
    for sample in range(samples):
        row = spare if packed else data[sample]
        if packed:
            for i in range(half):
                low[i] = data[sample, i] & 15
            for i in range(half):
                high[i] = data[sample, i] >> 4
            right &= channels * length == 2 * half or spare[2 * half - 1] == 0
        for channel in range(channels):
            scale = scales[sample * by_sample, channel]
            part = row[channel * length : (channel + 1) * length]
            right &= numbers(part, scale, reach, values[sample, channel])
    return right
