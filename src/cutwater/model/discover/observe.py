"""Run a traced model on a few inputs and note what every value is."""

import operator
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from cutwater.model.discover.example import Example
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.nested import Builder, all_leaves, is_looked_into, map_tensors
from cutwater.model.graph.program import NO_GRAD
from cutwater.model.graph.sizes import Sizes, computes, reads_metadata

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout)


@dataclass
class Facts:
    """What the values of a graph were, in one run after the other."""

    tensors: dict[fx.Node, list[torch.Size]] = field(default_factory=dict)
    """Shapes of the values that are tensors."""
    numbers: dict[fx.Node, list[Any]] = field(default_factory=dict)
    """Values that follow from shapes, types and devices alone."""
    groups: dict[fx.Node, list[Any]] = field(default_factory=dict)
    """Values that hold others: tuples, outputs of a class of their own."""
    dtypes: dict[fx.Node, torch.dtype] = field(default_factory=dict)
    storages: dict[fx.Node, int] = field(default_factory=dict)
    learning: set[fx.Node] = field(default_factory=set)
    """Tensors that carried a gradient."""
    random: set[fx.Node] = field(default_factory=set)
    changed_by: dict[fx.Node, fx.Node] = field(default_factory=dict)
    """Values that were changed in place, each with the last node that did so."""
    changers: set[fx.Node] = field(default_factory=set)
    """All nodes that changed a value in place."""
    drifting: set[fx.Node] = field(default_factory=set)
    """Tensors of the model that a run changes, such as running statistics."""
    returned: set[fx.Node] = field(default_factory=set)
    """The numbers among them that a block returned, a height and a width, say."""
    denied: frozenset[fx.Node] = frozenset()
    """Values that looked like numbers, but depend on contents."""

    def bits(self, node: fx.Node) -> int:
        """The size of a tensor in the first run."""
        return self.tensors[node][0].numel() * self.dtypes[node].itemsize * 8

    def sizes(self) -> Sizes:
        """What numbers can be told from."""
        return Sizes(
            {node: tuple(seen) for node, seen in self.numbers.items()},
            {node: tuple(seen) for node, seen in self.tensors.items()},
            self.dtypes,
        )


def observe(module: nn.Module, graph: fx.Graph, examples: Sequence[Example], training: bool) -> Facts:
    """Run a graph with a model's parameters, in train or eval mode; the model is left as it was."""
    facts = _observed(module, graph, examples, training)
    if not facts.returned:
        return facts
    # Other contents of the same shape must give the same numbers, or they don't follow from shapes.
    try:
        other = _observed(module, graph, [examples[0].flipped()], training)
        denied = {n for n in facts.returned if facts.numbers[n][0] != other.numbers.get(n, [None])[0]}
    except Exception:
        denied = facts.returned
    return _observed(module, graph, examples, training, frozenset(denied)) if denied else facts


def _observed(
    module: nn.Module,
    graph: fx.Graph,
    examples: Sequence[Example],
    training: bool,
    denied: frozenset[fx.Node] = frozenset(),
) -> Facts:
    facts = Facts(denied=denied)
    for example in examples:
        with untouched(module, training), torch.set_grad_enabled(not facts.tensors):
            _Observer(module, graph, facts).run(*(value.clone() for value in example.values))
    # What is not the same kind of value in every run is neither a tensor nor a number to rely on.
    for seen in (facts.tensors, facts.numbers, facts.groups):
        for node in [node for node, runs in seen.items() if len(runs) != len(examples)]:
            del seen[node]
    return facts


class _Observer(fx.Interpreter):
    def __init__(self, module: nn.Module, graph: fx.Graph, facts: Facts) -> None:
        # Values are kept, as a freed one would give its address to another.
        super().__init__(module, garbage_collect_values=False, graph=graph)
        self.facts = facts
        self.first = not facts.tensors
        self.fetched: dict[fx.Node, Tensor] = {}
        self.versions = {id(buffer): buffer._version for buffer in module.buffers()}

    def run_node(self, n: fx.Node) -> Any:
        given = [(node, self.env[node]) for node in n.all_input_nodes if isinstance(self.env[node], Tensor)]
        versions = [tensor._version for _, tensor in given]
        generator = torch.get_rng_state()
        with torch.no_grad() if n.meta.get(NO_GRAD) else nullcontext():
            value = super().run_node(n)
        if n.op == "output":
            used = self.fetched.items()
            self.facts.drifting |= {node for node, one in used if one._version != self.versions[id(one)]}
            return value
        self._note(n, value)
        if self.first:
            if not torch.equal(generator, torch.get_rng_state()) or _draws(n.target):
                self.facts.random.add(n)
            for (_, tensor), version in zip(given, versions, strict=True):
                if tensor._version != version:
                    self._changed(tensor, n)
        return value

    def _note(self, node: fx.Node, value: Any) -> None:
        if isinstance(value, Tensor):
            self.facts.tensors.setdefault(node, []).append(value.shape)
            if self.first:
                self.facts.dtypes[node] = value.dtype
                self.facts.storages[node] = value.untyped_storage()._cdata
                if value.requires_grad:
                    self.facts.learning.add(node)
                if node.op == "get_attr":
                    self.fetched[node] = value
                    self.versions.setdefault(id(value), value._version)
        elif _is_plain(value) and self._follows_from_shapes(node):
            self.facts.numbers.setdefault(node, []).append(value)
        elif is_looked_into(value) and not isinstance(node.target, Builder):
            self.facts.groups.setdefault(node, []).append(map_tensors(lambda tensor: tensor.detach(), value))

    def _follows_from_shapes(self, node: fx.Node) -> bool:
        if node in self.facts.denied:
            return False
        if reads_metadata(node):
            return True
        if self._is_returned_by_block(node):
            self.facts.returned.add(node)
            return True
        inputs = node.all_input_nodes
        known = bool(inputs) and all(needed in self.facts.numbers for needed in inputs)
        return known and (computes(node) or node.op == "call_method")

    def _is_returned_by_block(self, node: fx.Node) -> bool:
        made = node.args[0] if node.target in (operator.getitem, getattr) else None
        if isinstance(made, fx.Node) and made.target is all_leaves:
            made = made.args[0]
        return isinstance(made, fx.Node) and made.op == "call_module"

    def _changed(self, tensor: Tensor, by: fx.Node) -> None:
        storage = tensor.untyped_storage()._cdata
        self.facts.changers.add(by)
        for node, seen in self.facts.storages.items():
            if seen == storage:
                self.facts.changed_by[node] = by


def remove_unused(graph: fx.Graph, facts: Facts) -> bool:
    """Leave out what is computed and never used; whether there was any."""
    removed = False
    for node in reversed(list(graph.nodes)):
        home = getattr(node.target, "__module__", "") or ""
        pure = node.op == "call_method" or home.startswith(("torch", "_operator", "builtins"))
        called = node.op in ("call_function", "call_method")
        if called and pure and not node.users and node not in facts.changers and node not in facts.random:
            graph.erase_node(node)
            removed = True
    return removed


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(part) for part in value)
    return isinstance(value, PLAIN)


def _draws(target: Any) -> bool:
    """Whether an operation is random by its name: on tensors without contents, nothing is drawn."""
    name = str(getattr(target, "__name__", target))
    words = ("rand", "bernoulli", "dropout", "multinomial", "normal", "uniform", "exponential", "poisson")
    return not isinstance(target, type) and any(word in name for word in words)
