"""Versioned JSON: what every saved value (profile, plan, …) looks like on disk.

A document is an object with ``format`` and ``version`` first, so that a person, a program and the next
release can tell what it is. Nothing is ever unpickled.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from cutwater.errors import FileFormatError


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
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FileFormatError(f"{path} is not JSON: {error}") from error


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write JSON so that a reader sees the old file or the new one, never half of it."""
    write_atomically(path, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Temporary file, fsync, rename, fsync of the folder."""
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise FileFormatError(f"{path} can't be written: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
