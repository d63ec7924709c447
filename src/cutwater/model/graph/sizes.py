"""Numbers seldom cross a cut: sizes, types and devices are read again from tensors that are there anyway.

A model's glue computes with the sizes of its tensors (``x.view(x.size(0), -1)``, ``torch.arange(n)``). Where
such a number was read on the client and is used on the server, the server reads the same number from the
shape of what crossed. Which size of which tensor that is, several runs on inputs of different batch size and
length tell: the one that changed in the same way.

A height and a width that were multiplied with each other are told by nothing. Such a number crosses after
all: as a tensor with a row for each sample, as everything that crosses has.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from cutwater.model.graph.nested import Builder, all_leaves

Term = Callable[[fx.Graph, Mapping[fx.Node, Any]], Any]
"""Writes a number into a graph, given the copies of the tensors that crossed."""

READS = frozenset({"size", "dim", "numel", "nelement", "ndimension"})
ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_meta"})


@dataclass(frozen=True, eq=False)
class Sizes:
    """What each run saw: the numbers of a program and the shapes of its tensors."""

    numbers: Mapping[fx.Node, tuple[Any, ...]] = field(default_factory=dict)
    shapes: Mapping[fx.Node, tuple[torch.Size, ...]] = field(default_factory=dict)
    dtypes: Mapping[fx.Node, torch.dtype] = field(default_factory=dict)

    def __contains__(self, node: object) -> bool:
        return node in self.numbers

    def express(self, node: fx.Node, crossing: Iterable[fx.Node]) -> Term | None:
        """How to tell the number ``node`` from the tensors that cross; None where they don't tell it."""
        return self._term(self.numbers[node], [n for n in crossing if n in self.shapes])

    def _term(self, seen: tuple[Any, ...], crossing: list[fx.Node]) -> Term | None:
        first = seen[0]
        if isinstance(first, torch.device):
            return _read(crossing[0], "device") if crossing else None
        if isinstance(first, torch.dtype):
            same = next((n for n in crossing if self.dtypes[n] == first), None)
            return _read(same, "dtype") if same is not None else _literal(first)
        if isinstance(first, (tuple, list)):
            return self._group(seen, crossing)
        if all(type(value) is type(first) and value == first for value in seen):
            return _literal(first)
        return self._measure(seen, crossing) if isinstance(first, int) else None

    def _measure(self, seen: tuple[Any, ...], crossing: list[fx.Node]) -> Term | None:
        for node in crossing:
            runs = self.shapes[node]
            for dim in range(min(len(shape) for shape in runs)):
                if tuple(shape[dim] for shape in runs) == seen:
                    return _size(node, dim)
        return None

    def _group(self, seen: tuple[Any, ...], crossing: list[fx.Node]) -> Term | None:
        if len({len(value) for value in seen}) != 1:
            return None
        terms = [self._term(parts, crossing) for parts in zip(*seen, strict=True)]
        if any(term is None for term in terms):
            return None
        kind = type(seen[0])

        def write(graph: fx.Graph, copies: Mapping[fx.Node, Any]) -> Any:
            parts = [term(graph, copies) for term in terms if term is not None]
            if kind is torch.Size:
                return graph.call_function(torch.Size, (tuple(parts),))
            return kind(parts)

        return write


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


def reads_metadata(node: fx.Node) -> bool:
    """Whether a node reads a tensor's shape, type or device, and not its contents."""
    if node.op == "call_method":
        return node.target in READS
    if node.target is getattr:
        return node.args[1] in ATTRIBUTES
    if isinstance(node.target, FromRows):
        return True
    return node.op == "call_function" and str(node.target).startswith(("aten.sym_size", "aten.sym_numel"))


def computes(node: fx.Node) -> bool:
    """Whether a node is arithmetic on numbers, which has no effect and no other input."""
    if node.op != "call_function":
        return False
    home = getattr(node.target, "__module__", "") or ""
    return home in ("_operator", "math", "builtins", "torch") or node.target is operator.getitem


def _literal(value: Any) -> Term:
    return lambda graph, copies: value


def _read(node: fx.Node, attribute: str) -> Term:
    return lambda graph, copies: graph.call_function(getattr, (copies[node], attribute))


def _size(node: fx.Node, dim: int) -> Term:
    return lambda graph, copies: graph.call_method("size", (copies[node], dim))
