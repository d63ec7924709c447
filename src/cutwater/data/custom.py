"""The user's own data: any map-style dataset whose items are (inputs…, label) or values by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import DataError
from cutwater.base.kinds import Whole
from cutwater.base.usercode import blamed, find, told
from cutwater.data.forms import Form
from cutwater.data.loaders import is_loader, unpacked
from cutwater.data.padding import Pad
from cutwater.data.samples import Batch, Data, Indices, Samples, input_text

if TYPE_CHECKING:
    from torch import Tensor

Collate = Callable[[list[Any]], Any]
"""A mini-batch, samples first, of a list of samples as the dataset has them."""
PAD = "pad"
WORKERS, LONGEST = Whole(0, 1024), Whole(1)
"""What both may be, in a scenario as in Python."""


class DatasetSamples:
    """Samples of a dataset; an item is read when a mini-batch needs it, and never kept."""

    def __init__(
        self,
        dataset: Any,
        name: str = "the dataset",
        *,
        collate: Collate | None = None,
        label: str | None = None,
    ) -> None:
        if not _has_items(dataset):
            raise DataError(
                f"{name} is {type(dataset).__name__}, but must be a map-style dataset with len() and [index]"
            )
        self._dataset, self._collate, self._name = dataset, collate, name
        self.form, self.labels = Form(), None
        if len(dataset):
            first = self._read(0)
            whole = first if collate is None else self._collated([first])
            self.form = Form.of(whole, f"sample 0 of {name}", label)
            self.labels = _class_labels(dataset, self.form.label, self._item)

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def input(self) -> str:
        """The inputs of the first sample, as a model's input is written."""
        return input_text([value.shape for value in self._item(0).inputs], self.form.names)

    @property
    def varies(self) -> bool:
        """Whether mini-batches may differ in more than their number of samples."""
        return self._collate is not None

    def like(self, dataset: Any, name: str) -> "DatasetSamples":
        """Samples of another dataset, put together into mini-batches and handed on as these are."""
        made = DatasetSamples(dataset, name, collate=self._collate, label=self.form.label)
        return made.named_as(self)

    def named_as(self, trained: "DatasetSamples") -> "DatasetSamples":
        """The same with the inputs of training samples, in their order, where both have names."""
        wanted, own = trained.form.names, self.form.names
        if wanted is None or own is None:
            return self
        odd = next((key for key in wanted if key not in own), None)
        if odd is not None:
            raise DataError(
                f"{self._name} lacks {odd!r}, which training samples have: give all the same names"
            )
        return self.taking(wanted)

    def taking(self, names: Sequence[str]) -> "DatasetSamples":
        """The same with these inputs, in this order."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, form=replace(self.form, names=tuple(names)))
        return made

    def batch(self, indices: Indices, device: str = "cpu") -> Batch:
        """The samples at these positions as a mini-batch, on a device."""
        return self._batch(indices).to(device)

    def _batch(self, indices: Indices) -> Batch:
        import torch
        from torch.utils.data import TensorDataset

        if self._collate is not None:
            items = [self._read(int(index)) for index in indices]
            return self._checked(self.form.take(self._collated(items), self._whole), len(indices))
        # Only torch's own takes many positions at once; a subclass may treat each sample for itself.
        if type(self._dataset) is TensorDataset:
            *inputs, labels = self._dataset[torch.from_numpy(indices)]
            return Batch(tuple(inputs), labels)
        taken = [self._item(int(index)) for index in indices]
        try:
            stacked = [torch.stack(values) for values in zip(*(item.inputs for item in taken), strict=True)]
            return Batch(tuple(stacked), torch.stack([item.labels for item in taken]))
        except (RuntimeError, ValueError) as error:
            raise DataError(
                f"samples of {self._name} differ in shape or number of inputs, so that they can't form a "
                f"mini-batch ({error}); give all samples the same shape, or pad them by a collate function "
                "(cutwater.Pad)"
            ) from error

    @property
    def _whole(self) -> str:
        return f"a mini-batch of {self._name}"

    def _checked(self, taken: Batch, rows: int) -> Batch:
        """A mini-batch of a user's function, if it has the samples that it was made of."""
        for value in (*taken.inputs, taken.labels):
            if value.dim() == 0 or len(value) != rows:
                raise DataError(
                    f"the collate function of {self._name} made a tensor of shape {list(value.shape)} of "
                    f"{rows} samples, but samples must be its first dimension"
                )
        return taken

    def _collated(self, items: list[Any]) -> Any:
        assert self._collate is not None
        failed = f"the collate function of {self._name} failed on {len(items)} samples"
        takes = "it takes a list of samples and returns a mini-batch"
        with blamed(DataError, lambda said: f"{failed} ({said}); {takes}"):
            return self._collate(items)

    def _read(self, index: int) -> Any:
        try:
            return self._dataset[index]
        except Exception as error:  # whatever a user's dataset does when it is read
            raise DataError(
                f"sample {index} of {self._name} can't be read ({told(error)}); mend it or leave it out"
            ) from error

    def _item(self, index: int) -> Batch:
        """One sample."""
        what = f"sample {index} of {self._name}"
        if self._collate is None:
            return self.form.take(self._read(index), what)
        inputs, labels = self._checked(self.form.take(self._collated([self._read(index)]), self._whole), 1)
        return Batch(tuple(value[0] for value in inputs), labels[0])


