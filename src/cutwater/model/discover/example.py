"""Example inputs of a model, and variations of them: other batch sizes, lengths and resolutions.

Which of them a model takes, and which go together, is found out by trying. Whatever a trace is not tried at,
it is not used at: a size that never varied may be baked into it.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from cutwater.base.errors import ModelError

QUIET = {"use_cache": False}
"""Settings that keep a model from returning what only text generation needs (a cache of keys and values)."""
Dim = tuple[int, int]
"""A dimension of an input: (which input, which dimension)."""
MOST = 6
"""Variations that are tried out; each takes a few runs of the model."""


@dataclass(frozen=True, eq=False)
class Example:
    """The inputs of one call of a model, each with its name."""

    names: tuple[str, ...]
    values: tuple[Tensor, ...]
    keywords: bool
    """Whether the model takes them by name."""
    settings: Mapping[str, Any]
    """What else the model is called with."""
    free: frozenset[Dim] = frozenset()
    """Dimensions, other than the batch, in which the model takes other sizes."""

    def call(self, model: Callable[..., Any], values: Sequence[Any] | None = None) -> Any:
        """Call a model with these inputs, or with others in their place."""
        values = self.values if values is None else values
        if self.keywords:
            return model(**dict(zip(self.names, values, strict=True)), **self.settings)
        return model(*values, **self.settings)

    @property
    def batch(self) -> int:
        """The size of the first dimension of the first input that has one."""
        return next((value.shape[0] for value in self.values if value.ndim), 1)

    def with_batch(self, size: int) -> "Example":
        """The same inputs, repeated or cut to another batch size."""
        rows = torch.arange(size, device="cpu") % max(self.batch, 1)
        return self._map(lambda v: v[rows.to(v.device)] if v.ndim and v.shape[0] == self.batch else v)

    def resized(self, dims: Iterable[Dim], size: int) -> "Example":
        """The same inputs with another size in some dimensions: cut off, or repeated from the start."""
        values = list(self.values)
        for index, dim in dims:
            value = values[index]
            rows = torch.arange(size, device=value.device) % value.shape[dim]
            values[index] = value.index_select(dim, rows)
        return replace(self, values=tuple(values))

    def freed(self, dims: Iterable[Dim]) -> "Example":
        """The same inputs, of which these dimensions may have another size."""
        return replace(self, free=frozenset(dims))

    def has_batch(self, index: int) -> bool:
        """Whether the first dimension of an input is the batch."""
        value = self.values[index]
        return value.ndim > 0 and value.shape[0] == self.batch

    def flipped(self) -> "Example":
        """Other contents of the same shapes: every input reversed in all dimensions."""
        return self._map(lambda v: v.flip(tuple(range(v.ndim))))

    def on(self, device: torch.device) -> "Example":
        """The same inputs on the model's device."""
        return self._map(
            lambda v: torch.empty_like(v, device=device) if device.type == "meta" else v.to(device)
        )

    def describe(self) -> str:
        """Names and shapes, for messages."""
        return ", ".join(
            f"{name} of shape {'×'.join(map(str, v.shape)) or '()'}"
            for name, v in zip(self.names, self.values, strict=True)
        )

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Example":
        return replace(self, values=tuple(change(value) for value in self.values))


def read_example(module: nn.Module, example_inputs: Any) -> Example:
    """Inputs as a user gives them: a tensor, a tuple of them, or a dict by keyword."""
    keywords = isinstance(example_inputs, Mapping)
    given = (
        tuple(example_inputs.values())
        if keywords
        else tuple(example_inputs)
        if isinstance(example_inputs, (tuple, list))
        else (example_inputs,)
    )
    if not given or not all(isinstance(value, Tensor) for value in given):
        kinds = ", ".join(type(value).__name__ for value in given) or "nothing"
        raise ModelError(
            f"the example inputs are {kinds}, but must be a tensor, a tuple of tensors, or a dict of "
            f"tensors by the names that {type(module).__name__}.forward gives them"
        )
    lazy = (UninitializedParameter, UninitializedBuffer)
    if any(isinstance(tensor, lazy) for tensor in (*module.parameters(), *module.buffers())):
        raise ModelError(
            f"{type(module).__name__} has parameters without a shape: run it once on the example first"
        )
    names = tuple(map(str, example_inputs)) if keywords else _positional_names(module, len(given))
    example = Example(names, given, keywords, _quiet(module, names))
    tensor = next(iter([*module.parameters(), *module.buffers()]), None)
    return example if tensor is None else example.on(tensor.device)


