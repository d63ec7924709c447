"""What depends on what in a traced model: on parameters, on inputs, on nothing but constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import fx, nn

from cutwater.model.discover.observe import Facts
from cutwater.model.graph.program import attribute
from cutwater.model.graph.sizes import to_rows

Nodes = frozenset[fx.Node]


@dataclass(frozen=True, eq=False)
class Flow:
    """A graph with what is known of its values; parameters and inputs are followed through it."""

    module: nn.Module
    graph: fx.Graph
    facts: Facts

    @cached_property
    def operations(self) -> list[fx.Node]:
        """Operations in order: the one at place p is the p-th."""
        return [n for n in self.graph.nodes if n.op not in ("placeholder", "output")]

    @cached_property
    def positions(self) -> dict[fx.Node, int]:
        """The place of every operation in the graph, from 1 on; inputs are at 0."""
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        return {**dict.fromkeys(inputs, 0), **{n: at for at, n in enumerate(self.operations, start=1)}}

    @cached_property
    def activations(self) -> Nodes:
        """Floating-point tensors that depend on a parameter: they carry the gradient."""
        return self._learned & self._floating

    @cached_property
    def stateful(self) -> Nodes:
        """Operations that use a parameter or a buffer."""
        return frozenset(n for n in self.graph.nodes if self._holds_state(n)) - self.replicable

    @cached_property
    def replicable(self) -> Nodes:
        """Values that either side computes for itself: constants, and masks and the like.

        The latter where the input they come from is smaller: it crosses instead. Inputs that a layer learns
        from are the user's data; nothing is gained that would be worth sending them.
        """
        made = {node for node in self._cone if not self._roots[node] & self._data}
        tensors = self.facts.tensors
        used = {n for n in made if n in tensors and any(user not in made for user in n.users)}
        sources = frozenset().union(*(self._roots[n] for n in used))
        pays = sum(map(self.facts.bits, sources)) < sum(map(self.facts.bits, used))
        return self._constants | made if pays else self._constants

    @cached_property
    def data_until(self) -> dict[fx.Node, int]:
        """Values computed from the model's own data alone: where the last layer is that takes them in."""
        last = {node: self.positions[node] for node in self._entries}
        for node in reversed(self.graph.nodes):
            if node in self._learned or node.op == "output":
                continue
            reached = [last[user] for user in node.users if user in last]
            if reached and any(root in self._floating for root in self._roots.get(node, ())):
                last[node] = max(reached)
        return {node: until for node, until in last.items() if node not in self._learned}

    def hoist(self) -> bool:
        """Compute what follows from the user's data alone right at the start; whether anything moved.

        If so, the graph is another one, and what is known here is not of it: it is to be followed anew.

        A model may look at its inputs once more at the end (for the last token that is no padding, say). What
        it looks for then crosses the cut, and not the inputs themselves.
        """
        wanted = {node for node in self._cone if self._roots[node] & self._data}
        if not wanted:
            return False
        for node in reversed(self.graph.nodes):
            if node in wanted:
                wanted |= {n for n in node.all_input_nodes if n.op != "placeholder"}
        anchor = [node for node in self.graph.nodes if node.op == "placeholder"][-1]
        for node in [node for node in self.graph.nodes if node in wanted]:
            anchor.append(node)
            anchor = node
        return True

    def _holds_parameters(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return any(True for _ in self.module.get_submodule(str(node.target)).parameters())
        return node.op == "get_attr" and isinstance(attribute(self.module, str(node.target)), nn.Parameter)

    def _holds_state(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            called = self.module.get_submodule(str(node.target))
            return any(True for _ in called.buffers()) or self._holds_parameters(node)
        return node.op == "get_attr"

    @cached_property
    def _floating(self) -> Nodes:
        dtypes = self.facts.dtypes
        return frozenset(n for n in self.facts.tensors if dtypes[n].is_floating_point or dtypes[n].is_complex)

    @cached_property
    def _learned(self) -> Nodes:
        """Values that depend on a parameter, other than through their shape."""
        found: set[fx.Node] = set()
        for node in self.graph.nodes:
            if node not in self.facts.numbers and (
                self._holds_parameters(node) or any(n in found for n in node.all_input_nodes)
            ):
                found.add(node)
        return frozenset(found)

    @cached_property
    def _roots(self) -> Mapping[fx.Node, Nodes]:
        """For values that depend on no parameter: the inputs that they are computed from."""
        roots: dict[fx.Node, Nodes] = {}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                roots[node] = frozenset({node})
            elif node not in self._learned and node not in self.facts.numbers:
                roots[node] = frozenset().union(*(roots.get(n, frozenset()) for n in node.all_input_nodes))
        return roots

    @cached_property
    def _entries(self) -> list[fx.Node]:
        """Where data enters the layers: operations with parameters and no activation among their inputs."""
        made = {node for node in self._learned if node.op != "get_attr"}
        return [n for n in self.graph.nodes if n in made and made.isdisjoint(n.all_input_nodes)]

    @cached_property
    def _data(self) -> Nodes:
        """The inputs that layers learn from: what enters, and the floating-point ones it is computed from.

        Positions that are computed from a mask enter as well, but that does not make the mask data.
        """
        dtypes, storages = self.facts.dtypes, self.facts.storages
        entering = {n for entry in self._entries for n in entry.all_input_nodes if n in self._roots}
        return frozenset(
            root
            for node in entering
            for root in self._roots[node]
            if dtypes[root].is_floating_point or storages[root] == storages.get(node)
        )

    @cached_property
    def _constants(self) -> Nodes:
        """Numbers, tensors of the model that never change and aren't learned, and what follows from them."""
        fixed: set[fx.Node] = set(self.facts.numbers)
        for node in self.graph.nodes:
            if not self._is_steady(node):
                continue
            if node.op == "get_attr":
                if not self._holds_parameters(node) and node not in self.facts.drifting:
                    fixed.add(node)
            elif node.op in ("call_function", "call_method") and all(
                n in fixed for n in node.all_input_nodes
            ):
                fixed.add(node)
        return frozenset(fixed)

    @cached_property
    def _cone(self) -> list[fx.Node]:
        """Operations that any side could repeat, given the inputs."""
        inputs = (n for n in self._roots if n.op == "placeholder" and n not in self.facts.changed_by)
        known, found = {*self._constants, *inputs}, list[fx.Node]()
        for node in self._roots:
            given = all(n in known for n in node.all_input_nodes)
            called = node not in known and node.op in ("call_function", "call_method")
            if called and given and self._is_steady(node):
                known.add(node)
                found.append(node)
        return found

    def _is_steady(self, node: fx.Node) -> bool:
        """Whether an operation gives the same whenever and wherever it is repeated."""
        if node.target is to_rows:
            return False  # it is there to cross
        facts = self.facts
        return not (node in facts.random or node in facts.changed_by or node in facts.changers)
