"""What depends on what in a traced model: on parameters, on inputs, on nothing but constants."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import fx, nn

from cutwater.model.discover.observe import Facts
from cutwater.model.graph.ferried import to_rows
from cutwater.model.graph.program import Program, attribute

Nodes = frozenset[fx.Node]


@dataclass(frozen=True)
class Flow:
    """A graph with what is known of its values."""

    graph: fx.Graph
    facts: Facts
    activations: Nodes
    """Floating-point tensors that depend on a parameter: they carry the gradient."""
    replicable: Nodes
    stateful: Nodes
    """Operations that use a parameter or a buffer."""
    data_until: dict[fx.Node, int]
    """Values computed from the model's own data alone: the position of the last layer that takes them in."""

    def program(self) -> Program:
        """The graph as a program in which every operation is a layer: its position."""
        return Program(
            self.graph, positions(self.graph), self.replicable, self.facts.sizes(), self.facts.changed_by
        )


def positions(graph: fx.Graph) -> dict[fx.Node, int]:
    """The place of every operation in the graph, from 1 on; inputs are at 0."""
    found: dict[fx.Node, int] = {}
    place = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            found[node] = 0
        elif node.op != "output":
            place += 1
            found[node] = place
    return found


def hoist(module: nn.Module, graph: fx.Graph, facts: Facts) -> bool:
    """Compute what follows from the user's data alone right at the start; whether anything moved.

    A model may look at its inputs once more at the end (for the last token that is no padding, say). What it
    looks for then crosses the cut, and not the inputs themselves.
    """
    learned = _reached(graph, facts, lambda node: _holds_parameters(module, node))
    roots = _roots(graph, facts, learned)
    data = _data(facts, roots, _entries(graph, learned))
    fixed = _constants(module, graph, facts)
    early = [n for n in _cone(facts, roots, fixed) if roots[n] & data]
    if not early:
        return False
    wanted = set(early)
    for node in reversed(graph.nodes):
        if node in wanted:
            wanted |= {n for n in node.all_input_nodes if n.op != "placeholder"}
    anchor = [node for node in graph.nodes if node.op == "placeholder"][-1]
    for node in [node for node in graph.nodes if node in wanted]:
        anchor.append(node)
        anchor = node
    return True


def analyse(module: nn.Module, graph: fx.Graph, facts: Facts) -> Flow:
    """Follow parameters and inputs through a graph."""
    learned = _reached(graph, facts, lambda node: _holds_parameters(module, node))
    floating = {n for n in facts.tensors if facts.dtypes[n].is_floating_point or facts.dtypes[n].is_complex}
    roots = _roots(graph, facts, learned)
    entries = _entries(graph, learned)
    replicable = _constants(module, graph, facts)
    replicable |= _worth_recomputing(facts, roots, entries, replicable)
    return Flow(
        graph=graph,
        facts=facts,
        activations=frozenset(learned & floating),
        replicable=frozenset(replicable),
        stateful=frozenset(n for n in graph.nodes if _holds_state(module, n)) - replicable,
        data_until=_data_until(graph, learned, roots, entries, floating),
    )


