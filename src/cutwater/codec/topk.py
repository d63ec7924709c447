"""The top-k codec: of each sample only its largest numbers."""

from dataclasses import dataclass
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np

from cutwater.base.arrays import aligned_floats
from cutwater.base.errors import CodecError
from cutwater.base.kinds import Number
from cutwater.codec import bit_loops
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

KEEP = Number(above=0, most=1)
"""What fraction may be kept."""
_MOST = 2**31 - 1


class _Layout(NamedTuple):
    """What of a sample is sent."""

    kept: int
    width: int
    """Bits of an index."""
    bitmap: bool
    """Whether a bitmap says where the numbers were, and not indices."""
    bytes: int
    """What either takes."""


@dataclass(frozen=True)
class TopK:
    """The fraction ``keep`` of each sample's numbers, those of largest magnitude; the others become zero.

    At least one is kept, and of equal ones the first. A message is the numbers, in their order, and then
    where they were: a bitmap or indices, whichever is shorter, padded to whole bytes for each sample.
    """

    keep: float = 0.1
    name: ClassVar[str] = "topk"
    lossless: ClassVar[bool] = False
    at_most: ClassVar[bool] = False

    def __post_init__(self) -> None:
        KEEP.check(self.keep, "keep of topk", CodecError)

    def size(self, shape: Shape) -> Size:
        """32 bits for each number that is kept, and where it was."""
        layout = self._layout(prod(shape))
        return Size(32 * layout.kept + 8 * layout.bytes, 0)

    def encode(self, values: Values, seed: int) -> Bytes:
        """Without anything drawn."""
        values = checked_values(values)
        samples, size = len(values), prod(values.shape[1:])
        layout = self._layout(size)
        data = np.empty(samples * (4 * layout.kept + layout.bytes), np.uint8)
        kept, packed = self._parts(data, samples, layout)
        places = np.empty(kept.shape, np.int32)
        if not bit_loops.largest(values.reshape(samples, size).view(np.int32), kept, places):
            raise CodecError(
                f"{TENSOR} holds NaN, which {self.name} can't carry because it has no magnitude: if training "
                "diverges, lower its learning rate, or use bf16, which carries it"
            )
        if layout.bitmap:
            bit_loops.pack_bitmap(places, packed)
        else:
            bit_loops.pack_indices(places, layout.width, packed)
        return data

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """What was kept at its place, and zeros."""
        data = exact_data(self, data, shape)
        samples, size = shape[0], prod(shape[1:])
        layout = self._layout(size)
        kept, packed = self._parts(data, samples, layout)
        values = aligned_floats(shape)
        bits = values.reshape(samples, size).view(np.int32)
        right = (
            bit_loops.place_by_bitmap(kept, packed, bits)
            if layout.bitmap
            else bit_loops.place_by_indices(kept, packed, layout.width, bits)
        )
        if not right:
            raise CodecError(
                f"{TENSOR} does not say where in a sample of {size:,} numbers the {layout.kept:,} were that "
                f"{self.name} keeps"
            )
        return values

    def _layout(self, size: int) -> _Layout:
        if size > _MOST:
            raise CodecError(
                f"{TENSOR} has samples of {size:,} numbers, but {self.name} takes up to {_MOST:,}"
            )
        kept = min(max(round(self.keep * size), 1), size)
        width = max(size - 1, 0).bit_length()
        shorter = min(kept * width, size)
        return _Layout(kept, width, size < kept * width, -(-shorter // 8))

    @staticmethod
    def _parts(data: Bytes, samples: int, layout: _Layout) -> tuple[np.ndarray, Bytes]:
        """The numbers that are kept, and where they were, both by samples."""
        split = 4 * samples * layout.kept
        kept = aligned(data[:split], np.int32).reshape(samples, layout.kept)
        return kept, data[split:].reshape(samples, layout.bytes)
