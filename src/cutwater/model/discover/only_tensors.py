"""Rewrite a traced graph so that tensors cross cuts and nothing else.

Values that hold others are taken apart where they are made, and numbers that no shape tells become tensors.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor, fx

from cutwater.model.discover.example import Example
from cutwater.model.discover.observe import Facts
from cutwater.model.graph.nested import Hole, all_leaves, fill, kind_of, with_holes, write
from cutwater.model.graph.sizes import FromRows, to_rows


def spread_groups(graph: fx.Graph, facts: Facts) -> bool:
    """Replace every use of such a value by the parts that it needs; whether any was taken apart."""
    spread = False
    for node, runs in facts.groups.items():
        wanted = [user for user in node.users if user.target is not all_leaves]
        if wanted and all(kind_of(run) == kind_of(runs[0]) for run in runs):
            parts = _parts(graph, node, runs[0])
            for user in wanted:
                _use(graph, user, node, with_holes(runs[0]), parts)
            spread = True
    return spread


def _parts(graph: fx.Graph, node: fx.Node, value: Any) -> list[Any]:
    """A node for every leaf; None and words stand for themselves."""
    with graph.inserting_after(node):
        flat = graph.call_function(all_leaves, (node,))
    parts: list[Any] = []
    after = flat
    for place, leaf in enumerate(all_leaves(value)):
        if leaf is None or isinstance(leaf, str):
            parts.append(leaf)
            continue
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (flat, place))
        parts.append(after)
    return parts


def _use(graph: fx.Graph, user: fx.Node, node: fx.Node, holes: Any, parts: Sequence[Any]) -> None:
    """Let a user of a value use its parts instead."""
    found, picked = _picked(user, holes)
    if found:
        for later in list(user.users):
            _use(graph, later, user, picked, parts)
        graph.erase_node(user)
        return
    with graph.inserting_before(user):
        whole = write(graph, fill(holes, parts))
    user.args = fx.node.map_arg(user.args, lambda n: whole if n is node else n)
    user.kwargs = fx.node.map_arg(user.kwargs, lambda n: whole if n is node else n)


def _picked(user: fx.Node, holes: Any) -> tuple[bool, Any]:
    """Whether a user only picks an item or an attribute of a value with holes, and which."""
    if isinstance(holes, (Hole, Tensor)) or user.target not in (operator.getitem, getattr):
        return False, None
    key = user.args[1]
    if isinstance(key, fx.Node) or len(user.args) != 2:
        return False, None
    try:
        pick: Any = user.target
        return True, pick(holes, key)
    except (AttributeError, KeyError, IndexError, TypeError):
        return False, None


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
