"""Rows of smashed data that cross a cut once a session, and later as a number.

A row is what one sample sends up in a part: its place in every smashed tensor and, where labels go up, its
label. Where nothing before the cut learns or draws, a sample has the same row in every epoch. The client
still computes it, because how samples are put together into mini-batches may show in its last bits; it knows
a row by a digest of its bytes. A row that is new gets the next number and is sent, one that the server has is
its number alone. So the server trains on the very bytes that the client has computed, whatever repeats.

A lossy codec codes a row when it is sent: what arrived the first time is what it stays.

The server keeps as many rows as the client has samples. Rows beyond that have numbers, too, but are not kept,
and sent whenever they come.
"""

from collections.abc import Callable
from hashlib import blake2b

import torch
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.model.traffic import tensor_bytes
from cutwater.train.step import Tensors

NUMBER = torch.int32
"""What a row's number travels as."""


class SentRows:
    """What a client knows of the rows at its server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[bytes, int] = {}
        self._coming: dict[bytes, int] = {}
        """Rows of a part that is not answered yet: nobody knows whether they have arrived."""
        self._count = 0

    def told(self, tensors: Tensors) -> tuple[Tensor, Tensors]:
        """The number of every row of a part, and those rows that the server lacks."""
        self._coming, numbers, new = {}, list[int](), list[int]()
        for place, digest in enumerate(_digests(tensors)):
            number = self._known.get(digest, self._coming.get(digest))
            if number is None:
                number = self._coming[digest] = self._count + len(self._coming)
                new.append(place)
            numbers.append(number)
        if len(new) < len(numbers):
            tensors = tuple(tensor[torch.tensor(new, device=tensor.device).long()] for tensor in tensors)
        return torch.tensor(numbers, dtype=NUMBER), tensors

    def arrived(self) -> None:
        """The part was answered: the server has its rows."""
        self._known.update((digest, at) for digest, at in self._coming.items() if at < self._most)
        self._count += len(self._coming)
        self._coming = {}


class KeptRows:
    """The rows of a client at its server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: list[Tensors] = []
        self._count = 0
        self.bytes = 0
        """What the rows that are kept take."""

    def lacking(self, numbers: Tensor) -> int:
        """How many rows must come with these numbers; what no client that counts alike says is refused."""
        end = self._count
        for number in numbers.tolist():
            if number == end:
                end += 1
            elif not (0 <= number < len(self._rows) or self._count <= number < end):
                raise EngineError(
                    f"a part refers to row {number}, but there are {len(self._rows)}, and {end} is next"
                )
        return end - self._count

    def whole(self, numbers: Tensor, fresh: Tensors) -> Tensors:
        """All rows of a part, from those that came with it and those that are here; the former are kept."""
        new, places = self.lacking(numbers), numbers.tolist()
        if any(len(tensor) != new for tensor in fresh):
            found = [len(tensor) for tensor in fresh]
            raise EngineError(f"a part brings {found} rows of its tensors, but its numbers call for {new}")
        made = fresh if new == len(places) else self._put_together(places, fresh)
        for place in range(min(new, self._most - len(self._rows))):
            # Copies, because what arrived lies in memory that is used again.
            self._rows.append(tuple(tensor[place].clone() for tensor in fresh))
            self.bytes += tensor_bytes(self._rows[-1])
        self._count += new
        return made

    def _put_together(self, numbers: list[int], fresh: Tensors) -> Tensors:
        def row(number: int, which: int) -> Tensor:
            new = number - self._count
            return self._rows[number][which] if new < 0 else fresh[which][new]

        return tuple(torch.stack([row(number, which) for number in numbers]) for which in range(len(fresh)))


class RowsInProcess:
    """Both ends in one process."""

    def __init__(self, most: int) -> None:
        self._sent, self._kept = SentRows(most), KeptRows(most)

    def across(
        self, tensors: Tensors, cross: Callable[[Tensors], tuple[Tensors, int]]
    ) -> tuple[Tensors, int]:
        """What the server has of a part, and the bytes that crossed; ``cross`` is the way of new rows."""
        numbers, fresh = self._sent.told(tensors)
        arrived, size = cross(fresh)
        whole = self._kept.whole(numbers, arrived)
        self._sent.arrived()
        return whole, size + tensor_bytes((numbers,))


def _digests(tensors: Tensors) -> list[bytes]:
    """Of every row: of its bytes, and of what they are."""
    form = repr([(str(tensor.dtype), tuple(tensor.shape[1:])) for tensor in tensors]).encode()
    rows = len(tensors[0])
    digests = [blake2b(form, digest_size=16) for _ in range(rows)]
    for tensor in tensors:
        if tensor.numel():
            raw = tensor.detach().cpu().contiguous().reshape(rows, -1).view(torch.uint8).numpy()
            for digest, row in zip(digests, raw, strict=True):
                digest.update(row.data)
    return [digest.digest() for digest in digests]
