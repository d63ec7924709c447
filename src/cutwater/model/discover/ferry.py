"""Let numbers cross the cuts where no shape tells them."""

from collections.abc import Iterable

from torch import fx

from cutwater.model.discover.example import Example
from cutwater.model.discover.observe import Facts
from cutwater.model.graph.ferried import FromRows, to_rows


def ferry(graph: fx.Graph, facts: Facts, example: Example, numbers: Iterable[fx.Node]) -> None:
    """Make every one of these numbers a tensor as soon as it is known, and let all its users read that."""
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    batched = next((n for index, n in enumerate(inputs) if example.has_batch(index)), inputs[0])
    with graph.inserting_after(inputs[-1]):
        rows = graph.call_method("size", (batched, 0))
    for number in numbers:
        users = list(number.users)
        last = _bring_forward(graph, facts, number, rows)
        with graph.inserting_after(last):
            sent = graph.call_function(to_rows, (number, rows))
        with graph.inserting_after(sent):
            read = graph.call_function(FromRows(facts.numbers[number][0]), (sent,))
        for user in users:
            user.replace_input_with(number, read)


def _bring_forward(graph: fx.Graph, facts: Facts, number: fx.Node, rows: fx.Node) -> fx.Node:
    """Compute a number right behind the last tensor that it is read from; where that is."""
    chain, sources = {number}, {rows}
    for node in reversed(graph.nodes):
        if node in chain:
            known = {needed for needed in node.all_input_nodes if needed in facts.numbers}
            chain |= known
            sources |= {needed for needed in node.all_input_nodes if needed not in known}
    order = {node: place for place, node in enumerate(graph.nodes)}
    anchor = max(sources, key=lambda node: order[node])
    if anchor.op == "placeholder":
        anchor = rows
    for node in sorted(chain, key=lambda node: order[node]):
        if order[node] > order[anchor]:
            anchor.append(node)
            anchor = node
    return anchor
