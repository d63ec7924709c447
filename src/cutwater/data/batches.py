"""The mini-batches of a client's session, a pure function of (seed, round, client).

They know nothing of cuts, engines and processes: wherever client k trains in round t, it sees these samples
in this order. They may be read ahead by processes of their own, with the same bits however many there are: a
process makes a whole mini-batch at a time, and what is drawn meanwhile follows from the mini-batch alone.

Those that a model is scored on are of the test set, and of the samples that clients hold back.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from multiprocessing import current_process
from typing import Any, NamedTuple

import numpy as np
from numpy.random import RandomState

from cutwater.base.errors import CutwaterError, DataError
from cutwater.base.seeded import stream
from cutwater.data.partition import Partition
from cutwater.data.samples import Batch, Data, Indices
from cutwater.plan.session import Session, last_of_pass

Read = Callable[[int, Indices, str], Batch]
"""The mini-batch of a step from the positions of its samples, on a device."""
TEST_BATCH = 256
TEST_SET = ""
"""Whose samples those of the test set are: nobody's."""


def batches(samples: Indices, session: Session, *, seed: int, round_: int, client: str) -> Iterator[Indices]:
    """The positions of every mini-batch of a session, in order.

    By ``epochs``: passes over the client's samples, each shuffled; the last mini-batch of a pass is what is
    left. By ``steps``: mini-batches drawn at random, each without replacement (Sec. III-A of the paper).
    """
    check_session(len(samples), session, client)
    if session.epochs is not None:
        return _passes(samples, session.batch_size, session.epochs, (seed, round_, client))
    assert session.steps is not None
    drawn = (stream(seed, "step", round_, client, step) for step in range(session.steps))
    return (samples[_distinct(each, len(samples), session.batch_size)] for each in drawn)


def batch_sizes(samples: int, session: Session) -> list[int]:
    """How many samples each mini-batch of a session has, without drawing them.

    >>> batch_sizes(100, Session(epochs=1)), batch_sizes(65, Session(epochs=1))
    ([32, 32, 32, 4], [32, 33])
    """
    if session.epochs is None:
        return [session.batch_size] * (session.steps or 0)
    return [end - start for start, end in pairwise(_edges(samples, session.batch_size))] * session.epochs


def check_session(samples: int, session: Session, client: str) -> None:
    """Refuse a session that can't be trained: no samples, or fewer than one mini-batch needs."""
    if samples == 0:
        raise DataError(f"client {client!r} has no samples to train on; give it some or leave it out")
    if session.batch_size > samples:
        raise DataError(
            f"batch_size is {session.batch_size}, but client {client!r} has {samples} samples to train on; "
            f"use a batch_size between 1 and {samples}"
        )


@lru_cache(maxsize=64)
def _edges(samples: int, batch_size: int) -> tuple[int, ...]:
    """Where the mini-batches of a pass begin and end; asked for by every pass, session and round."""
    full, left = (int(each) for each in last_of_pass(np.array(samples), np.array(batch_size)))
    return tuple(accumulate([batch_size] * full + [left] * (left > 0), initial=0))


def _passes(samples: Indices, batch_size: int, epochs: int, key: tuple[int, int, str]) -> Iterator[Indices]:
    seed, round_, client = key
    edges = _edges(len(samples), batch_size)
    for epoch in range(epochs):
        order = samples[stream(seed, "pass", round_, client, epoch).permutation(len(samples))]
        for start, end in pairwise(edges):
            yield order[start:end]


def _distinct(random: RandomState, samples: int, count: int) -> Indices:
    """``count`` different positions of ``samples``, uniformly."""
    if samples < 4 * count:
        return random.permutation(samples)[:count]
    # Of a long list few draws collide; skipping those that do is uniform, and spares shuffling all of it.
    drawn = random.randint(samples, size=2 * count)
    while len(first := np.unique(drawn, return_index=True)[1]) < count:
        drawn = np.append(drawn, random.randint(samples, size=count))
    return drawn[np.sort(first)[:count]]


def read_ahead(read: Read, positions: Iterable[Indices], workers: int, device: str) -> Iterator[Batch]:
    """The mini-batches of a session, in order."""
    # A process that trains for another one may have no processes of its own.
    if workers == 0 or current_process().daemon:
        return (read(step, chosen, device) for step, chosen in enumerate(positions))
    return _by_workers(read, list(positions), workers, device)


def _by_workers(read: Read, positions: list[Indices], workers: int, device: str) -> Iterator[Batch]:
    import torch
    from torch.utils.data import DataLoader

    steps: Any = _Steps(read, positions)
    # Its generator is its own: torch's would be one draw further on than without workers.
    source = torch.Generator().manual_seed(0)
    count = min(workers, len(positions))
    loader: DataLoader[Any] = DataLoader(
        steps, batch_size=None, num_workers=count, collate_fn=_as_it_is, generator=source
    )
    for made in loader:
        if isinstance(made, CutwaterError):
            raise made
        yield made.to(device)


class _Steps:
    """The steps of a session as a dataset."""

    def __init__(self, read: Read, positions: list[Indices]) -> None:
        self._read, self._positions = read, positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, step: int) -> Batch | CutwaterError:
        try:
            return self._read(step, self._positions[step], "cpu")
        except CutwaterError as error:  # raised by torch, it would be a page long
            return error


def _as_it_is(made: object) -> object:
    return made


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
