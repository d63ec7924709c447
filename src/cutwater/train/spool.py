"""Updates set aside until a round is over: in a file without a name, so that memory stays that of one.

What needs all updates of a round at once (a median, say) would hold a model for every client. Here they are
written to the system's folder for temporary files (``TMPDIR``) and read back one at a time, or a few numbers
of all at a time. The file is gone with the process, however that ends.
"""

import os
import tempfile
import weakref
from collections.abc import Iterator
from itertools import accumulate
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.train.exactsum import ROOM
from cutwater.train.expected import Expected, raw_bytes
from cutwater.train.session import State

_AT_A_TIME = 1 << 22
"""Numbers of all updates together that are looked at at once: 32 MiB in float64."""


class Spool:
    """Updates of one round, in the order in which they were put here."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._names = (*expected.floats, *expected.counters)
        # Where each begins, and last where all end.
        *offsets, self._size = accumulate((expected.kinds[name].bytes for name in self._names), initial=0)
        self._offsets = dict(zip(self._names, offsets, strict=True))
        self._file: IO[bytes] | None = None
        self._count = 0

    def put(self, state: State) -> int:
        """Set an update aside; its place among them."""
        try:
            file = self._opened()
            file.seek(self._count * self._size)
            for name in self._names:
                file.write(raw_bytes(state[name]).numpy().data)
            file.flush()
        except OSError as error:
            raise RunError(
                f"an update can't be set aside in {tempfile.gettempdir()} ({error.strerror or error}); make "
                "room there, or set TMPDIR to a folder that has some"
            ) from error
        self._count += 1
        return self._count - 1

    def get(self, place: int) -> State:
        """An update as it was put here."""
        fixed = self._expected.fixed
        return {
            name: fixed[name] if name in fixed else self._tensor(name, place) for name in self._expected.kinds
        }

    def columns(self, name: str) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """A tensor of all updates, some of its numbers at a time: where in it, and a row for each update.

        Numbers are float64, or int64 where they are whole.
        """
        total = self._expected.kinds[name].shape.numel()
        wide = torch.float64 if name in self._expected.floats else torch.int64
        step = max(1, min(ROOM, _AT_A_TIME // max(1, self._count)))
        for start in range(0, total, step):
            stop = min(start + step, total)
            rows = [self._read(name, place, start, stop).to(wide).numpy() for place in range(self._count)]
            yield slice(start, stop), np.stack(rows)

    def close(self) -> None:
        """Give the room back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="cutwater-")  # noqa: SIM115 - see close
            weakref.finalize(self, self._file.close)
        return self._file

    def _tensor(self, name: str, place: int) -> Tensor:
        kind = self._expected.kinds[name]
        return self._read(name, place, 0, kind.shape.numel()).view(kind.shape)

    def _read(self, name: str, place: int, start: int, stop: int) -> Tensor:
        dtype = self._expected.kinds[name].dtype
        if start == stop:
            return torch.empty(0, dtype=dtype)
        size, offset = dtype.itemsize, place * self._size + self._offsets[name]
        content = bytearray((stop - start) * size)
        rest, file = memoryview(content), self._opened().fileno()
        while rest:
            read = os.preadv(file, [rest], offset + stop * size - len(rest))
            if not read:
                raise RunError("updates that were set aside are gone: their file was cut short")
            rest = rest[read:]
        return torch.frombuffer(content, dtype=dtype)
