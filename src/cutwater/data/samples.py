"""What a data source hands over: two sets of samples, light in memory until a mini-batch is made of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import DataError
from cutwater.base.speech import by_file

if TYPE_CHECKING:
    from torch import Tensor

Indices = NDArray[np.int64]
"""Positions of samples in a set."""


class Batch(NamedTuple):
    """A mini-batch, ready for the model: its inputs (one tensor for each input of the model) and labels.

    Of one sample, too, whose tensors lack the first dimension.
    """

    inputs: "tuple[Tensor, ...]"
    labels: "Tensor"

    def to(self, device: str) -> "Batch":
        """The same on a device."""
        return Batch(tuple(value.to(device) for value in self.inputs), self.labels.to(device))


class Samples(Protocol):
    """A set of labelled samples."""

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """The class of each sample, or None where a label is not the number of a class."""

    def __len__(self) -> int:
        """How many samples there are."""

    def batch(self, indices: Indices, device: str = "cpu") -> Batch:
        """The samples at these positions as tensors on a device."""


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Samples of one input in memory, as small as they come (a byte for each pixel of an image).

    Only a mini-batch is turned into float32, as (raw - mean) / std.
    """

    inputs: NDArray[Any]
    """Raw values, N × the shape of a sample."""
    labels: NDArray[np.int64]
    mean: tuple[float, ...] = (0.0,)
    """What is subtracted, for each channel (the first dimension of a sample) or one for all."""
    std: tuple[float, ...] = (1.0,)
    """What it is then divided by."""
    _scales: "dict[str, tuple[Tensor, Tensor]]" = field(default_factory=dict, init=False, repr=False)
    """Both on each device that asked, in the shape that fits."""

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.labels):
            raise DataError(
                f"there are {len(self.inputs):,} inputs but {len(self.labels):,} labels; "
                "both must list the same samples"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices, device: str = "cpu") -> Batch:
        """The samples at these positions, normalised, on a device."""
        import torch

        # Raw bytes cross to the device and become floats there: a quarter of the traffic.
        raw = torch.from_numpy(self.inputs[indices]).to(device)
        if device not in self._scales:
            column = (-1,) + (1,) * (raw.dim() - 2)
            mean, std = (torch.tensor(each, dtype=torch.float32) for each in (self.mean, self.std))
            self._scales[device] = mean.reshape(column).to(device), std.reshape(column).to(device)
        mean, std = self._scales[device]
        inputs = raw.to(torch.float32).sub_(mean).div_(std)
        return Batch((inputs,), torch.from_numpy(self.labels[indices]).to(device))


@dataclass(frozen=True, eq=False)
class Data:
    """A named source of training and test samples."""

    name: str
    train: Samples
    test: Samples | None
    """None where there is no test set: nothing is scored then."""
    input: str
    """Shape of one sample, such as "1x28x28"; those of several inputs are joined by commas."""
    classes: int | None
    """How many classes the labels name, or None where labels are not classes."""
    names: tuple[str, ...] | None = None
    """What the model calls the inputs of a mini-batch, in their order; None where they go by their place."""
    varies: bool = False
    """Whether mini-batches may differ in their samples' sizes, because a collate function makes them."""
    longest: int | None = None
    """The largest that such a size may become; None if no mini-batch is larger than the largest sample."""
    workers: int = 0
    """Processes that read mini-batches ahead."""
    batch_size: int | None = None
    """What a loader that it was made of has; None if a session may have any."""

    def __post_init__(self) -> None:
        for part, samples in (("training", self.train), ("test", self.test)):
            if samples is None:
                continue
            if len(samples) == 0:
                raise DataError(f"{self.name!r} has no {part} samples; a source needs at least one")
            _check_labels(self.name, part, samples.labels, self.classes)

    def takes(self, input_: str) -> bool:
        """Whether samples of this input are like these: of the same names and sizes, unless sizes vary."""
        mine, other = (dict(_inputs(text)) for text in (self.input, input_))
        if not self.varies:
            return mine == other
        return {name: len(sizes) for name, sizes in mine.items()} == {n: len(s) for n, s in other.items()}

    def called(self, inputs: "Sequence[Tensor]") -> "tuple[Tensor, ...] | dict[str, Tensor]":
        """The inputs of a mini-batch as the model is called with them: by place, or by name."""
        return tuple(inputs) if self.names is None else dict(zip(self.names, inputs, strict=True))

    def with_inputs(self, names: Sequence[str]) -> "Data":
        """The same with these of its named inputs, in this order."""
        taking = [getattr(one, "taking", None) for one in (self.train, self.test)]
        train, test = (None if take is None else take(names) for take in taking)
        assert train is not None, "only samples with names have inputs by name"
        texts = dict(text.split("=", 1) for text in self.input.split(","))
        said = ",".join(f"{name}={texts[name]}" for name in names)
        return replace(self, train=train, test=test, names=tuple(names), input=said)

    def check_fits(self, input_: str, classes: int | None) -> None:
        """Refuse a model that was made for other samples."""
        if not self.takes(input_):
            raise DataError(
                f"the model takes {input_} inputs, but {self.name!r} has samples of {self.input}; "
                + by_file(f'set input = "{self.input}" in [model]', f'build it for "{self.input}"')
                + " or choose another source"
            )
        if classes is not None and self.classes is not None and classes < self.classes:
            raise DataError(
                f"the model tells {classes} classes apart, but {self.name!r} has {self.classes}; "
                + by_file(f"set classes = {self.classes} in [model]", "give it an output for each of them")
            )


def shape_text(shape: Sequence[int]) -> str:
    """A shape as people write it.

    >>> shape_text((1, 28, 28))
    '1x28x28'
    """
    return "x".join(str(size) for size in shape)


def input_text(shapes: Iterable[Sequence[int]], names: Sequence[str] | None = None) -> str:
    """The inputs of a sample as people write them.

    >>> input_text([(16,), (16,)], ["input_ids", "attention_mask"]), input_text([(1, 28, 28)])
    ('input_ids=16,attention_mask=16', '1x28x28')
    """
    texts = map(shape_text, shapes)
    return ",".join(texts if names is None else map("=".join, zip(names, texts, strict=True)))


def _inputs(text: str) -> list[tuple[str, list[str]]]:
    """Names and sizes of the inputs that a text stands for, whatever kind it says they are of."""
    parts = [part.strip().rpartition("=") for part in text.split(",")]
    return [
        (name.strip() or str(place), sizes.rpartition(":")[2].strip().split("x"))
        for place, (name, _, sizes) in enumerate(parts)
    ]


def _check_labels(name: str, part: str, labels: NDArray[np.int64] | None, classes: int | None) -> None:
    if labels is None or classes is None:
        return
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if outside.size:
        position = int(outside[0])
        raise DataError(
            f"{part} sample {position} of {name!r} has label {int(labels[position])}, "
            f"but with {classes} classes a label must be between 0 and {classes - 1}"
        )
