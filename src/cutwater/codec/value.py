"""What a codec is: one float32 tensor that crosses a cut, as bytes and back; held to what it declares.

Loads neither torch nor a compiler: a profile tells what crosses its cuts by this.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cutwater.base.arrays import aligned_floats, is_aligned
from cutwater.base.errors import CodecError, CutwaterError
from cutwater.base.kinds import quote
from cutwater.base.usercode import told

Values = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Shape = tuple[int, ...]
Held = TypeVar("Held", bound=np.generic)
Made = TypeVar("Made")

TENSOR = "the tensor"
"""How a codec's sentences begin; who knows which tensor it is says that instead (see :func:`called`)."""


class Size(NamedTuple):
    """What an encoded tensor takes, in bits; both are whole numbers of bytes."""

    sample: int
    """For each sample."""
    message: int
    """For each message, that is a micro-batch, whatever the number of its samples."""

    def bits(self, samples: int) -> int:
        """Bits of a message with so many samples.

        >>> Size(sample=80, message=64).bits(3)
        304
        """
        return self.sample * samples + self.message


class Codec(Protocol):
    """A float32 tensor of (samples, \\*shape) as bytes, and back.

    One of your own is any object with these attributes. It is named as ``"package.module:function"``, where
    the function or class makes it when called without arguments, and refuses what it can't carry by raising
    :class:`~cutwater.base.errors.CodecError` with a sentence that begins with "the tensor". It should be a
    pure function of its arguments, because a run is the same bits wherever it is carried out: whatever it
    draws, it draws from ``seed``.
    """

    @property
    def name(self) -> str:
        """As sentences call it."""

    @property
    def lossless(self) -> bool:
        """Whether what is decoded has the bits of what was encoded, always."""

    @property
    def at_most(self) -> bool:
        """Whether :meth:`size` is an upper bound; otherwise it is exact."""

    def size(self, shape: Shape) -> Size:
        """Of a tensor whose samples have this shape."""

    def encode(self, values: Values, seed: int) -> Bytes:
        """The bytes, in one dimension, of a tensor in C order whose first dimension is its samples."""

    def decode(self, data: Bytes, shape: Shape) -> Values:
        """The tensor of this shape, samples included; bytes that can't be its own are refused."""


def checked_values(values: Values) -> Values:
    """The tensor, if it is one of float32 with samples, as loops take it."""
    if not isinstance(values, np.ndarray) or values.dtype != np.float32 or values.ndim == 0:
        held = (
            f"{values.dtype} in {values.ndim} dimensions" if isinstance(values, np.ndarray) else type(values)
        )
        raise CodecError(
            f"{TENSOR} is {held}, but codecs take float32 arrays whose first dimension is samples"
        )
    return plain(values)


def checked_data(data: Bytes, shape: Shape) -> Bytes:
    """The bytes, if they are bytes and the shape is one, as loops take them."""
    if not shape or any(size < 0 for size in shape):
        raise CodecError(f"{TENSOR} can't have shape {shape}: its first dimension is samples")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        held = f"{data.dtype} in {data.ndim} dimensions" if isinstance(data, np.ndarray) else type(data)
        raise CodecError(f"{TENSOR} comes as {held}, but codecs read arrays of uint8 in one dimension")
    return plain(data)


def exact_data(codec: Codec, data: Bytes, shape: Shape) -> Bytes:
    """The same where the codec makes a fixed number of bytes of each shape, and these must be as many."""
    data = checked_data(data, shape)
    wanted = codec.size(shape[1:]).bits(shape[0]) // 8
    if len(data) != wanted:
        raise CodecError(
            f"{TENSOR} comes in {len(data):,} bytes, but {codec.name} makes {wanted:,} of shape {shape}"
        )
    return data


def plain(array: NDArray[Held]) -> NDArray[Held]:
    """The array in C order, aligned and free to be written to; a copy where it is not.

    Loops are compiled for each kind of array that they meet, which takes longer than any copy.
    """
    return array if array.flags.carray else array.copy()


def aligned(data: Bytes, dtype: type[Held]) -> NDArray[Held]:
    """The bytes as other numbers, over the same memory where their address allows it."""
    return plain(data.view(dtype))


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
