"""The lossless codec: numbers whose bits are all zero cost one bit each, where that pays."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from cutwater.base.arrays import aligned_floats
from cutwater.base.errors import CodecError
from cutwater.codec import bit_loops
from cutwater.codec.value import (
    TENSOR,
    Bytes,
    Shape,
    Size,
    Values,
    aligned,
    checked_data,
    checked_values,
)

_HEADER = 8
"""Bytes: a flag and zeros, so that the numbers behind them stay aligned."""
_RAW, _SPARSE = 0, 1


@dataclass(frozen=True)
class Lossless:
    """float32 without its zeros, such as a ReLU makes; every bit survives, those of -0 and NaN too.

    A message is a header of 8 bytes and then either all numbers or, where that is shorter, those whose bit
    pattern is not zero, followed by a bitmap of where they are.
    """

    name: ClassVar[str] = "lossless"
    lossless: ClassVar[bool] = True
    at_most: ClassVar[bool] = True

    def size(self, shape: Shape) -> Size:
        """At most the header more than float32 as it is."""
        return Size(32 * prod(shape), 8 * _HEADER)

    def encode(self, values: Values, seed: int) -> Bytes:
        """The shorter of both."""
        bits = checked_values(values).reshape(-1).view(np.int32)
        kept, bitmap = 4 * bit_loops.count(bits), -(-bits.size // 8)
        sparse = kept + bitmap < 4 * bits.size
        data = np.empty(_HEADER + (kept + bitmap if sparse else 4 * bits.size), np.uint8)
        data[:_HEADER] = 0
        data[0] = _SPARSE if sparse else _RAW
        body = data[_HEADER:]
        if sparse:
            bit_loops.compress(bits, body[:kept].view(np.int32), body[kept:])
        else:
            body[:] = bits.view(np.uint8)
        return data

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """The same bits, or a sentence on why they can't be."""
        data = checked_data(data, shape)
        if len(data) < _HEADER or data[0] not in (_RAW, _SPARSE) or data[1:_HEADER].any():
            raise CodecError(f"{TENSOR} does not begin with a header of {self.name}")
        body, size = data[_HEADER:], prod(shape)
        if data[0] == _SPARSE:
            return self._expanded(body, size).reshape(shape)
        if len(body) != 4 * size:
            raise CodecError(
                f"{TENSOR} comes in {len(data):,} bytes, but {self.name} makes {4 * size + _HEADER:,} of all "
                f"numbers of shape {shape}"
            )
        return aligned(body, np.float32).reshape(shape)

    def _expanded(self, body: Bytes, size: int) -> Values:
        kept = len(body) - -(-size // 8)
        if kept < 0 or kept % 4 or len(body) >= 4 * size:
            raise CodecError(
                f"{TENSOR} has {len(body):,} bytes of a bitmap and its numbers, which {self.name} never "
                f"makes of {size:,} numbers"
            )
        bitmap = body[kept:]
        if bit_loops.ones(bitmap, size) != kept // 4:
            raise CodecError(f"{TENSOR} has a bitmap that is not one of its {kept // 4:,} numbers")
        values = aligned_floats((size,))
        bit_loops.expand(aligned(body[:kept], np.int32), bitmap, values.view(np.int32))
        return values
