"""Mini-batches read ahead by processes of their own, with the same bits however many there are.

A process makes a whole mini-batch at a time, and what is drawn meanwhile follows from the mini-batch alone.
"""

from collections.abc import Callable, Iterable, Iterator
from multiprocessing import current_process
from typing import Any

from cutwater.base.errors import CutwaterError
from cutwater.data.samples import Batch, Indices

Read = Callable[[int, Indices, str], Batch]
"""The mini-batch of a step from the positions of its samples, on a device."""


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
