"""What a loss or a model is besides its weights, as plain values: a digest of them tells two apart.

Nothing is run. A function is known by its name and by the values that it carries: its defaults and what it
closes over. Its code is not looked at, as little as a model's: to mend a word in it must not end a run.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cutwater.train.aggregate import weights_sha256

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
"""What torch keeps in each module: hooks, its mode, and the tables of what is described below."""


def described(value: Any, within: tuple[int, ...] = ()) -> Any:
    """A value as JSON would write it; of what holds others, each of them. ``within`` are those around it."""
    if isinstance(value, _PLAIN):
        return value if isinstance(value, int | float | str | None) else str(value)
    if id(value) in within:
        return "itself"
    for kind, describe in _KINDS:
        if isinstance(value, kind):
            return describe(value, (*within, id(value)))
    # A built-in function has a name of its own, as a class has; another object is one of its class.
    return getattr(value, "__qualname__", None) or _object(value, within)


def frozen(model: nn.Module) -> list[str]:
    """The parameters that training leaves alone."""
    return [name for name, parameter in model.named_parameters() if not parameter.requires_grad]


def settings(model: nn.Module) -> dict[str, Any]:
    """The plain attributes of a model's parts, by name: what they were made with, as far as it was kept."""
    found = {}
    for name, part in model.named_modules():
        own = {key: one for key, one in _own(part).items() if not key.startswith("_") and _is_plain(one)}
        if own:
            found[name] = described(own)
    return found


def without_addresses(text: str) -> str:
    """A text without the addresses of objects, which differ by process."""
    return re.sub(r"0x[0-9a-f]+", "", text)


def _function(function: FunctionType, within: tuple[int, ...]) -> Any:
    cells = function.__closure__ or ()
    carried = {
        "defaults": [function.__defaults__ or (), function.__kwdefaults__ or {}],
        "closure": {
            key: cell.cell_contents
            for key, cell in zip(function.__code__.co_freevars, cells, strict=True)
            if _is_filled(cell)
        },
    }
    return [function.__qualname__, described(carried, within)]


def _module(module: nn.Module, within: tuple[int, ...]) -> Any:
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False))}
    own = _own(module)
    parts = dict(module.named_children())
    return [type(module).__qualname__, *(described(held, within) for held in (own, tensors, parts))]


def _object(value: Any, within: tuple[int, ...]) -> Any:
    """An object by its attributes; one inside another may lead anywhere (a logger), so by the plain ones."""
    held = getattr(value, "__dict__", {})
    if within:
        held = {key: one for key, one in held.items() if _is_telling(key, one)}
    return [type(value).__qualname__, described(held, (*within, id(value)))]


def _own(module: nn.Module) -> dict[str, Any]:
    return {key: value for key, value in vars(module).items() if key not in _OF_EVERY_MODULE}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(one) for one in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_plain(one) for one in value)
    return isinstance(value, _PLAIN)


def _is_telling(name: str, value: Any) -> bool:
    if name.startswith("_") and isinstance(value, Mapping | list | set):
        return False  # a cache, more often than not
    return _is_plain(value) or isinstance(value, Tensor | np.ndarray | np.generic)


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # of a name that was not given a value yet
        return False
    return True


_KINDS: tuple[tuple[Any, Callable[[Any, tuple[int, ...]], Any]], ...] = (
    (Tensor, lambda value, _: weights_sha256({"": value.detach()})),
    (np.ndarray | np.generic, lambda value, within: [str(value.dtype), described(value.tolist(), within)]),
    (Mapping, lambda value, within: {str(key): described(one, within) for key, one in value.items()}),
    (list | tuple, lambda value, within: [described(one, within) for one in value]),
    (set | frozenset, lambda value, within: sorted(str(described(one, within)) for one in value)),
    (partial, lambda value, within: described(["partial", value.func, value.args, value.keywords], within)),
    (MethodType, lambda value, within: [described(value.__self__, within), value.__func__.__qualname__]),
    (FunctionType, _function),
    (nn.Module, _module),
)
