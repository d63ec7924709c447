"""A disk under a folder that fails at a chosen call, or loses what was never flushed when the power goes.

All calls that change something below the folder are seen on their way to the real file system: opening,
writing, truncating, syncing, renaming, removing, making folders. :class:`Disk` numbers and logs them, and may
let one fail. :func:`after_power_loss` then says what a disk may hold if the power goes after any of them: a
file's content is safe once the file was synced, a name once its folder was (POSIX promises no more).
"""

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

_WRITES = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Call:
    """What was asked of the disk."""

    what: str
    path: str = ""
    to: str = ""
    file: int = 0
    """Which file, whatever its name is by now."""
    at: int = 0
    data: bytes = b""


class _Raw(io.FileIO):
    """A file whose writes are seen."""

    def __init__(self, disk: "Disk", descriptor: int, mode: str) -> None:
        super().__init__(descriptor, mode)
        self._disk, self._descriptor = disk, descriptor

    def write(self, data: Any) -> int:
        return self._disk.write(self._descriptor, bytes(data), super().write)

    def truncate(self, size: int | None = None) -> int:
        end = self.tell() if size is None else size
        self._disk.see(Call("truncate", file=self._disk.files[self._descriptor], at=end))
        return super().truncate(end)

    def close(self) -> None:
        self._disk.files.pop(self._descriptor, None)
        super().close()


