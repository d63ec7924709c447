"""Image files as their makers published them: idx (MNIST, Fashion-MNIST) and CIFAR-10's binary version.

Both are raw bytes behind a header that is checked before anything is allocated; nothing is unpickled.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import DataError

_MOST_BYTES = 2**31
"""No idx file of images is larger; a header that claims more is corrupt."""
_CIFAR_RECORD = 1 + 3 * 32 * 32
"""A CIFAR-10 record: the label, then 32 × 32 pixels of red, green and blue."""


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of an idx file of bytes, raw or gzipped."""
    try:
        with _open(path) as file:
            return _read_idx(file, path, dimensions)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}); fetch the file again") from error


def read_cifar(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N × 3 × 32 × 32) and labels of one batch of CIFAR-10's binary version."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror or error}") from error
    if not content or len(content) % _CIFAR_RECORD:
        raise DataError(
            f"{path} has {len(content):,} bytes, but CIFAR-10's binary version has a multiple of "
            f"{_CIFAR_RECORD:,}; fetch the file again"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _CIFAR_RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _open(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _read_idx(file: BinaryIO, path: Path, dimensions: int) -> NDArray[np.uint8]:
    magic = file.read(4)
    if magic != bytes([0, 0, 8, dimensions]):
        raise DataError(
            f"{path} starts with {magic.hex() or 'nothing'}, but an idx file of bytes in {dimensions} "
            f"dimensions starts with {bytes([0, 0, 8, dimensions]).hex()}; fetch the file again"
        )
    header = file.read(4 * dimensions)
    if len(header) != 4 * dimensions:
        raise DataError(f"{path} ends within its header; fetch the file again")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
    expected = math.prod(shape)
    # One byte more than promised is enough to see that a file is too long, and a bomb is never unpacked.
    content = file.read(expected + 1) if expected <= _MOST_BYTES else b""
    if len(content) != expected:
        raise DataError(
            f"{path} promises {expected:,} bytes ({'x'.join(map(str, shape))}) and has "
            f"{'more' if len(content) > expected else 'fewer'}; fetch the file again"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)
