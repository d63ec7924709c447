"""What a model is scored on: the test set, and the samples that clients hold back, in mini-batches."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from cutwater.data.partition import Partition
from cutwater.data.samples import Batch, Data

TEST_BATCH = 256
TEST_SET = ""
"""Whose samples those of the test set are: nobody's."""


class _Place(NamedTuple):
    """Some samples of one set."""

    owner: str
    start: int
    end: int


class TestBatches(Sequence[Batch]):
    """Mini-batches of the test set, then of every client's local tests, made when asked for."""

    __test__ = False  # not a test case, whatever its name suggests to pytest

    def __init__(self, data: Data, device: str, partition: Partition | None = None) -> None:
        self.data, self.device, self.partition = data, device, partition
        sizes = {TEST_SET: 0 if data.test is None else len(data.test)}
        if partition is not None:
            sizes |= dict(zip(partition.clients, map(int, partition.test_sizes), strict=True))
        self._places = [
            _Place(owner, start, min(start + TEST_BATCH, size))
            for owner, size in sizes.items()
            for start in range(0, size, TEST_BATCH)
        ]

    @property
    def owners(self) -> list[str]:
        """The client whose tests each mini-batch is of; TEST_SET for those of the test set."""
        return [place.owner for place in self._places]

    def sets(self) -> list[list[int]]:
        """The places of the mini-batches of each set."""
        numbered = groupby(range(len(self)), key=lambda number: self._places[number].owner)
        return [list(numbers) for _, numbers in numbered]

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Batch]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        from cutwater.model.randomness import drawn_from

        owner, start, end = self._places[index]
        if owner == TEST_SET:
            assert self.data.test is not None
            with drawn_from(start, "test samples"):
                return self.data.test.batch(np.arange(start, end), self.device)
        assert self.partition is not None
        with drawn_from(start, "local tests", owner):
            return self.data.train.batch(self.partition[owner].test[start:end], self.device)


def sets_of(batches: Sequence[Batch]) -> list[list[int]]:
    """The places of the mini-batches of each set; all are of one where nothing else is said."""
    return batches.sets() if isinstance(batches, TestBatches) else [list(range(len(batches)))]
