"""Which sizes of samples vary, and how far: what whoever has to know it before a mini-batch comes goes by.

A collate function may make mini-batches of different sizes, such as the length of their longest sample. Each
sample is looked at once, as a mini-batch of its own; a mini-batch is taken to be as large, in each dimension,
as the largest of its samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.base.errors import DataError
from cutwater.base.speech import by_file
from cutwater.data.samples import Batch, Data, Samples

Sizes = tuple[tuple[int, ...], ...]
"""Of each input, and of the labels last: the sizes of a sample."""
_FEW = 64
"""Samples that are looked at where the largest size is said."""


@dataclass(frozen=True)
class Extremes:
    """The largest and the smallest samples of a set."""

    largest: tuple[int, ...]
    """Positions of samples that make the largest mini-batch together."""
    smallest: tuple[int, ...]
    """One for each size that varies: the position of a sample that has the smallest; empty if none does."""
    varies: tuple[tuple[int, ...], ...]
    """Of each input, and of the labels last: the dimensions of a sample whose sizes vary."""


def sizes_of(batch: Batch) -> Sizes:
    """The sizes of a mini-batch's samples."""
    return tuple(tuple(value.shape[1:]) for value in (*batch.inputs, batch.labels))


def _sizes_at(samples: Samples, position: int) -> Sizes:
    return sizes_of(samples.batch(np.array([position], dtype=np.int64)))


def extremes(samples: Samples, name: str, first: int | None = None) -> Extremes:
    """Of a set of samples, or of so many first ones."""
    count = len(samples) if first is None else min(first, len(samples))
    begun = _sizes_at(samples, 0)
    ranks = [len(sizes) for sizes in begun]
    table = np.empty((count, sum(ranks)), dtype=np.int64)
    for at in range(count):
        found = _sizes_at(samples, at)
        if [len(sizes) for sizes in found] != ranks:
            raise DataError(
                f"sample {at} of {name!r} has sizes {found}, but sample 0 has {begun}: samples may differ in "
                "their sizes, but not in how many they have"
            )
        table[at] = [size for sizes in found for size in sizes]
    differ = (table.max(axis=0) > table.min(axis=0)).tolist()
    largest = sorted({int(at) for at in table.argmax(axis=0)} or {0})
    smallest = sorted({int(at) for at, one in zip(table.argmin(axis=0), differ, strict=True) if one})
    flags = iter(differ)
    varies = tuple(tuple(at for at in range(rank) if next(flags)) for rank in ranks)
    return Extremes(tuple(largest), tuple(smallest), varies)


def example_batches(data: Data, device: str = "cpu") -> tuple[Batch, ...]:
    """Mini-batches of two samples or more that show what may come: the largest first, then smaller ones."""
    pair = np.arange(min(2, len(data.train)))
    if not data.varies:
        return (data.train.batch(pair, device),)
    found = extremes(data.train, data.name, None if data.longest is None else _FEW)
    if not found.smallest and data.longest is not None:  # a few that are alike say nothing of the others
        found = extremes(data.train, data.name)
    if not found.smallest:
        return (data.train.batch(pair, device),)
    largest = [at for at in found.largest for _ in range(2 if len(found.largest) == 1 else 1)]
    batches = [data.train.batch(np.array([at, at]), device) for at in found.smallest]
    return (_grown(data, data.train.batch(np.array(largest), device), found.varies), *batches)


def check_sizes(batch: Batch, example: Sequence[Batch], data: Data, client: str) -> None:
    """Refuse a mini-batch that is larger than any that was told beforehand, where sizes vary."""
    if len(example) == 1:
        return
    most = sizes_of(example[0])
    for place, (sizes, largest) in enumerate(zip(sizes_of(batch), most, strict=True)):
        over = [size for size, limit in zip(sizes, largest, strict=False) if size > limit]
        if over:
            what = "labels" if place == len(most) - 1 else f"input {place}"
            raise DataError(
                f"a mini-batch of client {client!r} has {what} of {list(sizes)}, but samples of "
                f"{data.name!r} have {list(largest)} at most: cut them off there, or set longest"
                + by_file(" in [data]", " of from_datasets")
                + f" to {max(over)} or more"
            )


def _grown(data: Data, batch: Batch, varies: Sequence[Sequence[int]]) -> Batch:
    """The same with sizes that vary as large as they may be: values are repeated."""
    import torch

    if data.longest is None:
        return batch
    values = []
    for value, dimensions in zip((*batch.inputs, batch.labels), varies, strict=True):
        for dimension in dimensions:
            size = value.shape[1 + dimension]
            if size > data.longest:
                raise DataError(
                    f"longest is {data.longest}, but a sample of {data.name!r} has a size of {size}: cut "
                    f"it off, or set longest to {size} or more"
                )
            places = torch.arange(data.longest, device=value.device) % size
            value = value.index_select(1 + dimension, places)  # noqa: PLW2901 - grown step by step
        values.append(value)
    return Batch(tuple(values[:-1]), values[-1])
