"""One training step of a model: whole, cut in two as between two machines, or in three."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cutwater.coverage.compare import Flat, flat, kind_of, loss_of
from cutwater.model.at_cut import as_tuple
from cutwater.model.graph.nested import map_tensors
from cutwater.model.halves import Ends
from cutwater.model.layers import Layered
from cutwater.model.randomness import RandomStream
from cutwater.profile.walk import call

Place = tuple[int, int]
"""A cut and a second one; the second is 0 where there is none."""


def places(found: Layered) -> list[Place]:
    """Where a model may be cut: once or, where tied weights that learn rule that out, twice."""
    depth = len(found)
    one = [(cut, 0) for cut in range(1, depth) if cut not in found.ruled_out]
    if one:
        return one
    pairs = [(cut, second) for cut in range(1, depth) for second in range(cut + 1, depth)]
    return [pair for pair in pairs if not any(shared.torn_by(*pair) for shared in found.shared)]


def step(found: Layered, place: Place, inputs: Any, training: bool) -> Flat:
    """Output, gradients and buffers after one step on a copy of the model."""
    found = copied(found)
    client, server = (half.train(training) for half in found.split(*place))
    with RandomStream(7, 3):
        output = smashed = call(client, inputs)
        if place[0] == len(found):
            backward(loss_of(output))
        else:
            sent = map_tensors(_arrived, smashed)
            output = server(sent)
            learned: list[tuple[Tensor, Tensor]] = []
            if isinstance(client, Ends):
                output, learned = _tail(client, output)
            else:
                backward(loss_of(output))
            _back(smashed, sent, learned)
    result: Flat = {"type": kind_of(output), **flat("output", output)}
    result |= {f"gradient of {name}": p.grad for name, p in found.module.named_parameters()}
    return result | {f"buffer {name}": buffer for name, buffer in found.module.named_buffers()}


def _tail(client: Ends, made: Any) -> tuple[Any, list[tuple[Tensor, Tensor]]]:
    """The tail's output, and the gradients of its weights; the middle's are made on the way."""
    sent = map_tensors(_arrived, made)
    output = client.tail(sent)
    loss = loss_of(output)
    if loss is None:
        return output, []
    learning = [parameter for parameter in client.parameters() if parameter.requires_grad]
    wanted = [tensor for tensor in as_tuple(sent) if tensor.requires_grad]
    gradients = torch.autograd.grad(loss, [*wanted, *learning], allow_unused=True)
    for tensor, gradient in zip(wanted, gradients, strict=False):
        tensor.grad = gradient
    _back(made, sent, ())
    pairs = zip(learning, gradients[len(wanted) :], strict=True)
    return output, [(weight, gradient) for weight, gradient in pairs if gradient is not None]


def _back(kept: Any, sent: Any, more: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Go on with the gradients that came back over the wire, and with those of weights used later, too."""
    pairs = [
        (tensor, copy.grad.contiguous().clone())
        for tensor, copy in zip(as_tuple(kept), as_tuple(sent), strict=True)
        if copy.grad is not None
    ]
    pairs += more
    if pairs:
        torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])


def _arrived(tensor: Tensor) -> Tensor:
    arrived = tensor.detach().clone(memory_format=torch.contiguous_format)
    return arrived.requires_grad_(tensor.requires_grad)


def copied(found: Layered) -> Layered:
    """The same layers of a copy of the model."""
    return replace(found, module=copy.deepcopy(found.module))


def backward(loss: Tensor | None) -> None:
    """Gradients, if anything learns."""
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
