"""Versioned JSON: what every saved value (profile, plan, …) looks like on disk.

A document is an object with ``format`` and ``version`` first, so that a person, a program and the next
release can tell what it is. Nothing is ever unpickled.
"""

import json
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cutwater.base.errors import FileFormatError


def document(format_: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """The JSON object that stands for a value."""
    return {"format": format_, "version": version, **body}


def check_document(data: object, format_: str, version: int, source: str = "the document") -> dict[str, Any]:
    """The body of a document, or a FileFormatError that says what it is instead."""
    if not isinstance(data, dict) or data.get("format") != format_:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise FileFormatError(f"{source} holds {found!r}, but a {format_!r} document is needed")
    if data.get("version") != version:
        raise FileFormatError(
            f"{source} has version {data.get('version')!r} of {format_!r}, but this release reads {version}"
        )
    return {key: value for key, value in data.items() if key not in ("format", "version")}


def read_json(path: str | os.PathLike[str]) -> Any:
    """Parsed JSON from a file, or one sentence on why not."""
    try:
        if Path(path).is_fifo():  # nobody may ever write to it
            raise FileFormatError(f"{path} is a pipe, so it is not read: name a file")
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except ValueError as error:  # a path that can't be one: it holds a null character
        raise FileFormatError(f"{str(path)!r} can't be read: {error}") from error
    return parse_json(content, str(path))


def parse_json(content: bytes, source: str) -> Any:
    """Parsed JSON, or one sentence on why not."""
    try:
        return json.loads(content.decode())
    except RecursionError:
        raise FileFormatError(f"{source} is not read: it is nested too deeply") from None
    except ValueError as error:  # no UTF-8, no JSON, a number of thousands of digits
        raise FileFormatError(f"{source} is not JSON: {error}") from error


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    write_atomically(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def write_atomically(path: str | os.PathLike[str], content: bytes | Iterable[bytes]) -> None:
    """Temporary file, fsync, rename, fsync of the folder; the content at once, or piece by piece.

    A link stays a link and leads to the new content; what is no file, such as /dev/stdout, is written to.
    """
    pieces = (content,) if isinstance(content, bytes) else content
    try:
        if Path(path).exists() and not Path(path).is_file():
            with Path(path).open("wb") as device:
                device.writelines(pieces)
            return
        target = Path(path).resolve()
        make_folder(target.parent)
        temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}")
        try:
            # Readable for whom new files are (the umask says), unless the old file says otherwise.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            with os.fdopen(descriptor, "wb") as file:
                if target.exists():
                    os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
                file.writelines(pieces)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    except OSError as error:
        raise FileFormatError(f"{path} can't be written: {error.strerror or error}") from error
    except ValueError as error:  # a path that can't be one: it holds a null character
        raise FileFormatError(f"{str(path)!r} can't be written: {error}") from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing; their names are safe on disk when this returns."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_folder(each.parent)
    folder.mkdir(exist_ok=True)  # what is there and no folder is an error


def sync_folder(folder: Path) -> None:
    """The names in a folder are safe on disk when this returns."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
