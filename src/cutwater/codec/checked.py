"""Codecs at work, a user's own among them: what they make is held to what they declare.

Loads neither torch nor a compiler: a profile tells what crosses its cuts by this.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from cutwater.base.arrays import aligned_floats, is_aligned
from cutwater.base.errors import CodecError, CutwaterError
from cutwater.base.kinds import quote
from cutwater.base.usercode import told
from cutwater.codec.value import TENSOR, Bytes, Codec, Shape, Size, Values, checked_values

Made = TypeVar("Made")


def called(codec: Codec, done: str, what: str, call: Callable[[], Made]) -> Made:
    """What a codec answers; what it refuses is told of ``what``."""
    try:
        return call()
    except CodecError as error:
        sentence = str(error)
        begun = sentence.startswith(TENSOR)
        raise CodecError(what + sentence.removeprefix(TENSOR) if begun else f"{what}: {sentence}") from error
    except CutwaterError:
        raise
    except Exception as error:  # whatever a user's codec does
        raise CodecError(
            f"{what} can't be {done} by codec {codec.name!r} ({told(error)}): mend the codec, or use another"
        ) from error


def size_checked(codec: Codec, shape: Shape, what: str) -> Size:
    """What the codec declares for samples of this shape, if that is a size."""
    size = called(codec, "measured", what, lambda: codec.size(shape))
    if isinstance(size, Size) and all(isinstance(one, int) and one >= 0 and one % 8 == 0 for one in size):
        return size
    raise CodecError(
        f"{what} has, says codec {codec.name!r}, the size {quote(size)}, but that must be a Size of bits for "
        "each sample and each message, both whole numbers of bytes"
    )


def encode_checked(codec: Codec, values: Values, seed: int, what: str) -> Bytes:
    """The tensor as bytes, as many as the codec declares; ``what`` is "smashed data of step 3", say."""
    values = called(codec, "encoded", what, lambda: checked_values(values))
    bits = size_checked(codec, values.shape[1:], what).bits(len(values))
    data = called(codec, "encoded", what, lambda: codec.encode(values, seed))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise CodecError(
            f"{what} became {_kind(data)} by codec {codec.name!r}, but must become uint8 in one dimension"
        )
    made = 8 * data.size
    if made > bits or (made < bits and not codec.at_most):
        bound = "at most " if codec.at_most else ""
        raise CodecError(
            f"{what} became {made:,} bits by codec {codec.name!r}, which declares {bound}{bits:,} for shape "
            f"{values.shape}: mend its size or its encode"
        )
    return data


def decode_checked(codec: Codec, data: Bytes, shape: Shape, what: str) -> Values:
    """The tensor of the bytes, if the codec makes one of this shape (samples included).

    It lies as torch's own tensors do, because what is computed with it may depend on that in its last bits.
    """
    values = called(codec, "decoded", what, lambda: codec.decode(data, shape))
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.shape != tuple(shape):
        raise CodecError(
            f"{what} became {_kind(values)} by codec {codec.name!r}, but must become float32 of shape {shape}"
        )
    if values.flags.c_contiguous and is_aligned(values):
        return values
    moved = aligned_floats(tuple(shape))
    moved[...] = values
    return moved


def _kind(made: object) -> str:
    return f"{made.dtype} of shape {made.shape}" if isinstance(made, np.ndarray) else type(made).__name__
