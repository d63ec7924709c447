"""One training step of a model: whole, cut in two as between two machines, or in three."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cutwater.coverage.compare import Flat, flat, kind_of, loss_of, to_call
from cutwater.model.at_cut import as_tuple
from cutwater.model.halves import Ends
from cutwater.model.layers import Layered
from cutwater.model.randomness import RandomStream

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
    args, named = to_call(inputs)
    with RandomStream(7, 3):
        output = smashed = client(*args, **named)
        if place[0] == len(found):
            backward(loss_of(output))
        else:
            sent = _over_the_wire(smashed)
            output = server(_like(smashed, sent))
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
    sent = _over_the_wire(made)
    output = client.tail(_like(made, sent))
    loss = loss_of(output)
    if loss is None:
        return output, []
    learning = [parameter for parameter in client.parameters() if parameter.requires_grad]
    wanted = [tensor for tensor in sent if tensor.requires_grad]
    gradients = torch.autograd.grad(loss, [*wanted, *learning], allow_unused=True)
    for tensor, gradient in zip(wanted, gradients, strict=False):
        tensor.grad = gradient
    _back(made, sent, ())
    pairs = zip(learning, gradients[len(wanted) :], strict=True)
    return output, [(weight, gradient) for weight, gradient in pairs if gradient is not None]


def _back(kept: Any, sent: Sequence[Tensor], more: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Go on with the gradients that came back over the wire, and with those of weights used later, too."""
    pairs = [
        (tensor, copy.grad.contiguous().clone())
        for tensor, copy in zip(as_tuple(kept), sent, strict=True)
        if copy.grad is not None
    ]
    pairs += more
    if pairs:
        torch.autograd.backward([tensor for tensor, _ in pairs], [gradient for _, gradient in pairs])


def _like(value: Any, sent: tuple[Tensor, ...]) -> Any:
    return sent if isinstance(value, tuple) else sent[0]


def _over_the_wire(value: Any) -> tuple[Tensor, ...]:
    return tuple(_arrived(tensor) for tensor in as_tuple(value))


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
