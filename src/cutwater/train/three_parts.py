"""One mini-batch of a model in three parts: head and tail on the device, the middle at the server.

Labels and loss stay on the device. A part crosses both cuts twice: (1) head forward, (2) smashed data up,
(3) middle forward, (4) its output down, (5) tail forward, loss, and tail backward, (6) the gradients of that
output up, (7) middle backward and update, (8) the gradients of the smashed data down, (9) head backward and
the update of head and tail. Parts go in turn. What goes up or down has the number 2·part on the way forward
and 2·part + 1 on the way back.

Where head and tail share a weight, its gradient of the tail waits for that of the head, and both are added up
in one backward pass: it gets, part by part, the sum that it has in the whole model, to the last bit. Where
gradients are clipped by their norm, a weight that is shared counts with the head; the sum of squares begins
with the tail's own and goes up at (6), the server adds its layers' and sends it down at (8), and what all
come to goes up with the next smashed data (:mod:`cutwater.train.manner`).
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.model.at_cut import as_tuple, cut_loose, one_or_all
from cutwater.model.halves import Ends
from cutwater.train.step import AtServer, ClientSide, Loss, Part, Piece, Tensors, go_back, gradient_of


@dataclass(frozen=True)
class Back:
    """Gradients across a cut: one for each tensor that crossed it and requires one, in order."""

    gradients: Tensors
    unused: tuple[int, ...] = ()
    """Which of them are zero because the loss does not depend on the tensor at all."""
    norm: float | None = None
    """Of a mini-batch's last part, where gradients are clipped by it: the sum of squares of those of the
    layers behind."""


class MiddleStages(Protocol):
    """Stages 2 to 4 and 6 to 8 as the client sees them, one part at a time."""

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """What the server's layers make of smashed data; it requires gradients where they are wanted."""

    def backward(self, part: Part, back: Back) -> Back:
        """The gradients of the smashed data, from those of what the server's layers gave out."""

    def clip(self, norm: float) -> None:
        """Take the sum of squares of all gradients of the mini-batch, of all three parts, and update."""


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
    def _learning(self) -> dict[str, Tensor]:
        return {name: one for name, one in self.half.named_parameters() if one.requires_grad}

    def _norm(self, before: float = 0.0) -> float:
        """That of the head, added to that of what is behind it, of which the tail's own is a part."""
        return self._norm_of(before, tail=False)

    def _norm_of(self, before: float, *, tail: bool) -> float:
        if self.manner.clip is None:
            return 0.0
        named = self.half.named_parameters()
        return self.manner.clip.add(before, [one for one in named if (one[0] in self.half.of_tail) == tail])

    def exchange(self, server: MiddleStages, parts: Sequence[Piece], loss: Loss) -> list[float]:
        """All stages of these parts, one after the other; their losses."""
        losses = []
        for part, inputs, labels in parts:
            output = server.forward(part, self.forward(part.number, inputs))
            back, learned, value = self.tail(part, output, labels, loss)
            del output
            reply = server.backward(part, back)
            before = reply.norm or 0.0
            norm = self.backward(reply.gradients, reply.unused, last=part.last, more=learned, norm=before)
            if part.last and self.manner.clip is not None:
                server.clip(norm)
            losses.append(value)
        return losses

    def tail(
        self, part: Part, output: Tensors, labels: Tensor, loss: Loss
    ) -> tuple[Back, list[tuple[Tensor, Tensor]], float]:
        """Stage 5: what goes up, gradients of weights that the head has, too, and the loss of the part."""
        with self.watch("tail_forward"):
            given = one_or_all(tuple(tensor.clone() for tensor in output))
            value, counted = self._loss(part, loss, labels, given, last=self.half.tail)
        with self.watch("tail_backward"):
            wanted = [tensor for tensor in output if tensor.requires_grad]
            found = torch.autograd.grad(counted, [*wanted, *self._learning.values()], allow_unused=True)
            shared = self._learn(found[len(wanted) :])
            due = part.last and self.manner.clip is not None
            norm = self._norm_of(0.0, tail=True) if due else None
        return _back(wanted, found[: len(wanted)], norm), shared, float(value.detach())

    def _learn(self, found: Sequence[Tensor | None]) -> list[tuple[Tensor, Tensor]]:
        """Add gradients to those of the tail's own weights; the others wait for the head's."""
        own, shared = list[tuple[Tensor, Tensor]](), list[tuple[Tensor, Tensor]]()
        for (name, weight), gradient in zip(self._learning.items(), found, strict=True):
            if gradient is not None:
                (own if name in self.half.of_tail else shared).append((weight, gradient))
        if own:
            torch.autograd.backward([weight for weight, _ in own], [gradient for _, gradient in own])
        return shared


class MiddleSide(AtServer, MiddleStages):
    """The server's layers of one client in a session."""

    @cached_property
    def _kept(self) -> deque[tuple[list[Tensor], Tensors]]:
        """Smashed data that needs gradients, and what was made of it, of parts that did not come back yet."""
        return deque()

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """Stage 3: the output, cut loose from the server's own graph."""
        self.check_told()
        with self.watch("server_forward"):
            # A copy, as a layer that works in place may touch neither a leaf nor what the client keeps.
            output = self._run(part.number, one_or_all(tuple(tensor.clone() for tensor in smashed)))
        made = as_tuple(output)
        self._kept.append(([tensor for tensor in smashed if tensor.requires_grad], made))
        return tuple(map(cut_loose, made))

    def backward(self, part: Part, back: Back) -> Back:
        """Stage 7, with the update after the last part, unless that waits for the norm of all gradients."""
        due = part.last and self.manner.clip is not None
        if (back.norm is not None) != due or (back.norm or 0.0) < 0:
            raise RunError(
                f"{back.norm} was told as the sum of squares of the tail's gradients, but "
                + ("0 or more is due" if due else "none is due here")
            )
        with self.watch("server_backward"):
            wanted, made = self._kept.popleft()
            go_back([tensor for tensor in made if tensor.requires_grad], back.gradients, back.unused)
            if part.last and not due:
                self._update()
            self.least = self._norm(back.norm or 0.0) if due else None
        return _back(wanted, [tensor.grad for tensor in wanted], self.least)


def _back(wanted: Sequence[Tensor], gradients: Sequence[Tensor | None], norm: float | None) -> Back:
    unused = tuple(place for place, gradient in enumerate(gradients) if gradient is None)
    pairs = zip(wanted, gradients, strict=True)
    return Back(tuple(gradient_of(t) if g is None else g for t, g in pairs), unused, norm)
