"""While torch.export traces a model, make a call of a block one operator that only knows shapes.

So torch.export sees nothing of a block but what goes in and what comes out. The same is done for a user's own
autograd functions, whose backward it would lose.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.model.discover.own_functions import as_function, autograd_functions_kept
from cutwater.model.discover.recorded_outputs import RecordedCall, UnknownOutputError
from cutwater.model.graph.nested import leaves_in, map_leaves, map_tensors, tensors_in

PLAIN = (bool, int, float, complex, str, slice, torch.dtype, torch.layout, torch.memory_format, type(None))
"""What can be written into a graph as it is."""


Target = str | Callable[..., Any]
"""The name of a block, or an autograd function."""


@dataclass
class BlockCall:
    """One call while tracing: its arguments and result, with tensors of the tracer in them."""

    target: Target
    inputs: Any
    """(args, kwargs)."""
    output: Any = None
    twin: Any = None
    """Equal for calls that must have results of the same shape."""


class Recorder:
    """Notes the calls of blocks and autograd functions, and stands in for them."""

    def __init__(self, recalled: Mapping[str, Sequence[RecordedCall]]) -> None:
        self.calls: list[BlockCall] = []
        self.inside = False
        self.recalled = recalled

    def record(
        self, target: Target, run: Callable[..., Any], args: Any, kwargs: Any, twin: Any = None
    ) -> Any:
        """One operator in place of ``run(*args, **kwargs)``, and its result.

        Blocks that are built alike say so by the same ``twin``.
        """
        call = BlockCall(target, map_leaves(_writable, (args, kwargs)))
        number = len(self.calls)
        self.calls.append(call)

        def shapes(tensors: list[Tensor]) -> list[Tensor]:
            try:
                call.output = self._from_memory(call, number, tensors)
            except UnknownOutputError:
                call.output = self._from_twin(twin, call)
                if call.output is None:
                    call.output = self._by_running(run, call, tensors)
            # An operator may not return its input, which blocks such as dropout do in eval mode.
            return [tensor.clone() for tensor in tensors_in(call.output)]

        _shapes[number] = shapes
        sizes = leaves_in(call.inputs, torch.SymInt)
        made = iter(torch.ops.cutwater.block(number, tensors_in(call.inputs), sizes))
        return map_tensors(lambda _: next(made), call.output)

    def _by_running(self, run: Callable[..., Any], call: BlockCall, tensors: list[Tensor]) -> Any:
        """The result of a block on tensors without contents."""
        queue = iter(tensors)
        args, kwargs = map_tensors(lambda _: next(queue), call.inputs)
        before, self.inside = self.inside, True
        try:
            return run(*args, **kwargs)
        finally:
            self.inside = before

    def _from_twin(self, twin: Any, call: BlockCall) -> Any:
        """The result of a block that is built as another one and takes the same, so it need not run."""
        if twin is None:
            return None
        plain = map_tensors(lambda tensor: (tensor.shape, tensor.stride(), tensor.dtype), call.inputs)
        for other in self.calls:
            if other.twin == (twin, str(plain)) and other.output is not None:
                return map_tensors(torch.empty_like, other.output)
        call.twin = (twin, str(plain))
        return None

    def _from_memory(self, call: BlockCall, number: int, tensors: list[Tensor]) -> Any:
        """The result of a block by what it returned in real runs."""
        seen = self.recalled.get(call.target, ()) if isinstance(call.target, str) else ()
        earlier = sum(other.target == call.target for other in self.calls[:number])
        if earlier >= len(seen) or not tensors:
            raise UnknownOutputError("the real runs have no such call of the block")
        return seen[earlier].like(tensors)


def _writable(leaf: Any) -> Any:
    """An argument as a graph can have it; what is decided by a size is decided as for the example."""
    if isinstance(leaf, torch.Size):
        return tuple(leaf)
    if isinstance(leaf, torch.SymBool):
        return bool(leaf)
    return float(leaf) if isinstance(leaf, torch.SymFloat) else leaf


_shapes: dict[int, Callable[[list[Tensor]], list[Tensor]]] = {}


@torch.library.custom_op("cutwater::block", mutates_args=())
def _block(call: int, tensors: list[Tensor], sizes: list[int]) -> list[Tensor]:
    raise AssertionError("only shapes are ever asked of this operator")


@_block.register_fake
def _block_shapes(call: int, tensors: list[Tensor], sizes: list[int]) -> list[Tensor]:
    return _shapes[call](tensors)


@contextmanager
def opaque(
    module: nn.Module, blocks: frozenset[str], recalled: Mapping[str, Sequence[RecordedCall]]
) -> Iterator[list[BlockCall]]:
    """While open, blocks and autograd functions are one operator each; the list notes their calls.

    The model's attributes are changed: restore them (see :mod:`cutwater.model.discover.unchanged`).
    """
    recorder = Recorder(recalled)
    for path in blocks:
        _replace_forward(module.get_submodule(path), path, recorder)

    def keep(cls: type[torch.autograd.Function], args: Any, kwargs: Any) -> tuple[bool, Any]:
        plain = all(isinstance(leaf, (Tensor, torch.SymInt, *PLAIN)) for leaf in (*args, *kwargs.values()))
        if recorder.inside or not plain:
            return False, None
        function = as_function(cls)
        return True, recorder.record(function, function, args, kwargs)

    try:
        with autograd_functions_kept(keep):
            yield recorder.calls
    finally:
        _shapes.clear()


def _replace_forward(block: nn.Module, path: str, recorder: Recorder) -> None:
    original = block.forward
    hooks = {name: value for name, value in block.__dict__.items() if name.endswith("_hooks")}

    def run(*args: Any, **kwargs: Any) -> Any:
        replaced = {name: block.__dict__[name] for name in ("forward", *hooks)}
        block.__dict__.update(hooks, forward=original)
        try:
            return block._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            block.__dict__.update(replaced)

    built = tuple((name, tensor.shape, tensor.dtype) for name, tensor in block.named_parameters())

    def forward(*args: Any, **kwargs: Any) -> Any:
        return recorder.record(path, run, args, kwargs, (type(block), built))

    block.forward = forward
    # Hooks run where the block runs; left here they would be traced as well.
    for name, value in hooks.items():
        block.__dict__[name] = type(value)()
