"""What a codec is: one float32 tensor that crosses a cut, as bytes and back."""

from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import CodecError

Values = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Shape = tuple[int, ...]
Held = TypeVar("Held", bound=np.generic)

TENSOR = "the tensor"
"""How a codec's sentences begin; who knows which tensor it is says that instead (see ``checked``)."""


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
