"""The user's own data: any map-style torch Dataset whose items are (inputs…, label)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import CutwaterError, DataError
from cutwater.base.usercode import find, told
from cutwater.data.samples import Batch, Data, Indices, Samples, shape_text

if TYPE_CHECKING:
    from torch import Tensor


class DatasetSamples:
    """Samples of a torch Dataset; an item is read when a mini-batch needs it, and never kept."""

    def __init__(self, dataset: Any, name: str = "the dataset") -> None:
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            raise DataError(
                f"{name} is {type(dataset).__name__}, but must be a map-style dataset with len() and [index]"
            )
        self._dataset = dataset
        self._name = name
        self.labels = _class_labels(dataset, self._item) if len(dataset) else None

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def shapes(self) -> str:
        """The shapes of the inputs of a sample."""
        return ",".join(shape_text(value.shape) for value in self._item(0)[0])

    def batch(self, indices: Indices, device: str = "cpu") -> Batch:
        """The samples at these positions, stacked, on a device."""
        import torch
        from torch.utils.data import TensorDataset

        # Only torch's own takes many positions at once; a subclass may treat each sample for itself.
        if type(self._dataset) is TensorDataset:
            *inputs, labels = self._dataset[torch.from_numpy(indices)]
        else:
            items = [self._item(int(index)) for index in indices]
            try:
                inputs = [torch.stack(values) for values in zip(*(item[0] for item in items), strict=True)]
                labels = torch.stack([item[1] for item in items])
            except (RuntimeError, ValueError) as error:
                raise DataError(
                    f"samples of {self._name} differ in shape or number of inputs, so that they can't form a "
                    f"mini-batch ({error}); give all samples the same shape"
                ) from error
        return Batch(tuple(value.to(device) for value in inputs), labels.to(device))

    def _item(self, index: int) -> "tuple[tuple[Tensor, ...], Tensor]":
        import torch

        try:
            item = self._dataset[index]
        except Exception as error:  # whatever a user's dataset does when it is read
            raise DataError(
                f"sample {index} of {self._name} can't be read ({told(error)}); mend it or leave it out"
            ) from error
        named = next((one for one in (item, *_members(item)) if isinstance(one, Mapping)), None)
        if named is not None:
            raise DataError(
                f"sample {index} of {self._name} has values by name ({', '.join(map(str, named))}), but must "
                "be (input, …, label), with the inputs in the order that the model's forward takes them"
            )
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise DataError(
                f"sample {index} of {self._name} is {type(item).__name__}, but must be (input, label) or "
                "(input, …, label)"
            )
        *inputs, label = item
        if len(inputs) == 1 and isinstance(inputs[0], tuple | list):
            inputs = list(inputs[0])
        try:
            return tuple(torch.as_tensor(value) for value in inputs), torch.as_tensor(label)
        except (TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                f"sample {index} of {self._name} can't become tensors ({error}); "
                "give the dataset a transform that returns tensors"
            ) from error


def from_datasets(
    train: Any, test: Any = None, *, classes: int | None = None, name: str = "own data"
) -> Data:
    """Data of the user's own training and test datasets; without the latter, nothing is scored.

    ``classes`` is counted from the labels if it is not given; labels that are not whole numbers (of a
    regression, say) have no classes.
    """
    given = [(train, "train"), *([] if test is None else [(test, "test")])]
    sets = [DatasetSamples(part, f"{name} ({which})") for part, which in given]
    for samples in sets:
        if len(samples) == 0:
            raise DataError(f"{samples._name} has no samples; a dataset needs at least one")
    shapes = [samples.shapes for samples in sets]
    if shapes[0] != shapes[-1]:
        raise DataError(f"{name} has training samples of {shapes[0]} but test samples of {shapes[1]}")
    tests = sets[1] if test is not None else None
    return Data(name, sets[0], tests, shapes[0], _count_classes(sets, classes, name))


def call_user_source(source: str, options: dict[str, Any]) -> Data:
    """What the function behind ``package.module:function`` returns, called with the scenario's options."""
    function = find(source, "source", DataError)
    try:
        made = function(**options)
    except CutwaterError:
        raise
    except Exception as error:  # whatever a user's function does when it is called
        raise DataError(
            f"{source} can't be called with options {sorted(options)} ({told(error)}); it must return "
            "(train, test) datasets: try it in Python"
        ) from error
    if isinstance(made, Data):
        return made
    if isinstance(made, tuple | list) and len(made) == 2:
        return from_datasets(*made, name=source)
    if hasattr(made, "__getitem__") and hasattr(made, "__len__") and not isinstance(made, tuple | list):
        return from_datasets(made, name=source)
    raise DataError(
        f"{source} returned {type(made).__name__}, but must return (train, test) datasets, a training set "
        "alone or a cutwater Data"
    )


def _members(item: Any) -> Sequence[Any]:
    return item if isinstance(item, tuple | list) else ()


def _class_labels(dataset: Any, item: Any) -> NDArray[np.int64] | None:
    """The label of every sample where labels are whole numbers, read from memory where that is possible."""
    import torch
    from torch.utils.data import TensorDataset

    if type(dataset) is TensorDataset:
        labels = dataset.tensors[-1]
    elif (targets := _plain_targets(dataset, item)) is not None:
        labels = targets
    elif item(0)[1].dim():
        return None
    else:
        labels = torch.stack([item(index)[1] for index in range(len(dataset))])
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        return None
    found: NDArray[np.int64] = labels.to(torch.int64).cpu().numpy()
    return found


def _plain_targets(dataset: Any, item: Any) -> "Tensor | None":
    """``targets``, as torchvision's datasets have it, if it says what the items say."""
    import torch

    targets = getattr(dataset, "targets", None)
    if targets is None or getattr(dataset, "target_transform", None) is not None:
        return None
    try:
        labels = torch.as_tensor(targets)
    except Exception:  # texts, ragged lists, whatever a user calls targets
        return None
    count = len(dataset)
    if labels.dim() == 0 or len(labels) != count:
        return None
    # An item may map its label to another; the first, the middle and the last would show it.
    for index in (0, count // 2, count - 1):
        label = item(index)[1]
        if label.shape != labels.shape[1:] or not bool((label.cpu() == labels[index].cpu()).all()):
            return None
    return labels


def _count_classes(sets: Sequence[Samples], classes: int | None, name: str) -> int | None:
    labels = [samples.labels for samples in sets]
    if classes is not None and classes < 1:
        raise DataError(f"{name} was given {classes} classes, but must have 1 or more")
    if any(part is None for part in labels):
        if classes is not None:
            raise DataError(f"{name} was given {classes} classes, but its labels are not whole numbers")
        return None
    return classes if classes is not None else 1 + max(int(part.max()) for part in labels if part is not None)
