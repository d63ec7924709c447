"""Half-precision numbers and float32, as fused loops over bit patterns.

All take and fill arrays of one dimension: ``bits`` those of float32 as uint32, ``halves`` uint16.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.compiled import compiled

Bits = NDArray[np.uint32]
Halves = NDArray[np.uint16]

_INFINITY = 0x7F800000
"""The bit pattern; those above it are NaN."""
_FP16_LIMIT = 0x477FF000
"""65,520 as float32: the smallest magnitude that fp16 rounds to infinity."""
_SMALLEST_NORMAL = 0x38800000
"""2**-14 as float32: what is smaller is a whole number of 2**-24 in fp16."""
_REBIAS = (127 - 15) << 23


@compiled
def to_bf16(bits: Bits, halves: Halves) -> None:
    """Round to nearest, ties to even; a NaN keeps its sign and the upper bits of its payload."""
    for i in range(bits.shape[0]):
        word = np.int64(bits[i])
        nan = (word & 0x7FFFFFFF) > _INFINITY
        rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
        # A NaN whose payload was all in the lower bits would become infinity without the quiet bit.
        halves[i] = np.uint16((word >> 16) | 0x40 if nan else rounded)


@compiled
def from_bf16(halves: Halves, bits: Bits) -> None:
    """Every bfloat16 is a float32."""
    for i in range(halves.shape[0]):
        bits[i] = np.uint32(halves[i]) << np.uint32(16)


@compiled
def to_fp16(bits: Bits, halves: Halves) -> bool:
    """Round to nearest, ties to even; whether no finite value was beyond fp16's range."""
    beyond: Any = 0
    for i in range(bits.shape[0]):
        word = np.int32(bits[i])
        magnitude = np.int32(word & np.int32(0x7FFFFFFF))
        beyond |= (magnitude >= _FP16_LIMIT) & (magnitude < _INFINITY)
        # The product is exact, and rint rounds ties to even; what is larger has no such whole number.
        fraction = np.int32(min(magnitude, np.int32(_SMALLEST_NORMAL))).view(np.float32)
        small = np.int32(np.rint(fraction * np.float32(2.0**24)))
        normal = np.int32((magnitude - _REBIAS + 0xFFF + ((magnitude >> 13) & 1)) >> 13)
        half = small if magnitude < _SMALLEST_NORMAL else normal
        if magnitude >= _INFINITY:
            half = np.int32(0x7C00)
        if magnitude > _INFINITY:
            half = np.int32(0x7E00 | ((magnitude >> 13) & 0x3FF))
        halves[i] = np.uint16(half | ((word >> 16) & 0x8000))
    return bool(beyond == 0)


@compiled
def from_fp16(halves: Halves, bits: Bits) -> None:
    """Every fp16 is a float32."""
    for i in range(halves.shape[0]):
        half = np.int32(halves[i])
        magnitude = half & 0x7FFF
        shifted = (magnitude << 13) + _REBIAS
        word: Any = shifted + _REBIAS if magnitude >= 0x7C00 else shifted
        if magnitude < 0x400:
            word = np.int64(np.float32(np.float32(magnitude) * np.float32(2.0**-24)).view(np.int32))
        bits[i] = np.uint32(word | ((half & 0x8000) << 16))
