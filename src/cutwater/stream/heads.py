"""Heads: what a message says before its payload.

A head is the length of its outline (2 bytes), the outline, and the values of the scalars that it names, each
a double. An outline is a number of tensors, each with the length of its name, its name, the code of its type,
its number of dimensions and these as 32-bit numbers; then names of scalars, each after its length; then zeros
that let the payload begin at a multiple of 16, so that it can be used where it lies. All parts of a session
have one outline, or a few where not all have as many samples: outlines are read and checked once.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cutwater.base.arrays import ALIGNMENT
from cutwater.base.errors import EngineError
from cutwater.stream.frames import MAX_HEAD, PREFIX, Chunk
from cutwater.stream.refusal import invalid
from cutwater.stream.tensors import DTYPES, MAX_DIMENSIONS, TensorHead

_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_LENGTH = struct.Struct("<H")
MAX_SCALARS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """What many messages have in common: all but the values."""

    heads: tuple[TensorHead, ...]
    scalars: tuple[str, ...]
    written: bytes
    """As it is on the wire, with its length."""
    offsets: tuple[int, ...]
    """Where each tensor lies in the payload: at the next multiple of 64."""
    total: int
    """Bytes of the payload."""
    tensor_bytes: int
    """Of these, the tensors' own, without what lies between them."""
    doubles: struct.Struct

    @classmethod
    def of(cls, heads: Sequence[TensorHead], scalars: Sequence[str]) -> "Outline":
        """The outline of messages with these tensors and scalars."""
        offsets, end = [], 0
        for head in heads:
            offsets.append(-(-end // ALIGNMENT) * ALIGNMENT)
            end = offsets[-1] + head.bytes()
        written = _write(heads, scalars)
        doubles = struct.Struct(f"<{len(scalars)}d")
        own = sum(head.bytes() for head in heads)
        return cls(tuple(heads), tuple(scalars), written, tuple(offsets), end, own, doubles)

    def head(self, values: Sequence[float]) -> bytes:
        """The head of a message whose scalars have these values."""
        return self.written + self.doubles.pack(*values)

    def changed(self, head: bytes, name: str, value: float) -> bytes:
        """The head of a message with another value of one scalar."""
        place = len(self.written) + 8 * self.scalars.index(name)
        return head[:place] + struct.pack("<d", value) + head[place + 8 :]

    def lay(self, views: Sequence[memoryview]) -> list[Chunk]:
        """The payload in pieces: the tensors' bytes where they lie, and zeros between them."""
        parts: list[Chunk] = []
        end = 0
        for view, offset in zip(views, self.offsets, strict=True):
            if offset > end:
                parts.append(bytes(offset - end))
            parts.append(view)
            end = offset + len(view)
        return parts


def _write(heads: Sequence[TensorHead], scalars: Sequence[str]) -> bytes:
    out = bytearray([len(heads)])
    for head in heads:
        dimensions = len(head.shape)
        out += _name(head.name) + bytes((_CODES[head.dtype], dimensions))
        out += struct.pack(f"<{dimensions}I", *head.shape)
    for name in scalars:
        out += _name(name)
    out += bytes(-(PREFIX + _LENGTH.size + len(out) + 8 * len(scalars)) % 16)
    if len(out) > MAX_HEAD // 2 or len(scalars) > MAX_SCALARS:
        raise EngineError(
            f"{len(heads)} tensors and {len(scalars)} scalars make an outline of {len(out)} bytes, but "
            f"{MAX_SCALARS} scalars and {MAX_HEAD // 2} bytes are the most: send fewer, or shorten names"
        )
    return _LENGTH.pack(len(out)) + out


def _name(name: str) -> bytes:
    text = name.encode()
    return bytes([len(text)]) + text


def split_head(head: bytes) -> tuple[bytes, bytes]:
    """The outline of a head, with its length, and the values of its scalars."""
    if len(head) < _LENGTH.size:
        raise invalid(f"the head has {len(head)} bytes, but needs at least {_LENGTH.size}")
    end = _LENGTH.size + int(_LENGTH.unpack_from(head)[0])
    return head[:end], head[end:]


def read_outline(written: bytes) -> Outline:
    """An outline from the wire, or a refusal."""
    reader = _Reader(written, _LENGTH.size)
    heads = [reader.tensor() for _ in range(reader.number())]
    scalars: list[str] = []
    while reader.more and (name := reader.name()):
        scalars.append(name)
    if len(set(scalars)) != len(scalars) or len(scalars) > MAX_SCALARS:
        raise invalid(f"the outline names a scalar twice, or more than {MAX_SCALARS} of them")
    outline = Outline.of(heads, scalars)
    if outline.written != written:
        raise invalid(
            f"the outline of {len(written)} bytes is not written as this release writes it: update one end"
        )
    return outline


def read_scalars(outline: Outline, values: bytes) -> dict[str, float]:
    """The scalars of a message, all finite, or a refusal."""
    if len(values) != outline.doubles.size:
        raise invalid(f"the head has {len(values)} bytes for {len(outline.scalars)} scalars")
    scalars = dict(zip(outline.scalars, outline.doubles.unpack(values), strict=True))
    if not all(map(math.isfinite, scalars.values())):
        raise invalid(f"the scalars are {scalars}, but must be finite")
    return scalars


class _Reader:
    """Takes fields from an outline and refuses to read beyond its end."""

    def __init__(self, written: bytes, position: int) -> None:
        self.written, self.position = written, position

    @property
    def more(self) -> bool:
        return self.position < len(self.written)

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self.written):
            raise invalid(f"the outline ends after {len(self.written)} bytes, in the middle of a field")
        return self.written[start : self.position]

    def number(self) -> int:
        return self.take(1)[0]

    def name(self) -> str:
        try:
            return str(self.take(self.number()), "utf-8")
        except UnicodeDecodeError:
            raise invalid("the outline holds a name that is not UTF-8") from None

    def tensor(self) -> TensorHead:
        name, code, dimensions = self.name(), self.number(), self.number()
        if code >= len(DTYPES):
            raise invalid(f"tensor {name!r} has the unknown type code {code}")
        if dimensions > MAX_DIMENSIONS:
            raise invalid(f"tensor {name!r} has {dimensions} dimensions, but {MAX_DIMENSIONS} is the most")
        return TensorHead(name, DTYPES[code], struct.unpack(f"<{dimensions}I", self.take(4 * dimensions)))