def from_datasets(
    train: Any,
    test: Any = None,
    *,
    classes: int | None = None,
    name: str = "own data",
    collate: Collate | str | None = None,
    labels: str | None = None,
    longest: int | None = None,
    workers: int = 0,
) -> Data:
    """Data of the user's own training and test datasets; without the latter, nothing is scored.

    Either may be a torch DataLoader: its dataset, collate function and workers are taken over, and its batch
    size must be the session's.

    A sample is ``(input, …, label)``, or a dict of values by name, as Hugging Face has them: the model gets
    by name what its forward takes, and the loss the labels, which are called ``labels`` or ``label`` unless
    ``labels`` says otherwise. ``collate`` makes a mini-batch of a list of samples: a function, its name as
    ``package.module:function``, or ``"pad"`` (:class:`cutwater.Pad`) for samples of different lengths.
    Over a network nothing comes that is larger than was said before: no mini-batch is longer than the longest
    of the samples, which are looked at once, or than ``longest``, which saves that and lets devices have
    longer ones of their own. ``workers`` are processes that read mini-batches ahead; what is drawn in them
    follows from the run's seed, however many they are. ``classes`` is counted from the labels if it is not
    given; labels that are not whole numbers (of a regression, say) have no classes.
    """
    given = {f"{name} (train)": train, **({} if test is None else {f"{name} (test)": test})}
    loaded = {called: unpacked(part, called) for called, part in given.items()}
    first = next(iter(loaded.values()))
    joined = find_collate(collate)
    workers = WORKERS.check(workers, "workers", DataError)
    if longest is not None:
        longest = LONGEST.check(longest, "longest", DataError)
    if longest is not None and (joined or first.collate) is None:
        raise DataError(
            f"longest is {longest}, but without a collate function all samples have one size: set collate to "
            "'pad' or a function, or leave longest out"
        )
    sets = [
        DatasetSamples(one.dataset, called, collate=joined or one.collate, label=labels)
        for called, one in loaded.items()
    ]
    for samples in sets:
        if len(samples) == 0:
            raise DataError(f"{samples._name} has no samples; a dataset needs at least one")
    inputs = [samples.input for samples in sets]
    if test is not None:
        sets[1] = sets[1].named_as(sets[0])
    tests = sets[1] if test is not None else None
    data = Data(
        name,
        sets[0],
        tests,
        inputs[0],
        _count_classes(sets, classes, name),
        names=sets[0].form.names,
        varies=sets[0].varies,
        longest=longest,
        workers=workers or first.workers,
        batch_size=first.batch_size,
    )
    if not data.takes(sets[-1].input):
        raise DataError(f"{name} has training samples of {inputs[0]} but test samples of {inputs[1]}")
    return data


