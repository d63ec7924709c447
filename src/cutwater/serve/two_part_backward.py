"""A backward pass in two parts: first the gradients that somebody waits for, later those of the weights.

A client waits for the gradients of its smashed data (stage 5), not for those of the server's weights, which
are a third to two thirds of the server's backward pass. A convolution or a matrix product computes the two by
different calls, each from the gradient that came in. So the first part goes through the graph and notes what
comes in at each such node; the second asks the same nodes for what is left. Every number is the result of the
same computation as in one go: the bits are the same.

It takes memory (the graph and what was noted stay until the second part is done; of the latter, a bounded
amount) and some more time, because a node prepares its operands twice: good for a server that would wait
otherwise, bad for one that is busy.

It knows the names of autograd's nodes and asks them for what is not public. Whether they are as expected is
tried on a small graph when this is imported (:data:`IN_TWO_PARTS`); if not, all is done in one go.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Node = Any
"""Of autograd's graph."""
_APART: Final = frozenset({"ConvolutionBackward0", "AddmmBackward0", "MmBackward0"})
"""What computes for its weights apart from what it passes on. There is where the time goes; others, such as a
normalisation, may well do both in one loop."""
_MOST_NOTED: Final = 256 << 20
"""Bytes. A backward pass in one go needs each gradient for a moment only; a server planned to just hold a
large model must not run out of memory over this."""
_LEAF: Final = "AccumulateGrad"
_TRANSPOSE: Final = "TBackward0"
"""Stands between a linear layer and its weight."""


class _Graph(NamedTuple):
    """What a backward pass goes through, from the value to the leaves."""

    behind: dict[Node, list[Node]]
    """Where each node passes gradients on to."""
    before: dict[Node, list[Node]]
    """Where it gets them from."""
    leaves: dict[Node, Tensor]

    def weight(self, node: Node) -> Tensor | None:
        """The leaf that a node stands for, if it is used once: several uses add up in an order."""
        while len(self.before[node]) == 1:
            if node in self.leaves:
                return self.leaves[node]
            if type(node).__name__ != _TRANSPOSE:
                break
            (node,) = self.behind[node]
        return None


class _Due(NamedTuple):
    """What a node has yet to compute."""

    node: Node
    weights: list[Tensor]
    came: list[Tensor | None]
    """The gradients that it was given, once it was."""

    def bytes(self) -> int:
        """Size of what it will be given."""
        return sum(math.prod(each.shape) * each.dtype.itemsize for each in self.node._input_metadata)


def backward_first(value: Tensor, wanted: Sequence[Tensor]) -> Callable[[], None] | None:
    """Backward from ``value`` as far as the leaves ``wanted`` need it; call what is returned for the rest.

    None if there is no rest.
    """
    graph = _survey(value.grad_fn) if IN_TWO_PARTS else None
    dues = _dues(graph, wanted) if graph is not None else []
    if graph is None or not dues:
        torch.autograd.backward(value)
        return None
    return _first_part(value, graph, dues)


def _first_part(value: Tensor, graph: _Graph, dues: list[_Due]) -> Callable[[], None]:
    late = {id(weight) for due in dues for weight in due.weights}
    now = [leaf for leaf in graph.leaves.values() if id(leaf) not in late]
    for due in dues:
        due.node.register_prehook(due.came.extend)  # and again in the second part, when it no longer matters
    torch.autograd.backward(value, inputs=now, retain_graph=True)
    return lambda: _settle(dues)


def _settle(dues: list[_Due]) -> None:
    while dues:
        node, weights, came = dues.pop()  # and what it holds goes with it
        edge = partial(torch.autograd.graph.GradientEdge, node)
        given = [(edge(place), each) for place, each in enumerate(came) if each is not None]
        if given:
            edges, gradients = zip(*given, strict=True)
            torch.autograd.backward(edges, gradients, inputs=weights)


def _survey(root: Node | None) -> _Graph | None:
    """The graph; None if somebody's own function is part of it, which may not stand to be asked in parts."""
    behind: dict[Node, list[Node]] = {}
    before: dict[Node, list[Node]] = {root: []}
    found = [root] if root is not None else []
    for node in found:  # and whatever it leads to, as that is found
        behind[node] = [each for each, _ in node.next_functions if each is not None]
        for each in behind[node]:
            if each in before:
                before[each].append(node)
            else:
                before[each] = [node]
                found.append(each)
    if any(isinstance(node, torch.autograd.function.BackwardCFunction) for node in found):
        return None
    leaves = {node: node.variable for node in found if not behind[node] and type(node).__name__ == _LEAF}
    return _Graph(behind, before, leaves)


def _dues(graph: _Graph, wanted: Sequence[Tensor]) -> list[_Due]:
    """What can wait."""
    awaited = {id(tensor) for tensor in wanted}
    todo = [node for node, leaf in graph.leaves.items() if id(leaf) in awaited]
    passing = set(todo)
    while todo:
        fresh = [each for each in graph.before[todo.pop()] if each not in passing]
        passing.update(fresh)
        todo += fresh
    found = []
    for node, behind in graph.behind.items():
        if node in passing and type(node).__name__ in _APART:
            ends = [each for each in behind if each not in passing]
            weights = [weight for weight in map(graph.weight, ends) if weight is not None]
            if ends and len(weights) == len(ends):
                found.append(_Due(node, weights, []))
    return _affordable(found)


def _affordable(dues: list[_Due]) -> list[_Due]:
    """As many as may be noted: late layers before early ones, whose gradients are large and weights few."""
    sizes = [due.bytes() for due in dues]
    if sum(sizes) <= _MOST_NOTED:
        return dues
    chosen, left = [], _MOST_NOTED
    for size, _, due in sorted(zip(sizes, range(len(dues)), dues, strict=True)):
        if size > left:
            break
        chosen.append(due)
        left -= size
    return chosen


def _small_graph() -> tuple[list[Tensor], Tensor]:
    """Leaves, the first of which is waited for, and what a convolution and a linear layer make of them."""
    sizes = ((1, 2, 3), (2, 2, 2), (3, 4), (3,))
    leaves = [torch.full(size, 0.5, dtype=torch.float64, requires_grad=True) for size in sizes]
    x, kernel, weight, bias = leaves
    return leaves, functional.linear(functional.conv1d(x, kernel).flatten(1), weight, bias).square().sum()


def _works() -> bool:
    """Whether all weights of the small graph can wait, and have the gradients of one go in the end."""
    try:
        (x, *weights), value = _small_graph()
        graph = _survey(value.grad_fn)
        assert graph is not None
        rest = _first_part(value, graph, _dues(graph, [x]))
        waiting = x.grad is not None and all(weight.grad is None for weight in weights)
        rest()
        others, value = _small_graph()
        torch.autograd.backward(value)
        pairs = [(one.grad, other.grad) for one, other in zip([x, *weights], others, strict=True)]
        return waiting and all(a is not None and b is not None and torch.equal(a, b) for a, b in pairs)
    except Exception:  # whatever another release of torch does otherwise
        return False


IN_TWO_PARTS = _works()
"""Whether this release of torch makes the graph that is known here."""
