"""Samples of different lengths in one mini-batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cutwater.base.errors import DataError
from cutwater.data.forms import LABELS

if TYPE_CHECKING:
    from torch import Tensor

NO_LABEL = -100
"""What torch's and transformers' losses leave out."""


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
