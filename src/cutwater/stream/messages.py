"""A message is a run of frames: the first carries the head, all carry the payload.

A small message is one frame, so a small step is one gRPC message each way. Both directions go through gates:
what a sender packs and what a receiver unpacks is checked against the same expectation.

The code on the way of every step is short on purpose: between two steps the processor has done much else,
and then it is not the bytes that take time but every line of Python.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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

_MOST_KNOWN = 64
"""Outlines that are remembered; a client that sends ever new ones has each read anew."""


class Message(NamedTuple):
    """What arrived, found to be as expected."""

    kind: FrameKind
    step: int
    tensors: tuple[Tensor, ...]
    """In the order in which they are expected."""
    scalars: dict[str, float]


class Packed(NamedTuple):
    """What is to be sent, found to be as expected; can be sent again."""

    kind: FrameKind
    step: int
    outline: Outline
    head: bytes
    arrays: Sequence[Array]

    def frames(self, frame_bytes: int) -> Iterator[bytes]:
        """The frames, made one by one as they are sent.

        A frame carries ``frame_bytes`` of payload; the last may carry a little more, so that a power of two
        of smashed data does not need a second frame for a handful of labels.
        """
        kind, step, outline, head, arrays = self
        total, most = outline.total, frame_bytes + frame_bytes // SLACK
        parts = outline.lay([array.data.cast("B") for array in arrays]) if arrays else []
        if total <= most:
            yield seal(kind, step, total, 0, head, parts)
            return
        for start in range(0, total, frame_bytes):
            end = start + frame_bytes if total - start > most else total
            yield seal(kind, step, total, start, b"" if start else head, _slice(parts, start, end))
            if end == total:
                return


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

    def __init__(self, gates: Mapping[FrameKind, Gate]) -> None:
        self._gates = gates
        self._known: dict[object, Outline] = {}

    def pack(
        self,
        kind: FrameKind,
        step: int,
        tensors: Sequence[Tensor] = (),
        scalars: Mapping[str, float] | None = None,
    ) -> Packed:
        """A message with these tensors, in the order in which they are expected, or a refusal."""
        scalars = scalars or {}
        form = (kind, *scalars, *[(tensor.dtype, tensor.shape) for tensor in tensors])
        outline = self._known.get(form) or self._learn(form, kind, tensors, tuple(scalars))
        arrays = [array_of(tensor) for tensor in tensors]
        return Packed(kind, step, outline, outline.head(tuple(scalars.values())), arrays)

    def _learn(
        self, form: object, kind: FrameKind, tensors: Sequence[Tensor], scalars: tuple[str, ...]
    ) -> Outline:
        gate = self._gates[kind]
        if len(tensors) != len(gate.specs):
            raise invalid(f"{len(tensors)} tensors are to be sent, but the plan has {len(gate.specs)}")
        pairs = zip(gate.specs, tensors, strict=True)
        heads = [TensorHead(spec.name, tensor.dtype, tuple(tensor.shape)) for spec, tensor in pairs]
        check_heads(heads, gate.specs, gate.rows)
        self._known[form] = outline = Outline.of(heads, scalars)
        return outline


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

    def __init__(
        self, gates: Mapping[FrameKind, Gate], memory: Memory | None = None, *, borrow: bool = False
    ) -> None:
        self._gates, self._memory, self._borrow = gates, memory or Memory(), borrow
        self._known: dict[tuple[FrameKind, bytes], Outline] = {}
        self._first: Frame | None = None
        self._filled = 0
        self._outline: Outline | None = None
        self._ahead: _Room | None = None

    def make_room(self) -> None:
        """For a message like the last, before it comes: whoever waits for one has the time."""
        if self._outline is not None and self._outline.total:
            self._ahead = None
            self._ahead = _Room.of(self._outline, self._memory.take(self._outline.total))

    def feed(self, data: bytes) -> Message | None:
        """The message that this frame completes, if it does; after a refusal, begin anew."""
        try:
            return self._feed(unseal(data))
        except RefusedError:
            self._first = None
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
        outline = self._known.get((frame.kind, written)) or self._learn(frame.kind, gate, written)
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
        check_heads(outline.heads, gate.specs, gate.rows)
        if len(self._known) < _MOST_KNOWN:
            self._known[kind, written] = outline
        return outline

    def _continue(self, first: Frame, frame: Frame) -> None:
        if (frame.kind, frame.step, frame.total) != (first.kind, first.step, first.total) or frame.head:
            raise invalid("the frame belongs to another message, but the one before it is not complete")
        if frame.offset != self._filled or not frame.part:
            raise invalid(f"the frame goes on at byte {frame.offset}, but byte {self._filled} is next")

    def _complete(self, frame: Frame) -> Message:
        self._first = None
        room = self._room
        del self._room
        gate = self._gates[frame.kind]
        for place in gate.limited:
            check_values(room.arrays[place], gate.specs[place])
        return Message(frame.kind, frame.step, room.tensors, self._scalars)
