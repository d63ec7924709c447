"""A folder that reading never leaves: someone else's, copied, or made to lead elsewhere.

No symbolic link below it is followed, nothing but plain files is read and none beyond a limit, so that a page
which serves a folder serves nothing else.
"""

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cutwater.base.errors import RunError
from cutwater.base.jsonfile import check_document, parse_json
from cutwater.base.kinds import HUGE
from cutwater.base.text import shown
from cutwater.runs.layout import METRICS, RUN, Format

LARGEST = 64 * 2**20
"""Bytes of one file; a round of 10,000 clients takes about 8 MB."""
DEEPEST = 3
"""How far below a folder of runs a run may lie."""
MOST_FOLDERS = 5_000
"""Folders that a search for runs looks into."""
_WITHOUT_WAITING = os.O_RDONLY | os.O_NONBLOCK
"""Opens a pipe that nobody writes to, too, so that it can be refused."""


@dataclass(frozen=True)
class Folder:
    """A folder that reading never leaves."""

    root: Path

    @property
    def name(self) -> str:
        """What people call it."""
        return shown(self.root.resolve().name)

    def read(self, name: str) -> bytes | None:
        """A file's content, or None where there is none."""
        try:
            descriptor = self._open(name, _WITHOUT_WAITING)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RunError(f"{name} in {self.name} can't be read: {error.strerror or error}") from error
        return _read_plain(descriptor, f"{name} in {self.name}", LARGEST)

    def json(self, name: str) -> object:
        """What a JSON file holds; None where there is none, one sentence where it can't be read."""
        content = self.read(name)
        return None if content is None else parse_json(content, name)

    def document(self, name: str, format_: Format) -> dict[str, object] | None:
        """The body of a versioned JSON document; None where there is none, one sentence on any other."""
        found = self.json(name)
        return None if found is None else check_document(found, *format_, name)

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
            descriptor = self._open(name, _WITHOUT_WAITING)
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


def read_file(path: str | os.PathLike[str]) -> bytes:
    """What a file holds, wherever it is; a pipe or a folder is refused."""
    return _read_plain(os.open(path, _WITHOUT_WAITING), str(path))


def _read_plain(descriptor: int, what: str, largest: int = sys.maxsize) -> bytes:
    """What an open file holds, which is then closed; a pipe, a folder or a giant is refused."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise RunError(f"{what} is no plain file, so it is not read")
    with os.fdopen(descriptor, "rb") as file:
        if found.st_size > largest:
            raise RunError(f"{what} has {found.st_size:,} bytes, but {largest:,} at most are read")
        return file.read(found.st_size)


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
            if not _is_searched(entry):
                continue
            below = f"{here}/{entry.name}" if here else entry.name
            if _is_run(folder, below):
                yield below
            elif below.count("/") + 1 < DEEPEST:
                waiting.append(below)


def _is_searched(entry: os.DirEntry[str]) -> bool:
    # A name that can't be shown as it is could not be asked for by it either.
    hidden = entry.name.startswith(".") or shown(entry.name) != entry.name
    return not (hidden or entry.is_symlink()) and entry.is_dir(follow_symlinks=False)


def _is_run(folder: Folder, name: str) -> bool:
    held = {entry.name for entry in folder.entries(name)}
    return RUN in held or METRICS in held


def plain(value: Any, depth: int = 4) -> Any:
    """JSON that can be shown as it is: no endless depth, length or number, no character that is none."""
    if isinstance(value, dict) and depth:
        return {shown(str(key))[:200]: plain(one, depth - 1) for key, one in list(value.items())[:200]}
    if isinstance(value, list) and depth:
        return [plain(one, depth - 1) for one in value[:200]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        # Python reads NaN and Infinity from JSON, and whole numbers that no float holds.
        return value if abs(value) < HUGE else None
    return value if isinstance(value, bool) or value is None else shown(str(value))
