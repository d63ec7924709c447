"""A message is a run of frames: the first carries the head, all carry the payload.

A small message is one frame, so a small part is one gRPC message each way. Both directions go through gates:
what a sender packs and what a receiver unpacks is checked against the same expectation.

The code on the way of every part is short on purpose: between two parts the processor has done much else,
and then it is not the bytes that take time but every line of Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from torch import Tensor

from cutwater.stream.expectation import Gate
from cutwater.stream.frames import SLACK, Chunk, Frame, FrameKind, seal, unseal
from cutwater.stream.heads import Outline, read_outline, read_scalars, split_head
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.tensors import (
    Array,
    Memory,
    TensorHead,
    array_in,
    array_of,
    check_heads,
    check_values,
    tensor_of,
)

UNUSED = "unused_"
"""A reply has a number of this name and place for a gradient that is zero because nothing depends on it."""
NORM = "norm"
"""Where gradients are clipped by their norm: a reply to the last part of a mini-batch says what the server's
come to, and the next part, or the end of the session, what all do. Where labels stay, the way back of such a
part says what the tail's come to."""
WAITED = "waited_seconds"
"""A reply of a window says how long its part and itself waited for others at the server."""

Gates = Callable[[int], Mapping[FrameKind, Gate]]
"""What may pass in one direction, by the number of samples of the part at hand."""

_FIRST = 1 << 16
"""Bytes that the first of several frames carries."""
_MOST_KNOWN = 64
"""Outlines that are remembered; what is ever new, by a codec's choice or a client's, is made or read anew."""


class Message(NamedTuple):
    """What arrived, found to be as expected."""

    kind: FrameKind
    number: int
    tensors: tuple[Tensor, ...]
    """In the order in which they are expected."""
    scalars: dict[str, float]
    tensor_bytes: int = 0
    """What the tensors take, as they crossed."""


class Packed(NamedTuple):
    """What is to be sent, found to be as expected; can be sent again."""

    kind: FrameKind
    number: int
    outline: Outline
    head: bytes
    arrays: Sequence[Array]

    def saying(self, name: str, value: float) -> Self:
        """The same with another value of one of its scalars."""
        return self._replace(head=self.outline.changed(self.head, name, value))

    def fits(self, frame_bytes: int) -> bool:
        """Whether it is one frame."""
        return self.outline.total <= frame_bytes + frame_bytes // SLACK

    def frames(self, frame_bytes: int) -> Iterator[bytes]:
        """The frames, made one by one as they are sent.

        A frame carries ``frame_bytes`` of payload; the last may carry a little more, so that a power of two
        of smashed data does not need a second frame for a handful of labels. Of several, the first carries
        little: whoever receives them times all that comes after it.
        """
        kind, number, outline, head, arrays = self
        total = outline.total
        parts = outline.lay([_view(array) for array in arrays]) if arrays else []
        if self.fits(frame_bytes):
            yield seal(kind, number, total, 0, head, parts)
            return
        start, end = 0, min(_FIRST, frame_bytes)
        while start < total:
            yield seal(kind, number, total, start, b"" if start else head, _slice(parts, start, end))
            start = end
            end = start + frame_bytes if total - start > frame_bytes + frame_bytes // SLACK else total


def _view(array: Array) -> memoryview:
    """The bytes of an array; one of no rows, which a message of known ones has, can't be cast."""
    return array.data.cast("B") if array.size else memoryview(b"")


def _slice(parts: list[Chunk], start: int, end: int) -> list[Chunk]:
    """The pieces of the payload between two places."""
    found: list[Chunk] = []
    position = 0
    for part in parts:
        first, last = max(start - position, 0), min(end - position, len(part))
        if first < last:
            found.append(part[first:last])
        position += len(part)
    return found


class Packer:
    """Packs messages for one direction of a session."""

    def __init__(self, gates: Gates) -> None:
        self._gates = _by_rows(gates)
        self._known: dict[object, Outline] = {}

    def pack(
        self,
        kind: FrameKind,
        number: int,
        tensors: Sequence[Tensor] = (),
        scalars: Mapping[str, float] | None = None,
        *,
        rows: int = 1,
    ) -> Packed:
        """A message with these tensors, in the order of the plan, of a part of so many rows, or a refusal."""
        scalars = scalars or {}
        form = (rows, kind, *scalars, *[(tensor.dtype, tensor.shape) for tensor in tensors])
        outline = self._known.get(form) or self._learn(form, self._gates(rows)[kind], tensors, tuple(scalars))
        arrays = [array_of(tensor) for tensor in tensors]
        return Packed(kind, number, outline, outline.head(tuple(scalars.values())), arrays)

    def _learn(
        self, form: object, gate: Gate, tensors: Sequence[Tensor], scalars: tuple[str, ...]
    ) -> Outline:
        if len(tensors) != len(gate.forms):
            raise invalid(f"{len(tensors)} tensors are to be sent, but the plan has {len(gate.forms)}")
        pairs = zip(gate.forms, tensors, strict=True)
        heads = [TensorHead(wanted.name, tensor.dtype, tuple(tensor.shape)) for wanted, tensor in pairs]
        check_heads(heads, gate.forms)
        outline = Outline.of(heads, scalars)
        if len(self._known) < _MOST_KNOWN:
            self._known[form] = outline
        return outline


