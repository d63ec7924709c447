"""What crosses a cut, tensor by tensor, and what that takes. Needs no torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Annotated, Final

from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import Choice, Flag, Many, Whole
from cutwater.base.schema import check, described
from cutwater.codec.checked import size_checked
from cutwater.codec.value import Codec, Size

BITS: Final[dict[str, int]] = {
    "float32": 32,
    "float64": 64,
    "float16": 16,
    "bfloat16": 16,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "complex64": 64,
    "complex128": 128,
    "int64": 64,
    "int32": 32,
    "int16": 16,
    "int8": 8,
    "uint64": 64,
    "uint32": 32,
    "uint16": 16,
    "uint8": 8,
    "bool": 8,
}
"""What an element of each type takes as it is."""


@described("a crossing", FileFormatError)
@dataclass(frozen=True)
class Crossing:
    """One tensor that crosses a cut."""

    shape: Annotated[tuple[int, ...], Many(Whole(0)), "shape of one sample"]
    dtype: Annotated[str, Choice(tuple(BITS)), 'its type as torch calls it, such as "float32"']
    gradient: Annotated[bool, Flag(), "whether a gradient comes back for it"]

    def __post_init__(self) -> None:
        check(self)


def crossing_size(crossings: Iterable[Crossing], codec: Codec, *, down: bool) -> Size:
    """Smashed data up the link or, of those tensors that get one, gradients down.

    A codec is for float32; everything else (whole numbers, masks, other floats) crosses as it is.

    >>> from cutwater.codec.registry import find_codec
    >>> both = Crossing((64,), "float32", True), Crossing((16,), "int64", False)
    >>> crossing_size(both, find_codec("bf16"), down=False)
    Size(sample=2048, message=0)
    >>> crossing_size(both, find_codec("bf16"), down=True)
    Size(sample=1024, message=0)
    """
    sizes = [_size(one, codec) for one in crossings if one.gradient or not down]
    return Size(sum(size.sample for size in sizes), sum(size.message for size in sizes))


def _size(crossing: Crossing, codec: Codec) -> Size:
    if crossing.dtype == "float32":
        return size_checked(codec, crossing.shape, f"a tensor of {crossing.shape} a sample")
    return Size(BITS[crossing.dtype] * prod(crossing.shape), 0)
