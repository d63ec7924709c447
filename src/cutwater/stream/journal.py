"""A session's journal: a file from which a session goes on after the process that hosted it has died.

An entry is written before what it tells takes effect, and a ``write`` outlives the process (not the machine:
whoever hands out sessions is gone with that, too). Entries, each with its length and checksums:

======== ============================================================================================
OPEN     what the session is, in the words of whoever hosts it
BIND     the nonce and number of a connection that was let in
PART     a message of the client's as it crossed, before it is computed and so before it is answered
SNAPSHOT the server's half before a mini-batch; all parts before it are dropped
FINISH   the client is done
FAILED   the session is over, and why
======== ============================================================================================

A process that dies within a ``write`` leaves a torn last entry, which is dropped: what it tells has not taken
effect. Any other damage is refused. Nothing is unpickled: messages are read as from the network, a snapshot
is JSON and safetensors.
"""

import json
import os
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

import xxhash
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from cutwater.base.errors import FileFormatError
from cutwater.runs.checkpoint import separate
from cutwater.train.kept_side import SideState

_HEAD = struct.Struct("<BQQ")
"""Kind, length and checksum of the content."""
_OF_HEAD = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")
_PREFIX: Final = _HEAD.size + _OF_HEAD.size
SUFFIX: Final = ".journal"


class Kind(IntEnum):
    """Of an entry."""

    OPEN = 1
    BIND = 2
    PART = 3
    SNAPSHOT = 4
    FINISH = 5
    FAILED = 6


def _entry(kind: Kind, content: bytes) -> tuple[bytes, bytes]:
    head = _HEAD.pack(kind, len(content), xxhash.xxh3_64_intdigest(content))
    return head + _OF_HEAD.pack(xxhash.xxh32_intdigest(head)), content


def to_json(value: Mapping[str, Any]) -> bytes:
    """A plain value as an entry has it."""
    return json.dumps(value).encode()


class JournalFile:
    """The file of one session: a new one, or one whose entries are read before it is gone on with.

    Private to its owner.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._file = path, -1
        self._opening, self._bind = b"", b""
        self._lock = threading.Lock()
        """A snapshot is written by a thread beside what else is noted."""
        self.logged = 0
        """Bytes of entries since the last snapshot."""
        self._end = 0
        """Where the last whole entry ends that was read."""

    @classmethod
    def begin(cls, path: Path, opening: bytes) -> "JournalFile":
        """A new journal."""
        made = cls(path)
        made._opening = opening
        made._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            made.append(Kind.OPEN, opening)
        except BaseException:
            made.close()
            path.unlink()
            raise
        return made

    def entries(self) -> Iterator[tuple[Kind, bytes]]:
        """Each with its content; damage is a FileFormatError, a torn last entry is passed over."""
        assert self._file < 0, "entries are read before anything is noted"
        with self.path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            while (found := self._next(file.read(_PREFIX), size)) is not None:
                kind, length, checksum = found
                content = file.read(length)
                if xxhash.xxh3_64_intdigest(content) != checksum:
                    raise self._damaged("an entry's checksum does not match its bytes")
                self._end += _PREFIX + length
                self.logged += _PREFIX + length
                self._note(kind, content)
                yield kind, content

    def _next(self, prefix: bytes, size: int) -> tuple[Kind, int, int] | None:
        if len(prefix) < _PREFIX:
            return None
        head = prefix[: _HEAD.size]
        kind, length, checksum = _HEAD.unpack(head)
        if _OF_HEAD.unpack_from(prefix, _HEAD.size)[0] != xxhash.xxh32_intdigest(head):
            raise self._damaged("the head of an entry has another checksum")
        if self._end + _PREFIX + length > size:
            return None
        with suppress(ValueError):
            return Kind(kind), length, checksum
        raise self._damaged(f"an entry is of kind {kind}")

    def _note(self, kind: Kind, content: bytes) -> None:
        if (kind is Kind.OPEN) != (not self._opening):
            raise self._damaged("it does not begin with what its session is, once")
        if kind is Kind.OPEN:
            self._opening = content
        elif kind is Kind.BIND:
            self._bind = content
        if kind in (Kind.OPEN, Kind.SNAPSHOT):
            self.logged = 0

    def _damaged(self, why: str) -> FileFormatError:
        return FileFormatError(f"the session's journal is damaged at byte {self._end}: {why}")

    def go_on(self) -> None:
        """Open it for more, after all entries were read; what was torn is cut off."""
        assert self._file < 0, "it is open already"
        assert self._end, "nothing was read that could be gone on with"
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        os.ftruncate(self._file, self._end)

    def append(self, kind: Kind, content: bytes) -> None:
        """Note something; once this returns, it outlives the process."""
        with self._lock:
            self._check_open()
            if kind is Kind.BIND:
                self._bind = content
            self.logged += _write(self._file, kind, content)

    def shorten(self, snapshot: bytes) -> None:
        """Put a snapshot in the place of all parts that are noted; at no time is there neither."""
        beside = self.path.with_suffix(".new")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(file, Kind.OPEN, self._opening)
            _write(file, Kind.SNAPSHOT, snapshot)
            with self._lock:
                self._check_open()
                if self._bind:
                    _write(file, Kind.BIND, self._bind)
                os.replace(beside, self.path)
                file, self._file, self.logged = self._file, file, 0
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)

    def close(self) -> None:
        """Write no more; the file stays."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _check_open(self) -> None:
        if self._file < 0:
            raise OSError(f"{self.path} is closed")


def _write(file: int, kind: Kind, content: bytes) -> int:
    """The bytes that it took."""
    rest = [memoryview(each) for each in _entry(kind, content)]
    size = sum(map(len, rest))
    while rest:
        written = os.writev(file, rest)
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest:
            rest[0] = rest[0][written:]
    return size


def pack_side(written: SideState) -> bytes:
    """What was written of a half, or of layers, as bytes: the length of its JSON, that, and the tensors."""
    plain = to_json(written.plain)
    return b"".join((_LENGTH.pack(len(plain)), plain, to_bytes(separate(written.tensors))))


def unpack_side(content: bytes) -> SideState:
    """What was packed, or a FileFormatError."""
    try:
        (length,) = _LENGTH.unpack_from(content)
        end = _LENGTH.size + length
        return SideState(from_bytes(content[end:]), json.loads(content[_LENGTH.size : end]))
    except (struct.error, ValueError, SafetensorError) as error:
        raise FileFormatError(f"what was written of layers can't be read ({error})") from error
