"""Bitmaps and packed indices, and what they say of numbers, as fused loops.

Bit ``i % 8`` of byte ``i // 8`` stands for element i.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.compiled import compiled

Bytes = NDArray[np.uint8]
Words = NDArray[np.int32]

_BINS = 2048
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.int32)
_BEFORE = np.cumsum(np.pad(_BITS, ((0, 0), (1, 0))), axis=1)
"""Of each byte, how many of its bits are set before bit 0 … 8."""
_MASK = -_BITS
"""Of each byte, all ones for a bit that is set."""


@compiled
def count(bits: Words) -> int:
    """How many patterns are not zero."""
    found = 0
    for i in range(bits.shape[0]):
        found += bits[i] != 0
    return found


@compiled
def compress(bits: Words, kept: Words, bitmap: Bytes) -> None:
    """The patterns that are not zero, in order, and a bitmap of where they are."""
    size = bits.shape[0]
    place: Any = 0
    for byte in range(bitmap.shape[0]):
        mask: Any = 0
        for i in range(8 * byte, min(8 * byte + 8, size)):
            there = np.int64(bits[i] != 0)
            mask |= there << (i & 7)
            # What is written behind the last one is written over by it, so no branch is to be guessed.
            if place < kept.shape[0]:
                kept[place] = bits[i]
            place += there
        bitmap[byte] = mask


@compiled
def ones(bitmap: Bytes, size: int) -> int:
    """How many of the first ``size`` bits are set; -1 where one of the others is."""
    found = 0
    for i in range(bitmap.shape[0]):
        pairs = bitmap[i] - ((bitmap[i] >> 1) & 0x55)
        fours = (pairs & 0x33) + ((pairs >> 2) & 0x33)
        found += (fours + (fours >> 4)) & 0x0F
    if size % 8 and bitmap[bitmap.shape[0] - 1] >> (size % 8):
        return -1
    return found


@compiled
def expand(kept: Words, bitmap: Bytes, bits: Words) -> None:
    """Each pattern at its place, zeros elsewhere; the bitmap has as many bits as there are patterns."""
    size, place, last = bits.shape[0], 0, kept.shape[0] - 1
    if last < 0:
        bits[:] = 0
        return
    for byte in range(bitmap.shape[0]):
        value = bitmap[byte]
        for i in range(min(8, size - 8 * byte)):
            # Tables in place of a branch on every bit, which could be guessed only half the time.
            source = min(place + _BEFORE[value, i], last)
            bits[8 * byte + i] = kept[source] & _MASK[value, i]
        place += _BEFORE[value, 8]


@compiled
def threshold(bits: Words, count: int, bins: Words) -> int:
    """The magnitude, as a pattern, of the element at place ``count`` from the largest on.

    Found digit by digit: the first eleven bits of all, then ten of those that agree with it, and ten more.
    """
    found: Any = np.int32(0)
    wanted = count
    shifts, prefixes = (20, 10, 0), (31, 20, 10)
    for digit in range(3):
        bins[:] = 0
        shift, prefix = shifts[digit], prefixes[digit]
        for i in range(bits.shape[0]):
            magnitude = bits[i] & 0x7FFFFFFF
            if magnitude >> prefix == found >> prefix:
                bins[(magnitude >> shift) & (_BINS - 1 if digit == 0 else 1023)] += 1
        place = _BINS - 1
        while bins[place] < wanted:
            wanted -= bins[place]
            place -= 1
        found |= place << shift
    return int(found)


@compiled
def largest(bits: Words, kept: Words, places: Words) -> bool:
    """The largest of each sample, in order of place, and their places; of equal ones the first.

    Returns whether no element is NaN.
    """
    bins = np.empty(_BINS, np.int32)
    count = kept.shape[1]
    for sample in range(bits.shape[0]):
        row, top = bits[sample], np.int32(0)
        for i in range(row.shape[0]):
            top = max(top, np.int32(row[i] & np.int32(0x7FFFFFFF)))
        if top > 0x7F800000:
            return False
        least = threshold(row, count, bins)
        equal = count
        for i in range(row.shape[0]):
            equal -= (row[i] & 0x7FFFFFFF) > least
        place: Any = 0
        for i in range(row.shape[0]):
            if place == count:
                break
            magnitude = row[i] & 0x7FFFFFFF
            tie = np.int64((magnitude == least) & (equal > 0))
            kept[sample, place], places[sample, place] = row[i], i
            place += np.int64(magnitude > least) | tie
            equal -= tie
    return True


@compiled
def pack_bitmap(places: Words, packed: Bytes) -> None:
    """The places of each sample as a bitmap."""
    packed[:] = 0
    for sample in range(places.shape[0]):
        for i in range(places.shape[1]):
            place = places[sample, i]
            packed[sample, place >> 3] |= np.uint8(1 << (place & 7))


@compiled
def pack_indices(places: Words, width: int, packed: Bytes) -> None:
    """The places of each sample as whole numbers of ``width`` bits, the lowest first."""
    for sample in range(places.shape[0]):
        held, fill, at = np.int64(0), 0, 0
        for i in range(places.shape[1]):
            held |= np.int64(places[sample, i]) << fill
            fill += width
            while fill >= 8:
                packed[sample, at] = held & 255
                held, fill, at = held >> 8, fill - 8, at + 1
        if fill:
            packed[sample, at] = held


@compiled
def place_by_bitmap(kept: Words, packed: Bytes, bits: Words) -> bool:
    """Each pattern at its place, zeros elsewhere; whether each bitmap is one of so many places."""
    for sample in range(kept.shape[0]):
        if ones(packed[sample], bits.shape[1]) != kept.shape[1]:
            return False
        expand(kept[sample], packed[sample], bits[sample])
    return True


@compiled
def place_by_indices(kept: Words, packed: Bytes, width: int, bits: Words) -> bool:
    """The same by indices; whether each list of them goes up and stays within a sample."""
    bits[:] = 0
    for sample in range(kept.shape[0]):
        held, fill, at, last = np.int64(0), 0, 0, np.int64(-1)
        for i in range(kept.shape[1]):
            while fill < width:
                held |= np.int64(packed[sample, at]) << fill
                fill, at = fill + 8, at + 1
            place = held & ((np.int64(1) << width) - 1)
            held, fill = held >> width, fill - width
            if not last < place < bits.shape[1]:
                return False
            bits[sample, place] = kept[sample, i]
            last = place
        if held:
            return False
    return True