def _positional_names(module: nn.Module, count: int) -> tuple[str, ...]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(module.forward).parameters.values()
    names = [p.name for p in parameters if p.kind in kinds][:count]
    return tuple(names + [f"input_{index}" for index in range(len(names), count)])


def _quiet(module: nn.Module, names: Sequence[str]) -> dict[str, Any]:
    """The settings of :data:`QUIET` that a model takes, by name or handed on to a model inside."""
    accepted = inspect.signature(module.forward).parameters
    hands_on = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values())
    inside = [getattr(part, "config", None) for part in module.modules()] if hands_on else []
    return {
        key: value
        for key, value in QUIET.items()
        if key not in names and (key in accepted or any(hasattr(config, key) for config in inside))
    }


@dataclass(frozen=True)
class Variation:
    """Dimensions whose size may change together, and inputs of which it is another."""

    dims: frozenset[Dim]
    examples: tuple[Example, ...]
    """One smaller and one larger than the example, as far as the model takes them."""

    @property
    def is_length(self) -> bool:
        """Whether all are lengths of sequences, and none is a height or a width.

        torch.export computes with sizes that vary as with formulas, and those of a picture that is made
        smaller again and again take minutes.
        """
        return all(self.examples[0].values[index].ndim < 4 for index, _ in self.dims)


def find_variations(example: Example, runs: Callable[[Example], bool]) -> list[Variation]:
    """What varies in a model's inputs, by trying."""
    found: list[Variation] = []
    for dims in _candidates(example):
        taken = tuple(_taken(example, dims, runs)) if len(found) < MOST else ()
        apart = any(dims < variation.dims for variation in found)
        if taken:
            found.append(Variation(dims, taken[-1:] if apart else taken))
    return found


def _candidates(example: Example) -> Iterator[frozenset[Dim]]:
    """Sets of dimensions that have the same size: of all inputs, of two, of one, and single dimensions.

    The length of tokens and of their mask go together, as do height and width of a square picture; it is
    worth knowing whether they also go apart.
    """
    units: dict[int, dict[int, frozenset[Dim]]] = defaultdict(lambda: defaultdict(frozenset))
    for index, value in enumerate(example.values):
        for dim in range(int(example.has_batch(index)), value.ndim):
            if value.shape[dim] > 1:
                units[value.shape[dim]][index] |= {(index, dim)}
    for inputs in units.values():
        counts = sorted({len(inputs), *(count for count in (2, 1) if count <= len(inputs))}, reverse=True)
        sets = [
            frozenset[Dim]().union(*chosen) for n in counts for chosen in combinations(inputs.values(), n)
        ]
        single = [frozenset({dim}) for dims in inputs.values() for dim in sorted(dims)]
        yield from dict.fromkeys([*sets, *single])


def _taken(example: Example, dims: frozenset[Dim], runs: Callable[[Example], bool]) -> Iterator[Example]:
    index, dim = next(iter(dims))
    size = example.values[index].shape[dim]
    for sizes in ((size - 1, size // 2), (size + 3, size + size // 2, 2 * size)):
        tried = (example.resized(dims, other) for other in dict.fromkeys(sizes) if 0 < other != size)
        taken = next((other for other in tried if runs(other)), None)
        if taken is not None:
            yield taken


def unseen_lengths(example: Example) -> Variation | None:
    """What varies in all likelihood where nothing can be tried: the length of tokens and what goes along."""
    counted = [value for value in example.values if value.ndim > 1 and not value.is_floating_point()]
    length = max((value.shape[1] for value in counted), default=0)
    inputs = [index for index, value in enumerate(example.values) if value.ndim > 1]
    dims = frozenset((index, 1) for index in inputs if example.values[index].shape[1] == length)
    return Variation(dims, (example.resized(dims, length - 1),)) if length > 2 else None