def bare(kind: FrameKind, number: int) -> Packed:
    """A message without content."""
    return _BARE.pack(kind, number)


def _by_rows(gates: Gates) -> Gates:
    """The same, made once for each number of samples, of which a session has a handful."""
    return lru_cache(maxsize=None)(gates)


_BARE = Packer(lambda rows: dict.fromkeys(FrameKind, Gate()))


class _Room(NamedTuple):
    """Where a message's payload goes, and what it will be."""

    outline: Outline
    memory: memoryview
    arrays: Sequence[Array]
    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, outline: Outline, memory: memoryview) -> "_Room":
        """The tensors of an outline in this memory."""
        arrays = [array_in(memory, *pair) for pair in zip(outline.heads, outline.offsets, strict=True)]
        return cls(outline, memory, arrays, tuple(map(tensor_of, arrays, outline.heads)))


class Assembler:
    """Puts messages together from frames, one at a time.

    Its memory is used again for the next message once nobody holds a tensor of the last: a session's messages
    are all alike, and fresh memory costs more than the copy into it. With ``borrow``, a message that is one
    frame is not copied at all: its tensors lie in the frame, and must not be written to.
    """

    def __init__(self, gates: Gates, *, borrow: bool = False) -> None:
        self._by_rows, self._memory, self._borrow = _by_rows(gates), Memory(), borrow
        self._rows, self._gates = 0, dict[FrameKind, Gate]()
        self._known: dict[tuple[int, FrameKind, bytes], Outline] = {}
        self._first: Frame | None = None
        self._filled = 0
        self._outline: Outline | None = None
        self._ahead: _Room | None = None

    def expect(self, rows: int) -> None:
        """The next message belongs to a part of so many samples."""
        if rows != self._rows:
            self._rows, self._gates = rows, dict(self._by_rows(rows))

    def make_room(self) -> None:
        """For a message like the last, before it comes: whoever waits for one has the time."""
        if self._outline is not None and self._outline.total:
            self._ahead = None
            self._ahead = _Room.of(self._outline, self._memory.take(self._outline.total))

    def begin_anew(self) -> None:
        """What has come of a message will not be completed."""
        self._first = self._ahead = None

    def feed(self, data: bytes) -> Message | None:
        """The message that this frame completes, if it does; after a refusal, begin anew."""
        try:
            return self._feed(unseal(data))
        except RefusedError:
            self.begin_anew()
            raise

    def _feed(self, frame: Frame) -> Message | None:
        if self._first is None:
            self._begin(frame)
        else:
            self._continue(self._first, frame)
        end = self._filled + len(frame.part)
        if end > frame.total:
            raise invalid(f"the payload has more than the {frame.total} bytes announced")
        if self._room.memory is not frame.part:
            self._room.memory[self._filled : end] = frame.part
        self._filled = end
        return self._complete(frame) if end == frame.total else None

    def _begin(self, frame: Frame) -> None:
        gate = self._gates.get(frame.kind)
        if gate is None:
            raise invalid(f"a {frame.kind.name} is not expected here")
        if frame.offset != 0:
            raise invalid(
                f"the first frame of a message begins at byte {frame.offset} of the payload, but must at 0"
            )
        if frame.total > gate.most:
            raise RefusedError(
                Status.RESOURCE_EXHAUSTED,
                f"the {frame.kind.name} announces {frame.total} bytes, but the plan allows {gate.most}",
            )
        written, values = split_head(bytes(frame.head))
        known = self._known.get((self._rows, frame.kind, written))
        outline = known or self._learn(frame.kind, gate, written)
        if outline.total != frame.total:
            raise invalid(
                f"{frame.total} bytes of payload are announced, but the tensors listed have {outline.total}"
            )
        self._scalars = read_scalars(outline, values) if outline.scalars or values else {}
        self._outline, self._filled, self._first = outline, 0, frame
        ahead, self._ahead = self._ahead, None
        if len(frame.part) == outline.total and (self._borrow or not outline.total):
            self._room = _Room.of(outline, frame.part)
        elif ahead is not None and ahead.outline is outline:
            self._room = ahead
        else:
            del ahead  # its memory will do
            self._room = _Room.of(outline, self._memory.take(outline.total))

    def _learn(self, kind: FrameKind, gate: Gate, written: bytes) -> Outline:
        outline = read_outline(written)
        check_heads(outline.heads, gate.forms)
        if len(self._known) < _MOST_KNOWN:
            self._known[self._rows, kind, written] = outline
        return outline

    def _continue(self, first: Frame, frame: Frame) -> None:
        if (frame.kind, frame.number, frame.total) != (first.kind, first.number, first.total) or frame.head:
            raise invalid("the frame belongs to another message, but the one before it is not complete")
        if frame.offset != self._filled or not frame.part:
            raise invalid(f"the frame goes on at byte {frame.offset}, but byte {self._filled} is next")

    def _complete(self, frame: Frame) -> Message:
        self._first = None
        room = self._room
        del self._room
        gate = self._gates[frame.kind]
        for place in gate.limited:
            check_values(room.arrays[place], gate.forms[place])
        return Message(frame.kind, frame.number, room.tensors, self._scalars, room.outline.tensor_bytes)
