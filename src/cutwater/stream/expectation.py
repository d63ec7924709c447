"""What a plan lets cross the cut of one session: the one thing both ends check everything against."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.stream.frames import FrameKind
from cutwater.stream.heads import Outline
from cutwater.stream.tensors import TensorHead, TensorSpec


@dataclass(frozen=True, slots=True)
class Gate:
    """What one kind of message may carry."""

    specs: tuple[TensorSpec, ...] = ()
    rows: range = range(1, 2)
    """The mini-batch sizes that are allowed."""
    most: int = field(init=False)
    """Bytes of the largest payload that fits."""
    limited: tuple[int, ...] = field(init=False)
    """Places of the tensors whose values have limits."""

    def __post_init__(self) -> None:
        limited = tuple(place for place, spec in enumerate(self.specs) if spec.values is not None)
        object.__setattr__(self, "limited", limited)
        heads = [TensorHead(spec.name, spec.dtype, (self.rows[-1], *spec.shape)) for spec in self.specs]
        object.__setattr__(self, "most", Outline.of(heads, ()).total)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The tensors of every step of a session (Sec. III-B): S and labels up, G down."""

    batch: int
    """|B_k|; the last mini-batch of an epoch may be smaller."""
    steps: int
    """The most steps that the session may take."""
    smashed: tuple[TensorSpec, ...]
    labels: TensorSpec
    gradients: tuple[TensorSpec, ...]
    """One for each smashed tensor that requires a gradient, under the same name, in the same order."""

    def __post_init__(self) -> None:
        for what, value in (("batch", self.batch), ("steps", self.steps)):
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
        steps: int,
        batch: int | None = None,
        classes: int | None = None,
    ) -> "Expectation":
        """The expectation that example tensors (meta tensors will do) of one mini-batch set.

        >>> import torch
        >>> example = Expectation.like([torch.ones(4, 8)], torch.zeros(4).long(), steps=9, classes=10)
        >>> example.batch, example.smashed[0].shape, example.labels.values
        (4, (8,), (0, 9))
        """
        values = None if classes is None else (0, classes - 1)
        specs = tuple(
            TensorSpec(f"smashed.{place}", tensor.dtype, tuple(tensor.shape[1:]))
            for place, tensor in enumerate(smashed)
        )
        return cls(
            batch=batch or len(labels),
            steps=steps,
            smashed=specs,
            labels=TensorSpec("labels", labels.dtype, tuple(labels.shape[1:]), values),
            gradients=tuple(spec for spec in specs if spec.dtype.is_floating_point),
        )

    def at_server(self) -> dict[FrameKind, Gate]:
        """What a client may send."""
        step = Gate((*self.smashed, self.labels), range(1, self.batch + 1))
        return {FrameKind.STEP: step, FrameKind.FINISH: Gate()}

    def at_client(self, rows: int | None = None) -> dict[FrameKind, Gate]:
        """What the server may answer, to a mini-batch of ``rows`` if that is known."""
        sizes = range(1, self.batch + 1) if rows is None else range(rows, rows + 1)
        return {
            FrameKind.WELCOME: Gate(),
            FrameKind.REPLY: Gate(self.gradients, sizes),
            FrameKind.FINISHED: Gate(),
        }
