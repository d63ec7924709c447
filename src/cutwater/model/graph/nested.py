"""Values that hold tensors: what modules take and return, however nested.

Tuples, named tuples, lists, mappings, dataclasses and objects that carry tensors in their attributes are
looked into. One of the same kind is made without calling its class, as no two classes are called alike: it
gets the same items and attributes.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

Leaf = Callable[[Any], Any]


@dataclass(frozen=True)
class Hole:
    """Where a leaf goes, by its place among all leaves."""

    place: int


_TENSORS = (Tensor, fx.Node, fx.Proxy, Hole)
"""What stands for a tensor: itself, or what takes its place while a model is traced."""
_DEEPEST = 8
"""Objects that hold each other would be looked into for ever."""


def map_leaves(function: Leaf, value: Any) -> Any:
    """The same value with ``function`` applied to everything in it that holds nothing else, first to last."""
    return _map(function, value, 0)


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """The same value with ``function`` applied to every tensor in it, first to last."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, Tensor) else leaf, value)


def all_leaves(value: Any) -> list[Any]:
    """Everything in a value that holds nothing else, in the same order."""
    found: list[Any] = []
    map_leaves(found.append, value)
    return found


def leaves_in(value: Any, kind: type) -> list[Any]:
    """Every leaf of a kind in a value, in the same order."""
    return [leaf for leaf in all_leaves(value) if isinstance(leaf, kind)]


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in a value, in the same order."""
    return leaves_in(value, Tensor)


def kind_of(value: Any) -> Any:
    """The types of a value and of all that it holds: equal for two values of the same make."""
    if not is_looked_into(value):
        return Tensor if isinstance(value, Tensor) else type(value)
    items = [(key, kind_of(part)) for key, part in _items(value)]
    return type(value), items, [(name, kind_of(part)) for name, part in _attributes(value)]


def is_special(value: Any) -> bool:
    """Whether a value is, or holds, something that holds others and is no plain tuple, list or dict."""
    if not is_looked_into(value):
        return False
    return type(value) not in (tuple, list, dict) or any(is_special(part) for _, part in _items(value))


def with_holes(value: Any) -> Any:
    """The same value with a hole in place of every leaf."""
    count = itertools.count()
    return map_leaves(lambda leaf: Hole(next(count)), value)


def fill(holes: Any, leaves: Sequence[Any]) -> Any:
    """A value with holes, filled."""
    return map_leaves(lambda leaf: leaves[leaf.place] if isinstance(leaf, Hole) else leaf, holes)


class Builder:
    """Makes a value of a certain make from its leaves."""

    def __init__(self, like: Any) -> None:
        self.like = with_holes(like)
        self.__name__ = self.__qualname__ = f"build_{type(like).__name__}"
        self.__module__ = __name__

    def __call__(self, *leaves: Any) -> Any:
        """The value with these leaves, in the order of :func:`all_leaves`."""
        return fill(self.like, leaves)


def write(graph: fx.Graph, value: Any) -> Any:
    """A value of nodes as an argument in a graph: what is no plain tuple, list or dict is built there."""
    if not is_special(value):
        return value
    if type(value) is dict:
        return {key: write(graph, part) for key, part in value.items()}
    if type(value) in (tuple, list):
        return type(value)(write(graph, part) for part in value)
    return graph.call_function(Builder(value), tuple(all_leaves(value)))


def is_looked_into(value: Any, depth: int = 0) -> bool:
    """Whether a value holds others."""
    if depth > _DEEPEST or isinstance(value, (*_TENSORS, nn.Module, type, torch.Size)):
        return False
    if isinstance(value, (tuple, list, dict)) or is_dataclass(value):
        return True
    return _is_own_with_tensors(value, depth)


def _holds_tensors(value: Any, depth: int) -> bool:
    if isinstance(value, _TENSORS):
        return True
    if depth > _DEEPEST or isinstance(value, (nn.Module, type, torch.Size)):
        return False
    if isinstance(value, (tuple, list, dict)):
        return any(_holds_tensors(part, depth + 1) for _, part in _items(value))
    return _is_own_with_tensors(value, depth)


def _is_own_with_tensors(value: Any, depth: int) -> bool:
    """Whether a value is of a user's or a library's class, and tensors hang on it."""
    own = getattr(type(value), "__module__", "").partition(".")[0] not in ("builtins", "torch", "types")
    return own and any(_holds_tensors(part, depth + 1) for part in _state(value).values())


def _map(function: Leaf, value: Any, depth: int) -> Any:
    if not is_looked_into(value, depth):
        return function(value)
    items = {key: _map(function, part, depth + 1) for key, part in _items(value)}
    made = _with_items(value, items)
    for name, part in _attributes(value):
        made.__dict__[name] = _map(function, part, depth + 1)
    if isinstance(value, dict):
        for name in _state(value).keys() & items.keys():
            made.__dict__[name] = items[name]
    return made


def _with_items(value: Any, items: dict[Any, Any]) -> Any:
    """A value of the same class with items, and without attributes."""
    kind: Any = type(value)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return kind(*items.values())
        return (
            kind(items.values())
            if kind.__module__.startswith("torch")
            else tuple.__new__(kind, items.values())
        )
    made = kind.__new__(kind)
    if isinstance(value, dict):
        # An ordered dict keeps its order beside the dict, which dict's own method would not know of.
        owner: Any = next(base for base in kind.__mro__ if base.__module__ in ("builtins", "collections"))
        for key, part in items.items():
            owner.__setitem__(made, key, part)
    elif isinstance(value, list):
        list.extend(made, items.values())
    return made


def _items(value: Any) -> Sequence[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(dict.items(value))
    return list(enumerate(value)) if isinstance(value, (tuple, list)) else []


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes, without those that are items as well, as in Hugging Face's outputs."""
    for name, part in _state(value).items():
        if not (isinstance(value, dict) and name in value and dict.__getitem__(value, name) is part):
            yield name, part


def _state(value: Any) -> dict[str, Any]:
    return getattr(value, "__dict__", {}) if not isinstance(value, type) else {}
