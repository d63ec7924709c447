"""What a sample or a collated mini-batch may look like: ``(input, …, label)``, or values by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cutwater.base.errors import DataError
from cutwater.data.samples import Batch

if TYPE_CHECKING:
    from torch import Tensor

LABELS = ("labels", "label")
"""What labels are called where nobody says otherwise, as Hugging Face calls them."""


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
