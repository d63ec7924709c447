"""Trace the glue between a model's blocks with torch.export, for models that fx can't follow.

torch.export runs the model's own code on tensors without contents but with symbolic sizes, so it follows code
that asks for types and shapes, as Hugging Face's models do. Left to itself it would flatten the whole model
and bake its mode in. So each block is replaced, while tracing, by one operator that only knows the shapes of
its results (:mod:`~cutwater.model.discover.block_operators`); in the graph it is a call of the block again.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import partial
from io import StringIO
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export
from torch.overrides import TorchFunctionMode

from cutwater.model.discover.block_operators import opaque
from cutwater.model.discover.example import Example
from cutwater.model.discover.rebuild import VARIES, Rebuilding
from cutwater.model.discover.recorded_outputs import record_calls
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.nested import all_leaves
from cutwater.model.randomness import outside_states


def trace_export(
    module: nn.Module,
    examples: Sequence[Example],
    blocks: frozenset[str],
    training: bool,
    unseen: bool = False,
) -> fx.Graph:
    """The graph of a model's forward in train or eval mode.

    The first example is traced; the others show how sizes vary. ``unseen`` hides from the model that it is
    being traced: some do otherwise then, such as Hugging Face's, which make masks that nothing needs.
    """
    example = examples[0].with_batch(max(examples[0].batch, 2))
    before = outside_states()
    try:
        recalled = record_calls(module, blocks, examples, training)
    except Exception:
        recalled = {}  # without contents the model may not run, yet it may well be traced
    with untouched(module, training), opaque(module, blocks, recalled) as calls:
        entry, outputs = _flattened(module, example, unseen)
        shapes = {"inputs": tuple(_dynamic(index, example) for index in range(len(example.values)))}
        with _quietly():
            exported = export(entry, example.values, dynamic_shapes=shapes, strict=False)
        if outside_states() != before:
            raise RuntimeError("random numbers of Python or NumPy were drawn while tracing")
    _check_batch(exported, example)
    return Rebuilding(module, exported, example, calls).graph(outputs[-1])


trace_export_unseen = partial(trace_export, unseen=True)
"""The same, with the model unaware."""


def _flattened(model: nn.Module, example: Example, unseen: bool) -> tuple[nn.Module, list[Any]]:
    """A module that takes the inputs in order and returns the output's tensors; the list gets the output."""
    outputs: list[Any] = []

    class Flattened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.training = model.training
            self.model = model

        def forward(self, *inputs: Tensor) -> tuple[Any, ...]:
            with _hidden() if unseen else nullcontext(), _KnownComparisons():
                outputs.append(example.call(self.model, inputs))
            return tuple(leaf for leaf in all_leaves(outputs[-1]) if isinstance(leaf, VARIES))

    return Flattened(), outputs


class _KnownComparisons(TorchFunctionMode):
    """A draw from [0, 1) is never below zero.

    Models with an unused layer drop ask ``torch.rand([]) < 0.0`` before every layer, which would look like a
    decision by data.
    """

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asks = func in (torch.Tensor.lt, torch.Tensor.__lt__) and isinstance(args[1], (int, float))
        if asks and args[1] <= 0 and any(args[0] is draw for draw in self.draws):
            return False
        value = func(*args, **(kwargs or {}))
        if func is torch.rand:
            self.draws.append(value)
        return value


@contextmanager
def _hidden() -> Iterator[None]:
    """While open, who asks torch whether it is tracing hears no."""
    names = ("is_compiling", "is_exporting")
    originals = {name: getattr(torch.compiler, name) for name in names if hasattr(torch.compiler, name)}
    try:
        for name in originals:
            setattr(torch.compiler, name, lambda: False)
        yield
    finally:
        for name, original in originals.items():
            setattr(torch.compiler, name, original)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep what export prints and logs about a failure to itself: the failure is reported, once."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with redirect_stderr(StringIO()), warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)


def _dynamic(index: int, example: Example) -> dict[int, Any]:
    """The dimensions of an input that may vary: the batch, and those in which the model takes other sizes."""
    dims: dict[int, Any] = {dim: Dim.AUTO for input_, dim in example.free if input_ == index}
    if example.has_batch(index):
        dims[0] = Dim.AUTO
    return dims


def _check_batch(exported: ExportedProgram, example: Example) -> None:
    """Refuse a graph that holds for some batch sizes only."""
    inputs = [node for node in exported.graph.nodes if node.op == "placeholder"][-len(example.values) :]
    for node, name, value in zip(inputs, example.names, example.values, strict=True):
        if not value.ndim or value.shape[0] != example.batch:
            continue
        size = node.meta["val"].shape[0]
        if isinstance(size, int):
            raise RuntimeError(f"the forward works for batches of {size} only ({name})")
        limits = exported.range_constraints.get(size.node.expr)
        if limits is not None and (limits.lower > 2 or limits.upper < 1_000_000_000):
            raise RuntimeError(
                f"the forward takes another way for batches outside {limits.lower} to {limits.upper}"
            )
