"""Reading run folders (docs/run-folder.md) as they are found: half-written, copied, or someone else's.

A report must open while a run goes on and after it was killed, so what can't be read is left out and noted,
never guessed. No symbolic link below the folder is followed and no file is read beyond a limit, so that a
page which serves a folder serves nothing else.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cutwater.base.errors import RunError

LARGEST = 64 * 2**20
"""Bytes of one file; a round of 10,000 clients takes about 8 MB."""
DEEPEST = 3
"""How far below a folder of runs a run may lie."""
MOST_FOLDERS = 5_000
"""Folders that a search for runs looks into."""


@dataclass(frozen=True)
class Folder:
    """A folder that reading never leaves."""

    root: Path

    @property
    def name(self) -> str:
        """What people call it."""
        return self.root.resolve().name

    def read(self, name: str) -> bytes | None:
        """A file's content, or None where there is none."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RunError(f"{name} in {self.name} can't be read: {error.strerror or error}") from error
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise RunError(f"{name} in {self.name} is no plain file, so it is not read")
        with os.fdopen(descriptor, "rb") as file:
            if found.st_size > LARGEST:
                raise RunError(
                    f"{name} in {self.name} has {found.st_size:,} bytes, but {LARGEST:,} at most are read"
                )
            return file.read(LARGEST)

    def entries(self, name: str = "") -> list[os.DirEntry[str]]:
        """What a folder holds, by name; nothing where there is no such folder."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return []
        try:
            with os.scandir(descriptor) as found:
                return sorted(found, key=lambda entry: entry.name)
        finally:
            os.close(descriptor)

    def stamp(self, name: str) -> tuple[int, int]:
        """When a file was last written and its size; zeros where there is none."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return 0, 0
        try:
            found = os.fstat(descriptor)
            return found.st_mtime_ns, found.st_size
        finally:
            os.close(descriptor)

    def inside(self, name: str) -> "Folder":
        """A folder below this one, reached without any symbolic link."""
        try:
            os.close(self._open(name, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            raise RunError(f"there is no folder {name!r} in {self.name}") from error
        return Folder(self.root.joinpath(*_parts(name)))

    def _open(self, name: str, flags: int) -> int:
        """Step by step from the root, so that no link swapped in between leads elsewhere."""
        current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        parts = _parts(name)
        for place, part in enumerate(parts, start=1):
            how = flags if place == len(parts) else os.O_RDONLY | os.O_DIRECTORY
            try:
                following = os.open(part, how | os.O_NOFOLLOW, dir_fd=current)
            finally:
                os.close(current)
            current = following
        return current


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise RunError(f"{name!r} is not below the folder that may be read")
    return path.parts


def find_runs(folder: Folder) -> Iterator[str]:
    """The runs in a folder, each by its path from there; the folder itself is '.' if it is one."""
    if _is_run(folder, ""):
        yield "."
        return
    waiting, seen = [""], 0
    while waiting and seen < MOST_FOLDERS:
        here = waiting.pop(0)
        seen += 1
        for entry in folder.entries(here):
            if entry.name.startswith(".") or entry.is_symlink() or not entry.is_dir(follow_symlinks=False):
                continue
            below = f"{here}/{entry.name}" if here else entry.name
            if _is_run(folder, below):
                yield below
            elif below.count("/") + 1 < DEEPEST:
                waiting.append(below)


def _is_run(folder: Folder, name: str) -> bool:
    held = {entry.name for entry in folder.entries(name)}
    return "run.json" in held or "metrics.jsonl" in held


def read_metrics(folder: Folder) -> tuple[list[dict[str, Any]], list[str]]:
    """The lines of metrics.jsonl in the order of the rounds, and what was wrong with the rest.

    A last line without an end is still being written: it is neither used nor complained about. Where a
    resumed run wrote a round twice, the later line holds.
    """
    content = folder.read("metrics.jsonl") or b""
    whole, _, _ = content.rpartition(b"\n")
    lines: dict[int, dict[str, Any]] = {}
    notes = []
    for number, line in enumerate(whole.split(b"\n") if whole else [], start=1):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and type(found.get("round")) is int:
            lines[found["round"]] = found
        else:
            notes.append(f"line {number} of metrics.jsonl can't be read and is left out")
    return [lines[key] for key in sorted(lines)], notes


def read_document(folder: Folder, name: str) -> dict[str, Any] | None:
    """A JSON object of the folder, or None where it is missing or no such thing."""
    content = folder.read(name)
    try:
        found = json.loads(content) if content else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def round_numbers(folder: Folder) -> list[int]:
    """The rounds that have a file of their own."""
    stems = (
        entry.name.removesuffix(".json") for entry in folder.entries("rounds") if entry.name.endswith(".json")
    )
    return sorted(int(stem) for stem in stems if stem.isdecimal())
