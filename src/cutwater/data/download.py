"""Files fetched over HTTPS into a cache, checked before anybody sees them."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from cutwater.base.errors import CutwaterError, DataError
from cutwater.base.jsonfile import write_atomically
from cutwater.base.speech import Say, quiet

_TIMEOUT_SECONDS = 30.0
_MOST_BYTES = 256 * 2**20
"""Far above any file that is fetched; a mirror that sends more is not the one we want."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


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
        content: bytes = answer.read(_MOST_BYTES + 1)
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
