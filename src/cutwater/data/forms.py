"""What a user's own data may look like: the form of its samples, how they are padded, and DataLoaders.

A sample or a mini-batch is ``(input, …, label)``, or values by name. Of a torch DataLoader, where a dataset
is asked for, dataset, collate function, workers and batch size are taken over. Which samples a mini-batch has
follows from the run's seed, whatever its sampler would have drawn: one that shuffles or goes in order is left
alone, and one that chooses samples is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cutwater.base.errors import DataError
from cutwater.data.samples import Batch

if TYPE_CHECKING:
    from torch import Tensor

LABELS = ("labels", "label")
"""What labels are called where nobody says otherwise, as Hugging Face calls them."""
NO_LABEL = -100
"""What torch's and transformers' losses leave out."""


@dataclass(frozen=True)
class Form:
    """How values become the inputs of a model and labels: by their place, or by name.

    Labels go with the loss, so a model never gets them: they are on the server's side of a cut, or wherever
    the loss is computed.
    """

    names: tuple[str, ...] | None = None
    """The inputs by name, in the order in which they are handed on; None where they are told by place."""
    label: str | None = None
    """What the labels are called."""

    @classmethod
    def of(cls, value: Any, what: str, label: str | None = None) -> "Form":
        """The form that a first sample or mini-batch has; text, which no model takes, is left out."""
        if not isinstance(value, Mapping):
            return cls()
        found = [label] if label is not None else [key for key in LABELS if key in value]
        if not found or found[0] not in value:
            wanted = repr(label) if label is not None else "'labels' or 'label'"
            raise DataError(
                f"{what} has {', '.join(map(repr, value))}, but no {wanted}: say which of them are the "
                "labels with labels=..., or add them by a collate function"
            )
        names = tuple(str(key) for key, one in value.items() if key != found[0] and _has_numbers(one))
        if not names:
            raise DataError(f"{what} has labels {found[0]!r}, but no input that is a number or a tensor")
        return cls(names, found[0])

    def take(self, value: Any, what: str) -> Batch:
        """The inputs and labels of a value of this form."""
        inputs, label = self._by_name(value, what) if self.names is not None else _by_place(value, what)
        return Batch(tuple(_tensor(one, what) for one in inputs), _tensor(label, what))

    def _by_name(self, value: Any, what: str) -> tuple[Sequence[Any], Any]:
        assert self.names is not None
        assert self.label is not None
        if not isinstance(value, Mapping):
            raise DataError(
                f"{what} is {type(value).__name__}, but others have values by name: give all the same form"
            )
        missing = next((key for key in (*self.names, self.label) if key not in value), None)
        if missing is not None:
            raise DataError(f"{what} has no {missing!r}, but others have: give all samples the same names")
        return [value[key] for key in self.names], value[self.label]


@dataclass(frozen=True)
class Pad:
    """A collate function: every value is filled up along its first dimension.

    To the longest of the mini-batch or, with ``to``, to that length, so that all mini-batches are alike;
    with ``value`` by name (``{"input_ids": 1}``), else with 0, and labels with -100, which no loss counts.
    What is one number for each sample stays as it is, text is left out. Samples are dicts.

    >>> Pad()([{"input_ids": [5, 6, 7], "labels": 1}, {"input_ids": [8], "labels": 0}])["input_ids"].tolist()
    [[5, 6, 7], [8, 0, 0]]
    """

    to: int | None = None
    value: Mapping[str, float] = field(default_factory=dict)
    labels: Sequence[str] = LABELS
    """Names that are filled up with -100, where they are whole numbers."""

    def __call__(self, samples: Sequence[Any]) -> "dict[str, Tensor]":
        """The mini-batch."""
        if not all(isinstance(one, Mapping) for one in samples):
            raise DataError("padding takes samples that are dicts of values by name: give it such samples")
        numbers = [key for key, value in samples[0].items() if not isinstance(value, str)]
        return {str(key): self._stacked(str(key), [one[key] for one in samples]) for key in numbers}

    def _stacked(self, name: str, values: Sequence[Any]) -> "Tensor":
        import torch

        tensors = [torch.as_tensor(value) for value in values]
        if tensors[0].dim() == 0:
            return torch.stack(tensors)
        longest = max(len(tensor) for tensor in tensors)
        if self.to is not None and longest > self.to:
            raise DataError(
                f"a sample has {longest} values of {name!r}, but samples are padded to {self.to}: cut it off "
                f"there, or pad to {longest} or more"
            )
        whole = not tensors[0].is_floating_point()
        fill = self.value.get(name, NO_LABEL if name in self.labels and whole else 0)
        length = longest if self.to is None else self.to
        made = tensors[0].new_full((len(tensors), length, *tensors[0].shape[1:]), fill)
        for row, tensor in zip(made, tensors, strict=True):
            row[: len(tensor)] = tensor
        return made


def _by_place(value: Any, what: str) -> tuple[Sequence[Any], Any]:
    if isinstance(value, Mapping):
        raise DataError(f"{what} has values by name, but others have none: give all the same form")
    if not isinstance(value, tuple | list) or len(value) < 2:
        raise DataError(
            f"{what} is {type(value).__name__}, but must be (input, label), (input, …, label) or a dict of "
            "inputs by name with 'labels'"
        )
    *inputs, label = value
    if len(inputs) == 1 and isinstance(inputs[0], tuple | list):
        inputs = list(inputs[0])
    named = next((one for one in inputs if isinstance(one, Mapping)), None)
    if named is not None:
        raise DataError(
            f"{what} has values by name ({', '.join(map(str, named))}) beside others: make it one dict, with "
            "the labels under 'labels'"
        )
    return inputs, label


def _tensor(value: Any, what: str) -> "Tensor":
    import torch

    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{what} can't become tensors ({error}); give the dataset a transform that returns tensors, or "
            "samples of different lengths a collate function"
        ) from error


def _has_numbers(value: Any) -> bool:
    """Whether a value is no text, nor made of it."""
    while isinstance(value, list | tuple):
        if not value:
            return True
        value = value[0]
    return value is not None and not isinstance(value, str | bytes | Mapping)


class Loaded(NamedTuple):
    """What a loader, or a dataset alone, says."""

    dataset: Any
    collate: Any = None
    """None where samples are stacked, as torch does it unless told otherwise."""
    workers: int = 0
    batch_size: int | None = None


def is_loader(given: Any) -> bool:
    """Whether it is a DataLoader of torch."""
    from torch.utils.data import DataLoader

    return isinstance(given, DataLoader)


def unpacked(given: Any, name: str) -> Loaded:
    """What is in a DataLoader; a dataset is what it is."""
    if not is_loader(given):
        return Loaded(given)
    from torch.utils.data import BatchSampler, IterableDataset, default_collate

    if isinstance(given.dataset, IterableDataset):
        raise _refused(name, "reads a stream of samples", "give a map-style dataset with len() and [index]")
    if given.batch_size is None and given.batch_sampler is None:
        raise _refused(
            name, "has no batch_size, so that its dataset makes whole mini-batches", "give samples"
        )
    if type(given.batch_sampler) is not BatchSampler:
        raise _refused(name, f"has a {type(given.batch_sampler).__name__} of its own", _DRAWN)
    sampler = type(given.sampler).__name__
    if sampler not in ("RandomSampler", "SequentialSampler") or _draws_otherwise(given.sampler):
        raise _refused(name, f"chooses samples by a {sampler}", _DRAWN)
    if given.drop_last:
        raise _refused(
            name,
            "leaves the last samples of an epoch out (drop_last=True)",
            "leave that out, or set steps of the session in place of epochs",
        )
    collate = None if given.collate_fn is default_collate else given.collate_fn
    return Loaded(given.dataset, collate, given.num_workers, given.batch_size)


_DRAWN = "mini-batches are drawn from the run's seed: give its dataset, or a Subset of that"


def _draws_otherwise(sampler: Any) -> bool:
    """Whether a random sampler draws with replacement, or another number than there are samples."""
    if getattr(sampler, "replacement", False):
        return True
    return getattr(sampler, "num_samples", len(sampler.data_source)) != len(sampler.data_source)


def _refused(name: str, what: str, instead: str) -> DataError:
    return DataError(f"the DataLoader of {name} {what}, which can't be taken over: {instead}")
