"""A model's forward pass as a graph whose nodes know their layer, and its slices.

A :class:`Program` is an fx graph (from a chain of modules, from fx or from torch.export) in which every node
has a layer number: 0 for the model's inputs, then 1..L, never falling along the graph. What crosses the cut
after layer l is the *frontier*: the values made in layers <= l and used later.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn

from cutwater.model.at_cut import Lengths, copy_tensors, cross, expect_shapes
from cutwater.model.graph.sizes import FromRows, Sizes
from cutwater.model.randomness import enter_layer

Forward = Callable[..., Any]
"""A compiled slice: called with the module that holds its parameters, then with the inputs."""

NO_GRAD = "no_grad"
"""Marks, in a node's meta, what the model computes under ``torch.no_grad()``."""
SCOPE = "scope"
"""In a node's meta, the name of the module whose forward it comes from."""


@dataclass(frozen=True, eq=False)
class Program:
    """A forward pass with a layer for every node."""

    graph: fx.Graph
    layer_of: Mapping[fx.Node, int]
    replicable: frozenset[fx.Node] = field(default_factory=frozenset)
    """Nodes that either side computes for itself, so they never cross."""
    sizes: Sizes = field(default_factory=Sizes)
    """The numbers among them, and what they can be told from."""
    changed_by: Mapping[fx.Node, fx.Node] = field(default_factory=dict)
    """Values that are changed in place, each with the last node that does so."""
    expected: tuple[Lengths, ...] = ()
    """Shapes of the inputs that it is right for; if none are given, all are."""

    @cached_property
    def depth(self) -> int:
        """L."""
        return max(self.layer_of.values())

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names of the model's tensors that never change and that either side may hold."""
        return frozenset(str(node.target) for node in self.replicable if node.op == "get_attr")

    def frontier(self, cut: int) -> list[fx.Node]:
        """The values that cross the cut after layer ``cut``, in the order they are made."""
        return self._frontiers[cut]

    def targets(self, low: int, high: int) -> Iterator[tuple[str, int]]:
        """Names of the submodules and tensors that layers low+1..high use, each with its layer."""
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                layers = self._used_in[node] if node in self.replicable else {self.layer(node)}
                for layer in sorted(layers):
                    if low < layer <= high:
                        yield str(node.target), layer

    def compile(self, low: int, high: int) -> Forward:
        """Layers low+1..high as a function of (module, *inputs).

        From the first layer on it takes the model's inputs; later slices take the frontier: one value, or a
        tuple where several cross. It returns the frontier of ``high``, or the model's own output at L.
        """
        code = _Slice(self, low, high).graph().python_code("self")
        scope = dict(code.globals)
        exec(code.src, scope)  # fx generates the source from the graph, as its GraphModule does
        forward: Forward = scope["forward"]
        return forward

    def layer(self, node: fx.Node) -> int:
        """The layer that a node belongs to."""
        return self.depth if node.op == "output" else self.layer_of[node]

    def last_use(self, node: fx.Node) -> int:
        """The last layer that uses a value, looking through replicable nodes, which live on every side."""
        return max(self._used_in[node], default=0)

    def is_here(self, node: fx.Node, low: int, crossing: Sequence[fx.Node]) -> bool:
        """Whether the slice that starts after layer ``low`` can compute a node from what it has."""
        if node not in self.replicable:
            return low == 0 or self.layer(node) > low or node in crossing
        return all(self.is_here(needed, low, crossing) for needed in node.all_input_nodes)

    def can_tell(self, number: fx.Node, low: int, crossing: Sequence[fx.Node]) -> bool:
        """Whether the slice that starts after layer ``low`` can know a number."""
        if self.is_here(number, low, crossing) or self.sizes.express(number, crossing) is not None:
            return True
        needed = number.all_input_nodes
        return bool(needed) and all(n in self.sizes and self.can_tell(n, low, crossing) for n in needed)

    @cached_property
    def _frontiers(self) -> list[list[fx.Node]]:
        """What crosses behind each layer, from 0 on."""
        made: list[list[fx.Node]] = [[] for _ in range(self.depth + 1)]
        for node in self.graph.nodes:
            if node.op != "output" and node not in self.replicable:
                made[self.layer(node)].append(node)
        found: list[list[fx.Node]] = []
        alive: list[fx.Node] = []
        for cut in range(self.depth + 1):
            alive = [node for node in (*alive, *made[cut]) if self.last_use(node) > cut]
            found.append(alive)
        return found

    @cached_property
    def _used_in(self) -> Mapping[fx.Node, set[int]]:
        """The layers that use each node. To measure a tensor is no use of it: any other may tell its size."""
        found: dict[fx.Node, set[int]] = {}
        for node in reversed(self.graph.nodes):
            layers: set[int] = set()
            for user in node.users:
                if user in self.sizes and node not in self.sizes and not isinstance(user.target, FromRows):
                    continue
                layers |= found[user] if user in self.replicable else {self.layer(user)}
            found[node] = layers
        return found


