"""Numbers that cross a cut after all: as a tensor with a row for each sample, as everything that crosses has.

A number follows from the inputs' sizes, and mostly the shape of another tensor that crosses tells it again. A
height and a width that were multiplied with each other are told by nothing: then they cross.
"""

from typing import Any

import torch
from torch import Tensor

from cutwater.model.graph.nested import Builder, all_leaves


def to_rows(value: Any, rows: int) -> Tensor:
    """A number, or several, as a tensor with as many equal rows."""
    numbers = all_leaves(tuple(value) if isinstance(value, torch.Size) else value)
    floating = any(isinstance(number, float) for number in numbers)
    row = torch.tensor(numbers, dtype=torch.float64 if floating else torch.int64, device="cpu")
    return row.expand(rows, -1).contiguous()


class FromRows:
    """Makes the number again."""

    def __init__(self, like: Any) -> None:
        size = isinstance(like, torch.Size)
        self._finish = torch.Size if size else lambda value: value
        self._kinds = [type(leaf) for leaf in all_leaves(tuple(like) if size else like)]
        self._build = Builder(tuple(like) if size else like)
        self.__name__ = self.__qualname__ = "from_rows"
        self.__module__ = __name__

    def __call__(self, rows: Tensor) -> Any:
        """What :func:`to_rows` was given."""
        numbers = [kind(number) for kind, number in zip(self._kinds, rows[0].tolist(), strict=True)]
        return self._finish(self._build(*numbers))


def can_be_rows(value: Any) -> bool:
    """Whether a value is a number, or holds numbers only."""
    leaves = all_leaves(tuple(value) if isinstance(value, torch.Size) else value)
    return bool(leaves) and all(type(leaf) in (bool, int, float) for leaf in leaves)
