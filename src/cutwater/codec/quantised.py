"""Codecs that send every number as a level of a scale: int8 and int4.

A message is the float32 scales, then the levels. A tensor of four or more dimensions (samples, channels,
height, width …) has a scale for each channel in a message; one of two or three dimensions has a scale for
each sample. A scale below zero marks a channel without negative numbers, such as one behind a ReLU, whose
levels are then twice as dense. One number a sample is sent as float32: its scale would be as long.
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from cutwater.base.arrays import aligned_floats
from cutwater.base.errors import CodecError
from cutwater.codec import quantise_loops as loops
from cutwater.codec.floats import Fp32
from cutwater.codec.value import (
    TENSOR,
    Bytes,
    Shape,
    Size,
    Values,
    checked_values,
    exact_data,
)

_WORD = 2**64
_LOW = 2**32 - 1


def key_of(seed: int) -> tuple[np.uint32, np.uint32]:
    """Two halves of a key that differ in every bit for seeds that are next to each other (splitmix64).

    >>> key_of(0) == key_of(2**64), key_of(0) == key_of(1)
    (True, False)
    """
    mixed = (seed + 0x9E3779B97F4A7C15) % _WORD
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) % _WORD
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) % _WORD
    mixed ^= mixed >> 31
    return np.uint32(mixed & _LOW), np.uint32(mixed >> 32)


class _Layout(NamedTuple):
    """How the loops see a tensor, and where its scales are."""

    tensor: tuple[int, int, int]
    scales: tuple[int, int]
    by_sample: int

    @classmethod
    def of(cls, shape: Shape) -> "_Layout":
        """By its dimensions, samples included."""
        samples, sample = shape[0], shape[1:]
        if len(shape) > 3:
            return cls((samples, sample[0], prod(sample[1:])), (1, sample[0]), 0)
        return cls((samples, 1, prod(sample)), (samples, 1), 1)


@dataclass(frozen=True)
class Quantised:
    """Levels of ``bits`` bits, rounded up or down at random so that a number is met on average.

    Each draw follows from the seed and the place of its number alone, so the bytes are the same on every
    machine. The levels of a sample are padded to whole bytes.
    """

    bits: int
    lossless: ClassVar[bool] = False
    at_most: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """``int8`` or ``int4``."""
        return f"int{self.bits}"

    @property
    def _reach(self) -> int:
        """The highest level of a signed channel: 127 or 7."""
        return int(2 ** (self.bits - 1)) - 1

    def size(self, shape: Shape) -> Size:
        """The levels, and a scale for each channel of a message or for each sample."""
        if not shape:
            return Size(32, 0)
        levels = 8 * self._row(shape)
        return Size(levels, 32 * shape[0]) if len(shape) > 2 else Size(levels + 32, 0)

    def encode(self, values: Values, seed: int) -> Bytes:
        """One pass for the extremes of each channel, one for the levels."""
        values = checked_values(values)
        if values.ndim == 1:
            return Fp32().encode(values, seed)
        layout = _Layout.of(values.shape)
        tensor = values.reshape(layout.tensor)
        data = np.empty(self.size(values.shape[1:]).bits(len(values)) // 8, np.uint8)
        scales, rows = self._parts(data, layout, values.shape)
        largest, below = np.empty(layout.scales, np.int32), np.empty(layout.scales, np.int32)
        if not loops.extremes(tensor.view(np.int32), layout.by_sample, largest, below):
            raise CodecError(
                f"{TENSOR} holds NaN or infinity, which {self.name} can't carry: if training diverges, lower "
                "its learning rate, or use bf16, which carries both"
            )
        made = scales.view(np.float32)
        loops.scale_all(largest.view(np.float32), below, self._reach, made)
        loops.quantise(tensor, layout.by_sample, made, self._reach, *key_of(seed), self._packed, rows)
        return data

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """Every level times the scale of its channel."""
        data = exact_data(self, data, shape)
        if len(shape) == 1:
            return Fp32().decode(data, shape)
        layout = _Layout.of(shape)
        head, rows = self._parts(data, layout, shape)
        scales = head.copy().view(np.float32)
        if not loops.sound(scales, self._reach):
            raise CodecError(f"{TENSOR} has a scale that is not finite, which {self.name} never makes")
        values = aligned_floats(shape)
        tensor = values.reshape(layout.tensor)
        if not loops.restore(rows, layout.by_sample, scales, self._reach, self._packed, tensor):
            raise CodecError(f"{TENSOR} has levels beyond those of its scales, which {self.name} never makes")
        return values

    @property
    def _packed(self) -> bool:
        return self.bits == 4

    def _row(self, shape: Shape) -> int:
        """Bytes for the levels of one sample."""
        return -(-prod(shape) * self.bits // 8)

    def _parts(self, data: Bytes, layout: _Layout, shape: Shape) -> tuple[Bytes, Bytes]:
        """Where the scales are, by rows, and where the levels are, by samples."""
        rows, channels = layout.scales
        split = 4 * rows * channels
        return (
            data[:split].reshape(rows, 4 * channels),
            data[split:].reshape(shape[0], self._row(shape[1:])),
        )
