"""Values that hold tensors: what modules take and return, however nested."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """The same value with ``function`` applied to everything in it that holds nothing else, first to last.

    Tuples, named tuples, lists, mappings and dataclasses are looked into.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return _like(value, {f.name: map_leaves(function, getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, Mapping):
        return _like(value, {key: map_leaves(function, part) for key, part in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_leaves(function, part) for part in value))
    if type(value) in (tuple, list):
        return type(value)(map_leaves(function, part) for part in value)
    return function(value)


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """The same value with ``function`` applied to every tensor in it, first to last."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, Tensor) else leaf, value)


def leaves_in(value: Any, kind: type) -> list[Any]:
    """Every leaf of a kind in a value, in the same order."""
    found: list[Any] = []
    map_leaves(lambda leaf: found.append(leaf) if isinstance(leaf, kind) else None, value)
    return found


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in a value, in the same order."""
    return leaves_in(value, Tensor)


def _like(value: Any, parts: Mapping[Any, Any]) -> Any:
    """A mapping or dataclass of the same kind; an unusual one that can't be made anew becomes a dict."""
    if type(value) is dict:
        return dict(parts)
    try:
        return type(value)(**parts)
    except TypeError:
        return dict(parts)