def as_data(given: Any) -> Data:
    """What is given as data: Data as it is; datasets or loaders, (train, test) or a training set, made so."""
    if isinstance(given, Data):
        return given
    if isinstance(given, tuple) and len(given) == 2:
        return from_datasets(*given)
    if is_loader(given) or _is_map_style(given):
        return from_datasets(given)
    raise DataError(
        f"data is {type(given).__name__}, but must be what cutwater.from_datasets(train, test) makes, or a "
        "dataset with len() and [index] or a DataLoader, alone or as (train, test)"
    )


def _is_map_style(given: Any) -> bool:
    return _has_items(given) and not isinstance(given, str | bytes | Mapping)


def _has_items(given: Any) -> bool:
    return hasattr(given, "__getitem__") and hasattr(given, "__len__")


def find_collate(collate: Collate | str | None) -> Collate | None:
    """A collate function by name, or as it is given."""
    if collate is None or callable(collate):
        return collate
    if collate == PAD:
        return Pad()
    if not isinstance(collate, str) or ":" not in collate:
        raise DataError(
            f"collate is {collate!r}, but must be a function of a list of samples, its name as "
            "package.module:function, or 'pad'"
        )
    found = find(collate, "collate", DataError)
    return found() if isinstance(found, type) else found


def call_user_source(source: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> Data:
    """What the function behind ``package.module:function`` returns, called with the scenario's options.

    ``settings`` are those of :func:`from_datasets`, for where it returns datasets.
    """
    function = find(source, "source", DataError)
    failed = f"{source} can't be called with options {sorted(options)}"
    returns = "it must return (train, test) datasets: try it in Python"
    with blamed(DataError, lambda said: f"{failed} ({said}); {returns}"):
        made = function(**options)
    if isinstance(made, Data):
        return made
    if isinstance(made, tuple | list) and len(made) == 2:
        return from_datasets(*made, name=source, **settings)
    if isinstance(made, Mapping) and "train" in made:  # a DatasetDict
        return from_datasets(made["train"], made.get("test"), name=source, **settings)
    if is_loader(made) or (_is_map_style(made) and not isinstance(made, tuple | list)):
        return from_datasets(made, name=source, **settings)
    raise DataError(
        f"{source} returned {type(made).__name__}, but must return (train, test) datasets, a training set "
        "alone or a cutwater Data"
    )


def _class_labels(dataset: Any, label: str | None, item: Callable[[int], Batch]) -> NDArray[np.int64] | None:
    """The label of every sample where labels are whole numbers, read from memory where that is possible."""
    import torch
    from torch.utils.data import TensorDataset

    if type(dataset) is TensorDataset:
        labels = dataset.tensors[-1]
    elif (targets := _plain_targets(dataset, label, item)) is not None:
        labels = targets
    elif item(0).labels.dim():
        return None
    else:
        labels = torch.stack([item(index).labels for index in range(len(dataset))])
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        return None
    found: NDArray[np.int64] = labels.to(torch.int64).cpu().numpy()
    return found


def _plain_targets(dataset: Any, label: str | None, item: Callable[[int], Batch]) -> "Tensor | None":
    """``targets`` (torchvision) or the column of labels (🤗 datasets), if it says what the items say."""
    import torch

    if getattr(dataset, "target_transform", None) is not None:
        return None
    try:
        column = label is not None and label in getattr(dataset, "column_names", ())
        targets = dataset[label][:] if column else getattr(dataset, "targets", None)
        labels = None if targets is None else torch.as_tensor(targets)
    except Exception:  # texts, ragged lists, whatever a user calls targets
        return None
    count = len(dataset)
    if labels is None or labels.dim() == 0 or len(labels) != count:
        return None
    # An item may map its label to another; the first, the middle and the last would show it.
    for index in (0, count // 2, count - 1):
        label_ = item(index).labels
        if label_.shape != labels.shape[1:] or not bool((label_.cpu() == labels[index].cpu()).all()):
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
