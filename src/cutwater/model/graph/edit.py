"""Small operations on traced graphs."""

from torch import fx

from cutwater.model.graph.program import NO_GRAD, Forward, Program


def with_weights_at_their_use(graph: fx.Graph) -> fx.Graph:
    """Fetch each parameter and buffer where it is used, so that it belongs to the layer that uses it."""
    for node in list(graph.nodes):
        if node.op == "get_attr":
            for user in list(node.users):
                with graph.inserting_before(user):
                    own = graph.node_copy(node)
                user.replace_input_with(node, own)
            graph.erase_node(node)
    return graph


def is_same(one: fx.Graph, other: fx.Graph) -> bool:
    """Whether two graphs do the same in the same order."""
    return _text(one) == _text(other)


def whole(graph: fx.Graph) -> Forward:
    """A graph as one function of (module, *inputs)."""
    layers = {node: int(node.op != "placeholder") for node in graph.nodes if node.op != "output"}
    return Program(graph, layers).compile(0, 1)


def _text(graph: fx.Graph) -> list[str]:
    return [
        f"{node.format_node()} {node.args} {node.kwargs} {node.meta.get(NO_GRAD)}" for node in graph.nodes
    ]