class _Slice:
    """Builds the graph of layers low+1..high of a program."""

    def __init__(self, program: Program, low: int, high: int) -> None:
        self.program, self.low, self.high = program, low, high
        self.crossing = program.frontier(low) if low else []
        self.new = fx.Graph()
        self.copies: dict[fx.Node, Any] = {}

    def graph(self) -> fx.Graph:
        self._take_inputs()
        entered = 0
        for node in self.program.graph.nodes:
            layer = self.program.layer(node)
            wanted = self.low < layer <= self.high and node.op not in ("placeholder", "output")
            if not wanted or node in self.program.replicable:
                continue
            if layer != entered:
                for boundary in range(entered, layer) if entered else ():
                    self._cross(boundary)
                self.new.call_function(enter_layer, (layer,))
                entered = layer
            self._copy(node)
        self.new.output(self._result())
        return self.new

    def _take_inputs(self) -> None:
        if self.low == 0:
            for node in self.program.graph.nodes:
                if node.op == "placeholder":
                    self.copies[node] = self.new.node_copy(node)
            self._expect_shapes()
            if self.program.depth > 1:
                self._cross(1, inputs=True)
            return
        smashed = self.new.placeholder("smashed")
        for index, node in enumerate(self.crossing):
            alone = len(self.crossing) == 1
            value = smashed if alone else self.new.call_function(operator.getitem, (smashed, index))
            self.copies[node] = self._own(value, node)

    def _expect_shapes(self) -> None:
        """Look at the inputs' sizes, unless any will do."""
        lengths = self.program.expected
        if any(length is not None for shape in lengths for length in shape):
            names = tuple(str(node.target) for node in self.copies)
            self.new.call_function(expect_shapes, (names, lengths, *self.copies.values()))

    def _cross(self, boundary: int, inputs: bool = False) -> None:
        """Pass what crosses a boundary through :func:`cross`, whether the model is cut there or not.

        Inputs that cross do so from the start, as either side computes with them.
        """
        for node in self.program.frontier(boundary):
            if node in self.copies and (not inputs or node.op == "placeholder"):
                self.copies[node] = self.new.call_function(cross, (self.copies[node],))

    def _own(self, value: fx.Node, node: fx.Node) -> fx.Node:
        """What crossed belongs to the sender, and autograd forbids to change a leaf: change a copy."""
        changer = self.program.changed_by.get(node)
        if changer is None or self.program.layer(changer) <= self.low:
            return value
        return self.new.call_function(copy_tensors, (value,))

    def _copy(self, node: fx.Node) -> Any:
        if node not in self.copies:
            number = node in self.program.sizes
            self.copies[node] = self._number(node) if number else self._operation(node)
        return self.copies[node]

    def _number(self, node: fx.Node) -> Any:
        if not self.program.is_here(node, self.low, self.crossing):
            term = self.program.sizes.express(node, self.crossing)
            if term is not None:
                return term(self.new, self.copies)
        return self.new.node_copy(node, self._copy)

    def _operation(self, node: fx.Node) -> fx.Node:
        here = node in self.program.replicable or self.low < self.program.layer(node) <= self.high
        assert here, f"{node} belongs to layer {self.program.layer(node)}, not to {self.low + 1}..{self.high}"
        if not node.meta.get(NO_GRAD) or node.op == "get_attr":
            return self.new.node_copy(node, self._copy)
        args = fx.node.map_arg(node.args, self._copy)
        kwargs = fx.node.map_arg(node.kwargs, self._copy)
        if node.op == "call_module":
            args = (self.new.get_attr(str(node.target)), *args)
        return self.new.call_function(_without_grad(node), args, kwargs)

    def _result(self) -> Any:
        if self.high == self.program.depth:
            (output,) = (node for node in self.program.graph.nodes if node.op == "output")
            return fx.node.map_arg(output.args[0], self._copy)
        self._cross(self.high)
        crossing = [self._copy(node) for node in self.program.frontier(self.high)]
        return crossing[0] if len(crossing) == 1 else tuple(crossing)


def chain(steps: Sequence[str | Callable[[Any], Any]], may_change: Callable[[str], bool]) -> Program:
    """The program of submodules (by name) called one after the other, each a layer; functions join them.

    ``may_change`` says which submodules may write into their input.
    """
    graph = fx.Graph()
    value = graph.placeholder("input")
    layer_of: dict[fx.Node, int] = {value: 0}
    changed_by: dict[fx.Node, fx.Node] = {}
    layer = 0
    for step in steps:
        if isinstance(step, str):
            layer += 1
            made, changes = graph.call_module(step, (value,)), may_change(step)
        else:
            made, changes = graph.call_function(step, (value,)), True
        layer_of[made] = max(layer, 1)
        if changes:
            changed_by[value] = made
        value = made
    graph.output(value)
    return Program(graph, layer_of, changed_by=changed_by)


def attribute(module: nn.Module, target: str) -> Any:
    """What a dotted name stands for."""
    path, _, name = target.rpartition(".")
    return getattr(module.get_submodule(path), name)


def tensors_of(root: nn.Module, target: str) -> list[tuple[str, Any]]:
    """Names and tensors (parameters and buffers) that a target of the program stands for."""
    found = attribute(root, target)
    if isinstance(found, nn.Module):
        inner = [
            *found.named_parameters(remove_duplicate=False),
            *found.named_buffers(remove_duplicate=False),
        ]
        return [(f"{target}.{key}", tensor) for key, tensor in inner]
    return [(target, found)]


def _without_grad(node: fx.Node) -> Callable[..., Any]:
    """What a node calls, as the model calls it inside ``torch.no_grad()``."""
    target = node.target

    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            if callable(target):
                return target(first, *args, **kwargs)
            called = first if node.op == "call_module" else getattr(first, target)
            return called(*args, **kwargs)

    return call