def _holds_parameters(module: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return any(True for _ in module.get_submodule(str(node.target)).parameters())
    return node.op == "get_attr" and isinstance(attribute(module, str(node.target)), nn.Parameter)


def _holds_state(module: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        called = module.get_submodule(str(node.target))
        return any(True for _ in called.buffers()) or _holds_parameters(module, node)
    return node.op == "get_attr"


def _reached(graph: fx.Graph, facts: Facts, starts: Callable[[fx.Node], bool]) -> set[fx.Node]:
    """Values that depend on a start, other than through their shape."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node not in facts.numbers and (starts(node) or any(n in found for n in node.all_input_nodes)):
            found.add(node)
    return found


def _roots(graph: fx.Graph, facts: Facts, learned: set[fx.Node]) -> dict[fx.Node, Nodes]:
    """For values that depend on no parameter: the inputs that they are computed from."""
    roots: dict[fx.Node, Nodes] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            roots[node] = frozenset({node})
        elif node not in learned and node not in facts.numbers:
            roots[node] = frozenset().union(*(roots.get(n, frozenset()) for n in node.all_input_nodes))
    return roots


def _entries(graph: fx.Graph, learned: set[fx.Node]) -> list[fx.Node]:
    """Where data enters the layers: operations with parameters and no activation among their inputs."""

    def is_weight(node: fx.Node) -> bool:
        return node.op == "get_attr"

    return [
        node
        for node in graph.nodes
        if node in learned
        and not is_weight(node)
        and not any(n in learned and not is_weight(n) for n in node.all_input_nodes)
    ]


def _constants(module: nn.Module, graph: fx.Graph, facts: Facts) -> set[fx.Node]:
    """Numbers, tensors of the model that never change and aren't learned, and what follows from them."""
    fixed: set[fx.Node] = set(facts.numbers)
    for node in graph.nodes:
        if not _is_steady(facts, node):
            continue
        if node.op == "get_attr":
            learned = isinstance(attribute(module, str(node.target)), nn.Parameter)
            if not learned and node not in facts.drifting:
                fixed.add(node)
        elif node.op in ("call_function", "call_method") and all(n in fixed for n in node.all_input_nodes):
            fixed.add(node)
    return fixed


def _worth_recomputing(
    facts: Facts, roots: dict[fx.Node, Nodes], entries: list[fx.Node], constants: set[fx.Node]
) -> set[fx.Node]:
    """Masks and the like, where the input they come from is smaller: it crosses instead.

    Inputs that a layer learns from are the user's data; nothing is gained that would be worth sending them.
    """
    data = _data(facts, roots, entries)
    made = {node for node in _cone(facts, roots, constants) if not roots[node] & data}
    used = {n for n in made if n in facts.tensors and any(user not in made for user in n.users)}
    sources = frozenset().union(*(roots[n] for n in used))
    if sum(map(facts.bits, sources)) < sum(map(facts.bits, used)):
        return made
    return set()


def _data(facts: Facts, roots: dict[fx.Node, Nodes], entries: list[fx.Node]) -> Nodes:
    """The inputs that layers learn from: what enters, and the floating-point ones that it is computed from.

    Positions that are computed from a mask enter as well, but that does not make the mask data.
    """
    entering = {n for entry in entries for n in entry.all_input_nodes if n in roots}
    return frozenset(
        root
        for node in entering
        for root in roots[node]
        if facts.dtypes[root].is_floating_point or facts.storages[root] == facts.storages.get(node)
    )


def _cone(facts: Facts, roots: dict[fx.Node, Nodes], constants: set[fx.Node]) -> list[fx.Node]:
    """Operations that any side could repeat, given the inputs."""
    known = constants | {n for n in roots if n.op == "placeholder" and n not in facts.changed_by}
    found = []
    for node in roots:
        given = all(n in known for n in node.all_input_nodes)
        called = node not in known and node.op in ("call_function", "call_method")
        if called and given and _is_steady(facts, node):
            known.add(node)
            found.append(node)
    return found


def _is_steady(facts: Facts, node: fx.Node) -> bool:
    """Whether an operation gives the same whenever and wherever it is repeated."""
    if node.target is to_rows:
        return False  # it is there to cross
    return not (node in facts.random or node in facts.changed_by or node in facts.changers)


def _data_until(
    graph: fx.Graph,
    learned: set[fx.Node],
    roots: dict[fx.Node, Nodes],
    entries: list[fx.Node],
    floating: set[fx.Node],
) -> dict[fx.Node, int]:
    place = positions(graph)
    last = {node: place[node] for node in entries}
    for node in reversed(graph.nodes):
        if node in learned or node.op == "output":
            continue
        reached = [last[user] for user in node.users if user in last]
        if reached and any(root in floating for root in roots.get(node, ())):
            last[node] = max(reached)
    return {node: until for node, until in last.items() if node not in learned}
