"""Image files as their makers published them: fetched into a cache, and read.

What comes over HTTPS is checked before anybody sees it. Both kinds of file, idx (MNIST, Fashion-MNIST) and
CIFAR-10's binary version, are raw bytes behind a header that is checked before anything is allocated; nothing
is unpickled.
"""

import gzip
import hashlib
import math
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import CutwaterError, DataError
from cutwater.base.jsonfile import write_atomically
from cutwater.base.speech import Say, quiet

_TIMEOUT_SECONDS = 30.0
_MOST_FETCHED = 256 * 2**20
"""Far above any file that is fetched; a mirror that sends more is not the one we want."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MOST_BYTES = 2**31
"""No idx file of images is larger; a header that claims more is corrupt."""
_CIFAR_RECORD = 1 + 3 * 32 * 32
"""A CIFAR-10 record: the label, then 32 × 32 pixels of red, green and blue."""


def fetch(folder: Path, sums: Mapping[str, str], mirrors: Sequence[str], say: Say = quiet) -> None:
    """Bring every file of ``sums`` (name → MD5) into a folder, from the first mirror that has it."""
    for name, md5 in sums.items():
        path = folder / name
        if path.is_file() and md5_of(path.read_bytes()) == md5:
            continue
        say(f"fetching {name}")
        write_atomically(path, _first(name, md5, mirrors))


def _first(name: str, md5: str, mirrors: Sequence[str]) -> bytes:
    failures = []
    for mirror in mirrors:
        url = mirror.rstrip("/") + "/" + name
        try:
            return _get(url, md5)
        # What is no address at all is a ValueError.
        except (OSError, HTTPException, ValueError, CutwaterError) as error:
            failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
    raise DataError("; ".join(failures) or "no mirror is given")


def _get(url: str, md5: str) -> bytes:
    _check_address(url)
    with urllib.request.build_opener(_SecureRedirects).open(url, timeout=_TIMEOUT_SECONDS) as answer:
        content: bytes = answer.read(_MOST_FETCHED + 1)
    if md5_of(content) != md5:
        raise DataError(f"the file's MD5 is {md5_of(content)}, not {md5}")
    return content


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """A mirror may send us elsewhere, but not out of HTTPS."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        """The request that follows a redirect."""
        _check_address(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    # MD5 guards against broken files, not against forged ones: the connection has to.
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise DataError(f"{url} is not an https:// address")


def md5_of(content: bytes) -> str:
    """The checksum that mirrors tell of a file."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of an idx file of bytes, raw or gzipped."""
    try:
        with cast("BinaryIO", gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
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
