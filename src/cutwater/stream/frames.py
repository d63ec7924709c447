"""One gRPC message is one frame: a fixed prefix, a head that describes, a part of the payload.

::

    0   magic "CUTW"   4 bytes   the first eight bytes seed the checksum,
    4   version        1         so they are covered by it too
    5   kind           1
    6   head length    2
    8   checksum       8         XXH3-64 of everything that follows
    16  number         8         the part's number, or a count of parts
    24  total          8         bytes of the whole message's payload
    32  offset         8         where this frame's part of it begins
    40  head, part

All little-endian. XXH3 because a checksum must not cost what it protects: 30 GiB/s here, where zlib's crc32
does 4, SHA-256 1.7 and BLAKE2b 0.9, against about 1 GiB/s of the stream itself. Forgery is TLS's business;
the checksum is end to end, against faults of memory and software that TLS would faithfully carry.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import xxhash

from cutwater.stream.refusal import RefusedError, Status, invalid

MAGIC: Final = b"CUTW"
VERSION: Final = 2
MAX_HEAD: Final = 0xFFFF
MAX_PART: Final = 1 << 20
"""The most payload of an ordinary frame: larger is no faster, and bounds memory for what is on its way."""
SLACK: Final = 16
"""A message's last frame may carry more by one part in so many."""

_PREFIX = struct.Struct("<4sBBHQQQQ")
_FIRST = struct.Struct("<4sBBH")
_CHECKSUM = struct.Struct("<Q")
_WHERE = struct.Struct("<QQQ")
_COVERED: Final = _FIRST.size + _CHECKSUM.size
PREFIX: Final = _PREFIX.size
"""Bytes before the head."""
MAX_FRAME: Final = PREFIX + MAX_HEAD + MAX_PART + MAX_PART // SLACK
"""No gRPC message is longer: the cap that both ends set."""

_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""How gzip and deflate begin: gRPC is told to hand such messages on as they are, never to inflate them."""


class FrameKind(IntEnum):
    """What a frame belongs to."""

    WELCOME = 1
    """Server: the session is open; ``number`` is how many parts have arrived in full."""
    PART = 2
    """Client: smashed data and labels of a part of a mini-batch."""
    REPLY = 3
    """Server: the gradients and the loss of a part."""
    FINISH = 4
    """Client: that was all; ``number`` is how many parts that were."""
    FINISHED = 5
    """Server: agreed."""
    PING = 6
    """Client: to be answered at once, so that it knows how long a round trip takes."""
    PONG = 7
    """Server: the answer."""
    OUTPUT = 8
    """Server: what its layers made of a part whose model has a tail at the client."""
    BACK = 9
    """Client: the gradients of that. Such a part counts twice: as its PART, and as its BACK."""
    LETTER = 10
    """Of a lease, either way: bytes of letter ``number``."""
    HAVE = 11
    """Of a lease, either way: of letter ``number``, the bytes up to ``offset`` have arrived."""
    BEAT = 12
    """Of a lease, server: a sign of life; the client sends it back at once."""
    LEAVE = 13
    """Of a lease, server: it is over."""
    MOVE = 14
    """Client: the cut moves before the next part; with the layers that are the server's from now on, if any.
    It counts as a part."""
    MOVED = 15
    """Server: agreed; with the layers that are the client's from now on, if any."""


PARTS: Final = frozenset({FrameKind.PART, FrameKind.BACK, FrameKind.MOVE})
"""What a session counts, each answered once."""
REPLIES: Final = frozenset({FrameKind.REPLY, FrameKind.OUTPUT, FrameKind.MOVED})
"""What they are answered with."""


_KINDS = {int(kind): kind for kind in FrameKind}


class Frame(NamedTuple):
    """A frame whose checksum was right."""

    kind: FrameKind
    number: int
    total: int
    offset: int
    head: memoryview
    part: memoryview


Chunk = memoryview | bytes


def seal(kind: FrameKind, number: int, total: int, offset: int, head: bytes, parts: Sequence[Chunk]) -> bytes:
    """The bytes of a frame; one pass over its parts for the checksum, one to copy them."""
    first = _FIRST.pack(MAGIC, VERSION, kind, len(head))
    rest = _WHERE.pack(number, total, offset) + head
    checksum = xxhash.xxh3_64(rest, seed=int.from_bytes(first, "little"))
    for part in parts:
        checksum.update(part)
    return b"".join((first, _CHECKSUM.pack(checksum.intdigest()), rest, *parts))


def unseal(message: bytes) -> Frame:
    """The frame in a message, or a refusal; nothing is copied."""
    if not message.startswith(MAGIC):
        raise _foreign(message)
    if len(message) < PREFIX:
        raise invalid(f"the frame has {len(message)} bytes, but its prefix alone has {PREFIX}")
    _, version, kind, head, checksum, number, total, offset = _PREFIX.unpack_from(message)
    if version != VERSION:
        raise invalid(f"the frame has version {version}, but this release speaks {VERSION}: update one end")
    view = memoryview(message)
    seed = int.from_bytes(view[: _FIRST.size], "little")
    if xxhash.xxh3_64_intdigest(view[_COVERED:], seed) != checksum:
        raise invalid("the frame's checksum does not match its bytes")
    head += PREFIX
    if kind not in _KINDS or head > len(message):
        raise invalid(
            f"the frame of {len(message)} bytes has kind {kind} and a head up to byte {head}, but kinds are "
            f"{min(_KINDS)} to {max(_KINDS)} and a head ends within its frame"
        )
    return Frame(_KINDS[kind], number, total, offset, view[PREFIX:head], view[head:])


def _foreign(message: bytes) -> RefusedError:
    if message.startswith(_COMPRESSED):
        reason = "the message is compressed, but only plain ones are read"
        return RefusedError(Status.RESOURCE_EXHAUSTED, reason)
    return invalid(f"the message begins with {message[:4]!r}, but a frame begins with {MAGIC!r}")
