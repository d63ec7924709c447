"""What a plan lets cross the cut of one session: the one thing both ends check everything against."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.stream.frames import FrameKind
from cutwater.stream.heads import Outline
from cutwater.stream.tensors import Form, TensorHead, TensorSpec
from cutwater.train.step import Part, Tensors, parts_of
from cutwater.train.wire import Coder


@dataclass(frozen=True, slots=True)
class Gate:
    """What one kind of message may carry."""

    forms: tuple[Form, ...] = ()
    most: int = field(init=False)
    """Bytes of the largest payload that fits."""
    limited: tuple[int, ...] = field(init=False)
    """Places of the tensors whose values have limits."""

    def __post_init__(self) -> None:
        limited = tuple(place for place, form in enumerate(self.forms) if form.values is not None)
        object.__setattr__(self, "limited", limited)
        heads = [TensorHead(form.name, form.dtype, form.shape) for form in self.forms]
        object.__setattr__(self, "most", Outline.of(heads, ()).total)


class Planned(NamedTuple):
    """A part of a session, as both ends know it beforehand."""

    part: Part
    rows: int
    """Its samples."""
    opens: bool
    """Whether it is the first of a window: all parts before it are answered before it is sent."""


_PLAIN = partial(Coder.of, "fp32", seed=0)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The parts of a session and their tensors (Sec. III-B): S and labels up, G down."""

    batches: tuple[int, ...]
    """|B_k| of every mini-batch, in order; a client may finish after fewer."""
    smashed: tuple[TensorSpec, ...]
    labels: TensorSpec
    gradients: tuple[TensorSpec, ...]
    """One for each smashed tensor that requires a gradient, under the same name, in the same order."""
    micro_batches: int = 1
    """The parts that every mini-batch is trained in."""
    overlapped: bool = False
    """Whether all parts of a mini-batch may be on their way at once, or one at a time."""
    up: Coder = field(default_factory=partial(_PLAIN, direction="up"))
    down: Coder = field(default_factory=partial(_PLAIN, direction="down"))

    def __post_init__(self) -> None:
        for what, value in (("micro_batches", self.micro_batches), ("batches", min(self.batches, default=0))):
            if not 0 < value < 2**32:
                raise EngineError(f"{what} is {value}, but a session needs at least 1")
        if not self.smashed:
            raise EngineError("a session over the stream needs at least one smashed tensor")
        names = [spec.name for spec in (*self.smashed, self.labels)]
        if len(set(names)) != len(names):
            raise EngineError(f"the tensor names {names} must differ")
        if not set(self.gradients) <= set(self.smashed):
            raise EngineError("every gradient must have the name, type and shape of a smashed tensor")

    @classmethod
    def like(
        cls,
        smashed: Sequence[Tensor],
        labels: Tensor,
        *,
        batches: Sequence[int],
        classes: int | None = None,
        micro_batches: int = 1,
        overlapped: bool = False,
    ) -> "Expectation":
        """The expectation that example tensors (meta tensors will do) of any number of samples set.

        >>> import torch
        >>> example = Expectation.like([torch.ones(4, 8)], torch.zeros(4).long(), batches=[4, 4], classes=10)
        >>> example.batches, example.smashed[0].shape, example.labels.values
        ((4, 4), (8,), (0, 9))
        """
        values = None if classes is None else (0, classes - 1)
        specs = tuple(
            TensorSpec(f"smashed.{place}", tensor.dtype, tuple(tensor.shape[1:]))
            for place, tensor in enumerate(smashed)
        )
        return cls(
            batches=tuple(batches),
            smashed=specs,
            labels=TensorSpec("labels", labels.dtype, tuple(labels.shape[1:]), values),
            gradients=tuple(spec for spec in specs if spec.dtype.is_floating_point),
            micro_batches=micro_batches,
            overlapped=overlapped,
        )

    @property
    def window(self) -> int:
        """The most parts that are on their way at once."""
        return min(self.micro_batches, max(self.batches)) if self.overlapped else 1

    def parts(self) -> Iterator[Planned]:
        """All parts, in order, made as they are asked for."""
        first, shapes = 0, dict[int, list[tuple[Part, int]]]()
        for samples in self.batches:
            # Nearly all mini-batches have as many samples, and this is on the way of every part.
            shape = shapes.get(samples) or shapes.setdefault(
                samples, parts_of(0, samples, self.micro_batches)
            )
            for part, rows in shape:
                opens = part.number == 0 or not self.overlapped
                yield Planned(Part(first + part.number, part.weight, part.last), rows, opens)
            first += len(shape)

    def at_server(self, rows: int) -> dict[FrameKind, Gate]:
        """What a client may send when a part of so many samples is next."""
        smashed = tuple(spec.form(rows, self.up) for spec in self.smashed)
        return {
            FrameKind.PART: Gate((*smashed, self.labels.form(rows))),
            FrameKind.FINISH: Gate(),
            FrameKind.PING: Gate(),
        }

    def at_client(self, rows: int) -> dict[FrameKind, Gate]:
        """What the server may send when the reply to a part of so many samples is next."""
        gradients = tuple(spec.form(rows, self.down) for spec in self.gradients)
        return {
            FrameKind.WELCOME: Gate(),
            FrameKind.REPLY: Gate(gradients),
            FrameKind.FINISHED: Gate(),
            FrameKind.PONG: Gate(),
        }

    def smashed_from(self, number: int, rows: int, coded: Tensors) -> Tensors:
        """The smashed data of a part, as the server trains on it, from what arrived."""
        return _decoded(self.up, number, rows, coded, self.smashed)

    def gradients_from(self, number: int, rows: int, coded: Tensors) -> Tensors:
        """The gradients of a part, as the client goes back from them, from what arrived."""
        return _decoded(self.down, number, rows, coded, self.gradients)


def _decoded(coder: Coder, number: int, rows: int, coded: Tensors, specs: Sequence[TensorSpec]) -> Tensors:
    return coded if coder.plain else coder.decode(number, coded, [spec.like(rows) for spec in specs])
