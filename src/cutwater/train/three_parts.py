"""One mini-batch of a model in three parts: head and tail on the device, the middle at the server.

Labels and loss stay on the device. A part crosses both cuts twice: (1) head forward, (2) smashed data up,
(3) middle forward, (4) its output down, (5) tail forward, loss, and tail backward, (6) the gradients of that
output up, (7) middle backward and update, (8) the gradients of the smashed data down, (9) head backward and
the update of head and tail. Parts go in turn. What goes up or down has the number 2·part on the way forward
and 2·part + 1 on the way back.

The gradients of the tail's weights wait for those of the head, and both are added up in one backward pass: a
weight that head and tail share gets, part by part, the sum that it has in the whole model, to the last bit.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from cutwater.model.halves import Ends
from cutwater.train.step import ClientSide, Loss, Part, Piece, Side, Tensors, gradient_of


@dataclass(frozen=True)
class Back:
    """Gradients across a cut: one for each tensor that crossed it and requires one, in order."""

    gradients: Tensors
    unused: tuple[int, ...] = ()
    """Which of them are zero because the loss does not depend on the tensor at all."""


class MiddleStages(Protocol):
    """Stages 2 to 4 and 6 to 8 as the client sees them, one part at a time."""

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """What the server's layers make of smashed data; it requires gradients where they are wanted."""

    def backward(self, part: Part, back: Back) -> Back:
        """The gradients of the smashed data, from those of what the server's layers gave out."""


def leg(part: Part, *, back: bool) -> int:
    """The number of what crosses the cuts for a part, on its way forward or back.

    >>> leg(Part(3), back=False), leg(Part(3), back=True)
    (6, 7)
    """
    return 2 * part.number + back


class EndsSide(ClientSide):
    """Head and tail of one client in a session."""

    half: Ends

    @cached_property
    def _learning(self) -> list[Tensor]:
        return [parameter for parameter in self.half.parameters() if parameter.requires_grad]

    def exchange(self, server: MiddleStages, parts: Sequence[Piece], loss: Loss) -> list[float]:
        """All stages of these parts, one after the other; their losses."""
        losses = []
        for part, inputs, labels in parts:
            output = server.forward(part, self.forward(part.number, inputs))
            back, learned, value = self.tail(part, output, labels, loss)
            del output
            reply = server.backward(part, back)
            self.backward(reply.gradients, reply.unused, last=part.last, more=learned)
            losses.append(value)
        return losses

    def tail(
        self, part: Part, output: Tensors, labels: Tensor, loss: Loss
    ) -> tuple[Back, list[tuple[Tensor, Tensor]], float]:
        """Stage 5: what goes up, the gradients of the tail's own weights, and the loss of the part."""
        with self.watch("tail_forward"):
            given = one_or_all(tuple(tensor.clone() for tensor in output))
            value, counted = self._loss(part, loss, labels, given, last=self.half.tail)
        with self.watch("tail_backward"):
            wanted = [tensor for tensor in output if tensor.requires_grad]
            found = torch.autograd.grad(counted, [*wanted, *self._learning], allow_unused=True)
            back = _back(wanted, found[: len(wanted)])
        pairs = zip(self._learning, found[len(wanted) :], strict=True)
        learned = [(weight, gradient) for weight, gradient in pairs if gradient is not None]
        return back, learned, float(value.detach())


class MiddleSide(Side, MiddleStages):
    """The server's layers of one client in a session."""

    @cached_property
    def _kept(self) -> deque[tuple[list[Tensor], Tensors]]:
        """Smashed data that needs gradients, and what was made of it, of parts that did not come back yet."""
        return deque()

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """Stage 3: the output, cut loose from the server's own graph."""
        with self.watch("server_forward"):
            # A copy, as a layer that works in place may touch neither a leaf nor what the client keeps.
            output = self._run(part.number, one_or_all(tuple(tensor.clone() for tensor in smashed)))
        made = output if isinstance(output, tuple) else (output,)
        self._kept.append(([tensor for tensor in smashed if tensor.requires_grad], made))
        return tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in made)

    def backward(self, part: Part, back: Back) -> Back:
        """Stage 7, with the update after the last part."""
        with self.watch("server_backward"):
            wanted, made = self._kept.popleft()
            learning = [tensor for tensor in made if tensor.requires_grad]
            used = [place for place in range(len(learning)) if place not in back.unused]
            if used:
                roots = [learning[place] for place in used], [back.gradients[place] for place in used]
                torch.autograd.backward(*roots)
            if part.last:
                self._update()
        return _back(wanted, [tensor.grad for tensor in wanted])


def _back(wanted: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Back:
    unused = tuple(place for place, gradient in enumerate(gradients) if gradient is None)
    pairs = zip(wanted, gradients, strict=True)
    return Back(tuple(gradient_of(t) if g is None else g for t, g in pairs), unused)


def one_or_all(tensors: Tensors) -> Any:
    """What crosses a cut as the layers after it take it: one value, or a tuple of several."""
    return tensors[0] if len(tensors) == 1 else tensors
