"""What codecs answer, a user's own among them, and what they declare that a tensor takes."""

from collections.abc import Callable
from typing import TypeVar

from cutwater.base.errors import CodecError, CutwaterError
from cutwater.base.kinds import quote
from cutwater.base.usercode import told
from cutwater.codec.value import TENSOR, Codec, Shape, Size

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
