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

from torch import fx, nn

from cutwater.model.randomness import enter_layer

Forward = Callable[..., Any]
"""A compiled slice: called with the module that holds its parameters, then with the inputs."""


@dataclass(frozen=True, eq=False)
class Program:
    """A forward pass with a layer for every node."""

    graph: fx.Graph
    layer_of: Mapping[fx.Node, int]
    replicable: frozenset[fx.Node] = field(default_factory=frozenset)
    """Nodes that depend on constants alone: either side computes them for itself, so they never cross."""

    @cached_property
    def depth(self) -> int:
        """L."""
        return max(self.layer_of.values())

    def frontier(self, cut: int) -> list[fx.Node]:
        """The values that cross the cut after layer ``cut``, in the order they are made."""
        return [node for node in self._values() if self._layer(node) <= cut < self._last_use(node)]

    def targets(self, low: int, high: int) -> Iterator[tuple[str, int]]:
        """Names of the submodules and tensors that layers low+1..high use, each with its layer."""
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                users = [node] if node not in self.replicable else self._reached(node)
                for layer in sorted({self._layer(user) for user in users}):
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

    def _values(self) -> Iterator[fx.Node]:
        return (n for n in self.graph.nodes if n.op != "output" and n not in self.replicable)

    def _layer(self, node: fx.Node) -> int:
        return self.depth if node.op == "output" else self.layer_of[node]

    def _last_use(self, node: fx.Node) -> int:
        return max((self._layer(user) for user in self._reached(node)), default=0)

    def _reached(self, node: fx.Node) -> list[fx.Node]:
        """Users of a node, looking through replicable ones, which live on every side."""
        found: list[fx.Node] = []
        for user in node.users:
            found.extend(self._reached(user) if user in self.replicable else [user])
        return found


class _Slice:
    """Builds the graph of layers low+1..high of a program."""

    def __init__(self, program: Program, low: int, high: int) -> None:
        self.program, self.low, self.high = program, low, high
        self.new = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}

    def graph(self) -> fx.Graph:
        self._take_inputs()
        entered = 0
        for node in self.program.graph.nodes:
            layer = self.program._layer(node)
            wanted = self.low < layer <= self.high and node.op not in ("placeholder", "output")
            if not wanted or node in self.program.replicable:
                continue
            if layer != entered:
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
            return
        crossing = self.program.frontier(self.low)
        smashed = self.new.placeholder("smashed")
        if len(crossing) == 1:
            self.copies[crossing[0]] = smashed
            return
        for index, node in enumerate(crossing):
            self.copies[node] = self.new.call_function(operator.getitem, (smashed, index))

    def _copy(self, node: fx.Node) -> fx.Node:
        if node not in self.copies:
            self.copies[node] = self.new.node_copy(node, self._copy)
        return self.copies[node]

    def _result(self) -> Any:
        if self.high == self.program.depth:
            (output,) = (node for node in self.program.graph.nodes if node.op == "output")
            return fx.node.map_arg(output.args[0], self._copy)
        crossing = [self._copy(node) for node in self.program.frontier(self.high)]
        return crossing[0] if len(crossing) == 1 else tuple(crossing)


def chain(names: Sequence[str]) -> Program:
    """The program of modules called one after the other, each a layer of its own."""
    graph = fx.Graph()
    value = graph.placeholder("input")
    layer_of = {value: 0}
    for layer, name in enumerate(names, start=1):
        value = graph.call_module(name, (value,))
        layer_of[value] = layer
    graph.output(value)
    return Program(graph, layer_of)


def tensors_of(root: nn.Module, target: str) -> list[tuple[str, Any]]:
    """Names and tensors (parameters and buffers) that a target of the program stands for."""
    path, _, name = target.rpartition(".")
    owner = root.get_submodule(path)
    found = getattr(owner, name)
    if isinstance(found, nn.Module):
        inner = [
            *found.named_parameters(remove_duplicate=False),
            *found.named_buffers(remove_duplicate=False),
        ]
        return [(f"{target}.{key}", tensor) for key, tensor in inner]
    return [(target, found)]
