"""Codecs that send every number as a float of its own: fp32, bf16 and fp16."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from cutwater.base.arrays import aligned_floats
from cutwater.base.errors import CodecError
from cutwater.codec import float_loops
from cutwater.codec.value import (
    TENSOR,
    Bytes,
    Shape,
    Size,
    Values,
    aligned,
    checked_values,
    exact_data,
)


@dataclass(frozen=True)
class Fp32:
    """The tensor as it is, without a copy."""

    name: ClassVar[str] = "fp32"
    lossless: ClassVar[bool] = True
    at_most: ClassVar[bool] = False

    def size(self, shape: Shape) -> Size:
        """32 bits a number."""
        return Size(32 * prod(shape), 0)

    def encode(self, values: Values, seed: int) -> Bytes:
        """Its memory."""
        return checked_values(values).reshape(-1).view(np.uint8)

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """The tensor over the bytes' memory, or over a copy's if its address is odd or it is locked."""
        return aligned(exact_data(self, data, shape), np.float32).reshape(shape)


@dataclass(frozen=True)
class Bf16:
    """The upper half of every number: float32's range, 8 bits of precision."""

    name: ClassVar[str] = "bf16"
    lossless: ClassVar[bool] = False
    at_most: ClassVar[bool] = False

    def size(self, shape: Shape) -> Size:
        """16 bits a number."""
        return Size(16 * prod(shape), 0)

    def encode(self, values: Values, seed: int) -> Bytes:
        """Rounded to nearest, ties to even."""
        bits = checked_values(values).reshape(-1).view(np.uint32)
        halves = np.empty(bits.size, np.uint16)
        float_loops.to_bf16(bits, halves)
        return halves.view(np.uint8)

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """Exactly what was sent."""
        halves = aligned(exact_data(self, data, shape), np.uint16)
        values = aligned_floats(shape)
        float_loops.from_bf16(halves, values.reshape(-1).view(np.uint32))
        return values


@dataclass(frozen=True)
class Fp16:
    """IEEE half precision: 11 bits of precision, magnitudes up to 65,504."""

    name: ClassVar[str] = "fp16"
    lossless: ClassVar[bool] = False
    at_most: ClassVar[bool] = False

    def size(self, shape: Shape) -> Size:
        """16 bits a number."""
        return Size(16 * prod(shape), 0)

    def encode(self, values: Values, seed: int) -> Bytes:
        """Rounded to nearest, ties to even; a finite number that would become infinite is refused."""
        flat = checked_values(values).reshape(-1)
        halves = np.empty(flat.size, np.uint16)
        if not float_loops.to_fp16(flat.view(np.uint32), halves):
            largest = np.abs(flat[np.isfinite(flat)]).max()
            raise CodecError(
                f"{TENSOR} holds {largest:g}, but the largest value that fp16 can carry is 65504: use bf16, "
                "which has the range of float32"
            )
        return halves.view(np.uint8)

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """Exactly what was sent."""
        halves = aligned(exact_data(self, data, shape), np.uint16)
        values = aligned_floats(shape)
        float_loops.from_fp16(halves, values.reshape(-1).view(np.uint32))
        return values