@dataclass
class Disk:
    """Sees what happens below a folder while it is :meth:`watched`."""

    root: Path
    fail_at: int | None = None
    """The number of the call that fails, from 0."""
    error: int = errno.ENOSPC
    log: list[Call] = field(default_factory=list)
    files: dict[int, int] = field(default_factory=dict)
    """Which file a descriptor is of."""

    def __post_init__(self) -> None:
        self._names: dict[str, int] = {}
        self._folders: dict[int, str] = {}
        self._count = 0

    def see(self, call: Call) -> None:
        """A call, before it is carried out."""
        number = len([each for each in self.log if each.what != "mark"])
        if number == self.fail_at:
            self.fail_at = None  # once: what comes after finds a disk that works
            raise OSError(self.error, os.strerror(self.error), call.path)
        self.log.append(call)

    def mark(self, text: str) -> None:
        """Remember in the log that something is said to be safe from here on."""
        self.log.append(Call("mark", text))

    def write(self, descriptor: int, data: bytes, really: Any) -> int:
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
        if os.get_blocking(descriptor) and self._appends(descriptor):
            at = os.fstat(descriptor).st_size
        self.see(Call("write", file=self.files[descriptor], at=at, data=data))
        return int(really(data))

    @staticmethod
    def _appends(descriptor: int) -> bool:
        import fcntl

        return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND)

    def inside(self, path: Any) -> str | None:
        """A path below the folder, from there; None for any other."""
        if isinstance(path, int):
            return None
        try:
            return os.path.relpath(os.path.abspath(path), self.root) if self._below(path) else None
        except (TypeError, ValueError):
            return None

    def _below(self, path: Any) -> bool:
        whole = os.path.abspath(os.fspath(path))
        return whole == str(self.root) or whole.startswith(f"{self.root}{os.sep}")

    @contextmanager
    def watched(self) -> Iterator["Disk"]:
        """Within, all calls below the folder are seen."""
        real = {name: getattr(os, name) for name in ("open", "replace", "unlink", "mkdir", "fsync", "close")}
        real_io = io.open

        def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            here = self.inside(path) if dir_fd is None else None
            new = here is not None and flags & os.O_CREAT and not os.path.exists(path)
            if new:
                self._last = getattr(self, "_last", 0) + 1
                self.see(Call("create", here, file=self._last))
                self._names[here] = self._last
            descriptor = real["open"](path, flags, mode, dir_fd=dir_fd)
            if here is not None and os.path.isdir(path):
                self._folders[descriptor] = here
            elif here is not None and flags & _WRITES:
                self.files[descriptor] = self._names.setdefault(here, -len(self._names) - 1)
            return int(descriptor)

        def fsync(descriptor: int) -> None:
            if descriptor in self.files:
                self.see(Call("fsync", file=self.files[descriptor]))
            elif descriptor in self._folders:
                self.see(Call("fsync folder", self._folders[descriptor]))
            real["fsync"](descriptor)

        def close(descriptor: int) -> None:
            self.files.pop(descriptor, None)
            self._folders.pop(descriptor, None)
            real["close"](descriptor)

        def replace(source: Any, target: Any, **more: Any) -> None:
            one, other = self.inside(source), self.inside(target)
            if one is not None and other is not None:
                self.see(Call("rename", one, other))
                self._names[other] = self._names.pop(one)
            real["replace"](source, target, **more)

        def unlink(path: Any, **more: Any) -> None:
            here = self.inside(path)
            if here is not None and os.path.lexists(path):
                self.see(Call("unlink", here))
            real["unlink"](path, **more)

        def mkdir(path: Any, mode: int = 0o777, **more: Any) -> None:
            here = self.inside(path)
            if here is not None and not os.path.exists(path) and os.path.isdir(os.path.dirname(path)):
                self.see(Call("mkdir", here))
            real["mkdir"](path, mode, **more)

        def open_file(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if self.inside(file) is not None and set(mode) & set("wax+"):
                flags = os.O_RDWR if "+" in mode else os.O_WRONLY
                flags |= os.O_CREAT if set(mode) & set("wax") else 0
                flags |= os.O_APPEND if "a" in mode else 0
                file = open_(file, flags, 0o666)
                assert "w" not in mode, "files of a run are never emptied in place"
            if isinstance(file, int) and file in self.files:
                assert "b" in mode
                return io.BufferedWriter(_Raw(self, file, mode.replace("b", "").replace("a", "w")))
            return real_io(file, mode, *args, **more)

        with (
            mock.patch.multiple(
                os, open=open_, fsync=fsync, close=close, replace=replace, unlink=unlink, mkdir=mkdir
            ),
            mock.patch.object(io, "open", open_file),
        ):
            yield self


Tree = dict[str, bytes | None]
"""What a folder holds: files by their paths with their content, folders with None."""


def after_power_loss(log: list[Call], *, names: bool, contents: bool) -> Tree:
    """What is there after these calls if the power goes then, and what was not flushed is lost.

    ``names``, ``contents``: whether that survives nevertheless, as it may.
    """
    now: dict[str, int | None] = {".": None}
    safe = dict(now)
    data: dict[int, bytearray] = {}
    synced: dict[int, bytes] = {}
    for call in log:
        match call.what:
            case "create":
                now[call.path], data[call.file] = call.file, bytearray()
            case "mkdir":
                now[call.path] = None
            case "write":
                held = data[call.file]
                held[call.at : call.at + len(call.data)] = call.data
            case "truncate":
                del data[call.file][call.at :]
            case "fsync":
                synced[call.file] = bytes(data[call.file])
            case "rename":
                now[call.to] = now.pop(call.path)
            case "unlink":
                now.pop(call.path)
            case "fsync folder":
                safe = _synced(safe, now, call.path)
    kept = now if names else safe
    content = {file: bytes(held) for file, held in data.items()} if contents else synced
    found: Tree = {}
    for path, file in kept.items():
        if all(parent in kept for parent in _parents(path)):
            found[path] = None if file is None else content.get(file, b"")
    return found


def _synced(safe: dict[str, int | None], now: dict[str, int | None], folder: str) -> dict[str, int | None]:
    others = {path: file for path, file in safe.items() if path == "." or _parents(path)[0] != folder}
    mine = {path: file for path, file in now.items() if path != "." and _parents(path)[0] == folder}
    return {**others, **mine}


def _parents(path: str) -> list[str]:
    return [str(parent) for parent in Path(path).parents]


def lay_out(tree: Tree, folder: Path) -> None:
    """Put on the real disk what is left."""
    for path, content in sorted(tree.items()):
        place = folder / path
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.write_bytes(content)
