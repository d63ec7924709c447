"""Turn what torch.export gives into the kind of graph that a Program is made of.

Inputs under their own names, parameters and buffers under theirs, blocks as calls of the block; checks that
only hold for the traced example are left out, and devices are read from the inputs.
"""

import operator
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from cutwater.model.discover.block_operators import PLAIN, BlockCall
from cutwater.model.discover.example import Example
from cutwater.model.graph.nested import Builder, all_leaves, map_leaves, tensors_in, write
from cutwater.model.graph.program import NO_GRAD, SCOPE

VARIES = (Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
"""What of an output is not the same in every call."""

CHECKS = ("aten._assert", "aten.sym_constrain", "aten._functional_assert", "aten._functional_sym_constrain")
LARGEST_CONSTANT = 4096
"""Elements of a constant tensor that may be written into a program as numbers."""


class Rebuilding:
    """The graph of a model from its exported program, the calls of its blocks and its output."""

    def __init__(
        self, module: nn.Module, exported: ExportedProgram, example: Example, calls: Sequence[BlockCall]
    ) -> None:
        self.module, self.exported, self.example, self.calls = module, exported, example, calls
        self.new = fx.Graph()
        self.copies: dict[fx.Node, Any] = {}
        self.no_grad = False

    def graph(self, output: Any) -> fx.Graph:
        """The graph that gives this output."""
        self._inputs()
        self._body(self.exported.graph_module)
        self.new.output(self._output(output))
        self._remove_unused()
        return self.new

    def _inputs(self) -> None:
        placeholders = [n for n in self.exported.graph.nodes if n.op == "placeholder"]
        specs = self.exported.graph_signature.input_specs
        names = iter(self.example.names)
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.kind == InputKind.USER_INPUT:
                self.copies[node] = self.new.placeholder(next(names))
        self.device = self.new.call_function(getattr, (next(iter(self.new.nodes)), "device"))
        for node, spec in zip(placeholders, specs, strict=True):
            if spec.kind != InputKind.USER_INPUT:
                self.copies[node] = self._held(str(spec.target))

    def _held(self, target: str) -> fx.Node:
        """A parameter, buffer or constant of the model."""
        own = target.removeprefix("model.")
        if own != target and _has(self.module, own):
            return self.new.get_attr(own)
        value = self.exported.constants[target]
        if not isinstance(value, Tensor) or value.numel() > LARGEST_CONSTANT:
            raise RuntimeError(f"the forward holds a constant that is too large to copy ({target})")
        return self.new.call_function(
            torch.tensor, (value.tolist(),), {"dtype": value.dtype, "device": self.device}
        )

    def _body(self, module: fx.GraphModule) -> list[Any]:
        """Copy a graph's operations; what it returns."""
        for node in module.graph.nodes:
            if node.op == "output":
                returned: list[Any] = fx.node.map_arg(list(node.args[0]), self.copies.__getitem__)
                return returned
            if node.op == "call_function":
                self._operation(module, node)
        raise AssertionError("a graph without output")

    def _operation(self, module: fx.GraphModule, node: fx.Node) -> None:
        name, args = str(node.target), cast("tuple[Any, ...]", node.args)
        if name.startswith(CHECKS):
            return
        if name == "cutwater.block.default":
            self.copies[node] = self._block(node)
        elif name == "wrap_with_set_grad_enabled":
            enabled, inner, *values = args
            self.copies[node] = self._region(getattr(module, str(inner.target)), bool(enabled), values)
        elif node.target is operator.getitem and isinstance(parts := self.copies[args[0]], list):
            self.copies[node] = parts[args[1]]
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            raise RuntimeError(f"the forward uses {name}, which can't be cut")
        else:
            made = self.copies[node] = self._mark(self.new.node_copy(node, self.copies.__getitem__))
            made.meta[SCOPE] = _scope(node)
            self._free_device(made)

    def _region(self, inner: fx.GraphModule, enabled: bool, args: Sequence[Any]) -> list[Any]:
        """Operations under ``torch.no_grad()``, in line."""
        placeholders = [n for n in inner.graph.nodes if n.op == "placeholder"]
        for placeholder, value in zip(placeholders, args, strict=True):
            self.copies[placeholder] = self.copies[value] if isinstance(value, fx.Node) else value
        before, self.no_grad = self.no_grad, not enabled
        try:
            return self._body(inner)
        finally:
            self.no_grad = before

    def _block(self, node: fx.Node) -> list[fx.Node]:
        """A call of a block, and its results one by one."""
        number, tensors, sizes = cast("tuple[int, Sequence[Any], Sequence[Any]]", node.args)
        call = self.calls[number]
        args, kwargs = self._filled(call.inputs, tensors, sizes)
        if isinstance(call.target, str):
            made = self._mark(self.new.call_module(call.target, args, kwargs))
        else:
            made = self._mark(self.new.call_function(call.target, args, kwargs))
        count = len(tensors_in(call.output))
        if isinstance(call.output, Tensor):
            return [made]
        flat = self._mark(self.new.call_function(tensors_in, (made,)))
        return [self.new.call_function(operator.getitem, (flat, index)) for index in range(count)]

    def _filled(self, value: Any, tensors: Sequence[Any], sizes: Sequence[Any]) -> Any:
        """A block's arguments with the graph's own values in place of the tracer's."""
        queues = iter(tensors), iter(sizes)

        def replace(leaf: Any) -> Any:
            if isinstance(leaf, (Tensor, torch.SymInt)):
                source = next(queues[isinstance(leaf, torch.SymInt)])
                return self.copies[source] if isinstance(source, fx.Node) else source
            if isinstance(leaf, torch.device):
                return self.device
            if not isinstance(leaf, PLAIN):
                raise RuntimeError(f"a block takes a {type(leaf).__name__}, which can't cross a cut")
            return leaf

        return write(self.new, map_leaves(replace, value))

    def _output(self, output: Any) -> Any:
        """The output as the model gives it, whatever class it is of."""
        specs = self.exported.graph_signature.output_specs
        (node,) = (n for n in self.exported.graph.nodes if n.op == "output")
        made: list[Any] = []
        for spec, value in zip(specs, node.args[0], strict=True):
            if spec.kind == OutputKind.USER_OUTPUT:
                made.append(self.copies[value] if isinstance(value, fx.Node) else value)
            else:
                raise RuntimeError(f"the forward changes {spec.target} between blocks")
        varying = iter(made)
        leaves = [next(varying) if isinstance(leaf, VARIES) else leaf for leaf in all_leaves(output)]
        # Whatever else a model returns (a cache, say) is no value that training needs.
        known = [leaf if isinstance(leaf, (fx.Node, *PLAIN)) else None for leaf in leaves]
        return write(self.new, Builder(output)(*known))

    def _free_device(self, node: fx.Node) -> None:
        """The device of the example is not the device of the inputs to come."""

        def replace(value: Any) -> Any:
            return self.device if isinstance(value, torch.device) else value

        node.args = fx.node.map_aggregate(node.args, replace)
        node.kwargs = fx.node.map_aggregate(node.kwargs, replace)

    def _mark(self, node: fx.Node) -> fx.Node:
        if self.no_grad:
            node.meta[NO_GRAD] = True
        return node

    def _remove_unused(self) -> None:
        """Leave out what was computed for the checks alone."""
        for node in reversed(self.new.nodes):
            pure = node.op == "get_attr" or (node.op == "call_function" and _is_pure(node.target))
            if pure and not node.users:
                self.new.erase_node(node)


def _is_pure(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
    return True


def _has(module: nn.Module, name: str) -> bool:
    try:
        operator.attrgetter(name)(module)
    except AttributeError:
        return False
    return True


def _scope(node: fx.Node) -> str:
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return str(stack[-1][0]).removeprefix("model").removeprefix(".") if stack else ""
