"""Who holds which samples: a partition of a training set over clients, as indices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import DataError, suggest
from cutwater.base.seeded import stream
from cutwater.data.samples import Indices


class Holding(NamedTuple):
    """The samples of one client, as positions in the training set of the source."""

    train: Indices
    """D_k: what the client trains on; its length is n_k."""
    test: Indices
    """What the client keeps back for its own tests."""


class ClientSamples(NamedTuple):
    """One line of the table of a partition."""

    client: str
    train: int
    test: int
    classes: tuple[int, ...]
    """How many samples of each class the client holds, tests included; empty where there are no classes."""


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition over clients; it costs four bytes for each sample, whatever the number of clients."""

    method: str
    clients: tuple[str, ...]
    order: NDArray[np.int32]
    """Positions in the training set, client after client."""
    ends: NDArray[np.int64]
    """Where in ``order`` each client's samples end."""
    local_test: float
    """The part of a client's samples that is kept for its own tests."""
    seed: int

    @classmethod
    def of(
        cls, held: Mapping[str, Sequence[int] | Indices], *, local_test: float = 0.0, seed: int = 0
    ) -> "Partition":
        """A partition of one's own: the positions in the training set that each client holds."""
        columns = [np.asarray(positions) for positions in held.values()]
        for client, column in zip(held, columns, strict=True):
            if column.ndim != 1 or not len(column) or column.dtype.kind not in "iu":
                raise DataError(f"client {client!r} must hold a list of positions in the training set")
        if not columns or not 0 <= local_test < 1:
            raise DataError(
                f"a partition has {len(columns)} clients and local_test {local_test}, but needs a client and "
                "a local_test of at least 0 and below 1"
            )
        order = np.clip(np.concatenate(columns), -1, 2**31 - 1).astype(np.int32)
        return cls("own", tuple(held), order, np.cumsum([*map(len, columns)]), float(local_test), seed)

    def check_fits(self, clients: Sequence[str], samples: Sequence[int], total: int) -> None:
        """Refuse a partition of other clients, or of more samples than there are."""
        if self.clients != tuple(clients):
            odd = next((n for n in (*clients, *self.clients) if (n in clients) != (n in self.clients)), None)
            what = "are in another order" if odd is None else f"differ in {odd!r}"
            raise DataError(f"the clients of the partition and of the fleet {what}: use the same for both")
        for client, said, held in zip(clients, samples, self._sizes, strict=True):
            if said != held:
                raise DataError(
                    f"client {client!r} has samples {said}, but the partition gives it {held}: set "
                    f"samples = {held}"
                )
        if self.order.min() < 0 or self.order.max() >= total:
            wrong = int(self.order.min() if self.order.min() < 0 else self.order.max())
            raise DataError(f"the partition has position {wrong}, but there are samples 0 to {total - 1}")

    def __getitem__(self, client: str) -> Holding:
        """The samples of a client; split into training and tests when they are asked for."""
        if client not in self._position:
            raise DataError(f"the partition has no client {client!r}; {suggest(client, self.clients)}")
        held = self._held(self._position[client]).astype(np.int64)
        tests = int(self.test_sizes[self._position[client]])
        if tests:
            held = stream(self.seed, "local split", client).permutation(held)
        return Holding(np.sort(held[tests:]), np.sort(held[:tests]))

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def train_sizes(self) -> Indices:
        """n_k of every client: what it holds without its local tests."""
        return self._sizes - self.test_sizes

    @cached_property
    def test_sizes(self) -> Indices:
        """What every client keeps back for its local tests."""
        return (self._sizes * self.local_test).astype(np.int64)

    @property
    def _sizes(self) -> Indices:
        return np.diff(self.ends, prepend=0)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {client: position for position, client in enumerate(self.clients)}

    def _held(self, position: int) -> NDArray[np.int32]:
        start = int(self.ends[position - 1]) if position else 0
        return self.order[start : int(self.ends[position])]

    def table(self, labels: NDArray[np.int64] | None) -> list[ClientSamples]:
        """A row for each client: how many samples, and of which classes."""
        classes = 0 if labels is None else int(labels.max()) + 1
        rows = []
        for position, client in enumerate(self.clients):
            held = self._held(position)
            counts = [] if labels is None else np.bincount(labels[held], minlength=classes).tolist()
            tests = int(self.test_sizes[position])
            rows.append(ClientSamples(client, len(held) - tests, tests, tuple(counts)))
        return rows
