"""One mini-batch of split training: the six stages of Sec. III-B, Phase 3.

(1) client-side forward, (2) smashed data and labels up, (3) server-side forward, (4) server-side backward and
update, (5) gradients down, (6) client-side backward and update. This module knows no transport: whoever plays
the server (:class:`ServerSide` in this process, or a stand-in that talks to one elsewhere) has two methods.

A mini-batch may be trained in parts (micro-batches). Each part's loss counts by its samples, so that the
gradients of the parts add up to those of the mini-batch; both sides add them up in the order of the parts and
update once, after the last. Whether all parts are on their way at once (overlapped) or one after the other
(in turn) changes no bit: every sum has the same terms in the same order.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cutwater.base.errors import RunError
from cutwater.model.randomness import LOSS, RandomStream, enter_layer
from cutwater.plan.session import part_sizes
from cutwater.train.optimizers import at_own_rate, find_optimizer, takes_rate

Loss = Callable[[Any, Tensor], Tensor]
"""(model output, labels) → mean loss of the mini-batch."""
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]
Tensors = tuple[Tensor, ...]
Backward = Callable[[Tensor, Sequence[Tensor]], object]
"""Goes back from a loss, at least as far as the tensors whose gradients somebody waits for."""
Watch = Callable[[str], AbstractContextManager[object]]
"""Given the name of a stage, a context that is open while the stage runs (a stopwatch, say)."""


def no_watch(stage: str) -> AbstractContextManager[object]:
    """Watch nothing."""
    return nullcontext()


def backward_in_one_go(value: Tensor, wanted: Sequence[Tensor]) -> None:
    """All gradients, as torch has them."""
    torch.autograd.backward(value)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a mini-batch (a micro-batch), or all of it."""

    number: int
    """Counted through the session, from 0; its random streams begin from it."""
    weight: float = 1.0
    """Its samples over the mini-batch's."""
    last: bool = True
    """Whether it ends the mini-batch: both sides update after it."""


@dataclass(frozen=True)
class Reply:
    """What comes back from the server for a part."""

    gradients: Tensors
    """G: one for each smashed tensor that requires a gradient, in order."""
    loss: float
    unused: tuple[int, ...] = ()
    """Which of them are zero because the loss does not depend on the tensor at all."""


class ServerStages(Protocol):
    """Stages 2 to 5 as the client sees them: parts go in, and replies come out in the same order."""

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Take the smashed data of a part; all parts of a mini-batch may be sent before one is answered."""

    def receive(self) -> Reply:
        """The reply to the first part that is not answered yet."""

    def step(self, number: int, smashed: Tensors, labels: Tensor) -> Reply:
        """A mini-batch in one part: send it and wait for its reply."""
        self.send(Part(number), smashed, labels)
        return self.receive()


class _Side:
    """A half and the optimizer of its parameters."""

    def __init__(self, half: nn.Module, optimizer: MakeOptimizer, seed: int, watch: Watch = no_watch) -> None:
        self.half, self.seed, self.watch = half, seed, watch
        trained = [parameter for parameter in half.parameters() if parameter.requires_grad]
        # torch refuses to make an optimizer of nothing, yet a first layer may well have no parameters.
        self.optimizer = optimizer(trained) if trained else None
        half.train()

    def _run(self, step: int, *inputs: Any) -> Any:
        with RandomStream(self.seed, step):
            return self.half(*inputs)

    def _loss(self, part: Part, loss: Loss, labels: Tensor, *inputs: Any) -> tuple[Tensor, Tensor]:
        """The loss of a part, and what it adds to that of the mini-batch."""
        with RandomStream(self.seed, part.number):
            output = self.half(*inputs)
            enter_layer(LOSS)
            value = loss(output, labels)
        return value, value if part.weight == 1.0 else value * part.weight

    def _update(self) -> None:
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class ClientSide(_Side):
    """w^C of one client in a session."""

    def __init__(self, half: nn.Module, optimizer: MakeOptimizer, seed: int, watch: Watch = no_watch) -> None:
        super().__init__(half, optimizer, seed, watch)
        self._kept: deque[Tensors] = deque()
        """Smashed data with the client's graph behind it, of parts that are not answered yet."""

    def forward(self, number: int, inputs: Sequence[Tensor]) -> Tensors:
        """Stage 1: S = fp(x; w^C) (eq. (5)), cut loose from the client's own graph."""
        with self.watch("client_forward"):
            output = self._run(number, *inputs)
        self._kept.append(output if isinstance(output, tuple) else (output,))
        return tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in self._kept[-1])

    def backward(self, gradients: Sequence[Tensor], unused: Sequence[int] = (), *, last: bool = True) -> None:
        """Stage 6: backward through w^C from the gradients G, and the update after the last part (eq. (8)).

        From what the loss does not depend on nothing goes back: a weight without a gradient stays as it is,
        where one whose gradient is zero would still decay.
        """
        with self.watch("client_backward"):
            kept = [t for t in self._kept.popleft() if t.requires_grad]
            used = [place for place in range(len(kept)) if place not in unused]
            if used:
                torch.autograd.backward([kept[place] for place in used], [gradients[place] for place in used])
            del kept
            if last:
                self._update()

    def whole(self, part: Part, inputs: Sequence[Tensor], labels: Tensor, loss: Loss) -> float:
        """A part at a client that holds the whole model (FedAvg, eq. (1))."""
        with self.watch("client_forward"):
            value, counted = self._loss(part, loss, labels, *inputs)
        with self.watch("client_backward"):
            torch.autograd.backward(counted)
            if part.last:
                self._update()
        return float(value.detach())


class ServerSide(_Side, ServerStages):
    """w^S of one client in a session, at the server."""

    def __init__(
        self, half: nn.Module, optimizer: MakeOptimizer, seed: int, loss: Loss, watch: Watch = no_watch
    ) -> None:
        super().__init__(half, optimizer, seed, watch)
        self.loss = loss
        self._replies: deque[Reply] = deque()

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Stages 3 and 4: forward (eq. (6)), backward, and the update after the last part (eq. (7))."""
        self._replies.append(self.differentiate(part, smashed, labels))
        if part.last:
            self.update()

    def receive(self) -> Reply:
        """The next reply."""
        return self._replies.popleft()

    def differentiate(
        self, part: Part, smashed: Tensors, labels: Tensor, backward: Backward = backward_in_one_go
    ) -> Reply:
        """Stages 3 and 4 up to the update; ``backward`` may leave out what the reply does not need."""
        wanted = [tensor for tensor in smashed if tensor.requires_grad]
        with self.watch("server_forward"):
            # A copy, because a layer that works in place (an inplace ReLU, say) may not touch a leaf of the
            # graph, nor what the client has kept for its own backward pass.
            inputs = tuple(tensor.clone() for tensor in smashed)
            value, counted = self._loss(part, self.loss, labels, inputs[0] if len(inputs) == 1 else inputs)
        with self.watch("server_backward"):
            backward(counted, wanted)
        unused = tuple(place for place, tensor in enumerate(wanted) if tensor.grad is None)
        return Reply(tuple(map(_gradient, wanted)), float(value.detach()), unused)

    def update(self) -> None:
        """The rest of stage 4, due before the next mini-batch."""
        with self.watch("server_backward"):
            self._update()


def train_step(
    client: ClientSide,
    server: ServerStages | None,
    loss: Loss,
    first: int,
    inputs: Sequence[Tensor],
    labels: Tensor,
    *,
    micro_batches: int = 1,
    overlapped: bool = False,
) -> float:
    """One mini-batch of one client, whole (no server) or split, from part number ``first`` on; its loss."""
    parts = list(_parts(first, inputs, labels, micro_batches))
    if server is None:
        losses = [client.whole(part, mine, targets, loss) for part, mine, targets in parts]
    else:
        window = len(parts) if overlapped else 1
        losses = []
        for at in range(0, len(parts), window):
            losses += _exchange(client, server, parts[at : at + window])
    return sum(part.weight * value for (part, _, _), value in zip(parts, losses, strict=True))


_Piece = tuple[Part, Sequence[Tensor], Tensor]
"""A part with its inputs and labels."""


def _exchange(client: ClientSide, server: ServerStages, parts: Sequence[_Piece]) -> list[float]:
    """Send all these parts, then take all their replies; their losses."""
    for part, inputs, labels in parts:
        server.send(part, client.forward(part.number, inputs), labels)
    losses = []
    for part, _, _ in parts:
        reply = server.receive()
        client.backward(reply.gradients, reply.unused, last=part.last)
        losses.append(reply.loss)
    return losses


def _parts(first: int, inputs: Sequence[Tensor], labels: Tensor, micro_batches: int) -> Iterator[_Piece]:
    planned = parts_of(first, len(labels), micro_batches)
    if len(planned) == 1:
        yield planned[0][0], inputs, labels
        return
    start = 0
    for part, size in planned:
        rows = slice(start, start + size)
        yield part, [value[rows] for value in inputs], labels[rows]
        start += size


def parts_of(first: int, samples: int, micro_batches: int) -> list[tuple[Part, int]]:
    """The parts of a mini-batch of so many samples, from part number ``first`` on, each with its samples.

    >>> [(part.number, part.last, size) for part, size in parts_of(4, 3, 2)]
    [(4, False, 2), (5, True, 1)]
    """
    sizes = part_sizes(samples, micro_batches)
    end = len(sizes) - 1
    return [(Part(first + place, size / samples, place == end), size) for place, size in enumerate(sizes)]


def optimizer_factory(
    named: str | Callable[..., Any],
    lr: float,
    *,
    factor: float = 1.0,
    clip_value: float | None = None,
    **options: Any,
) -> MakeOptimizer:
    """An optimizer by name, of torch.optim or a user's own, for the parameters of either side.

    In Python it may be the class, or a function of the parameters that returns an optimizer. One that takes
    no ``lr`` has rates of its own, of which ``factor`` is what the schedule leaves. ``clip_value`` clips
    every element of the gradients, which means the same at every cut; the global norm would need the
    gradients of both sides at once.
    """
    found = find_optimizer(named)
    make = partial(found, lr=lr, **options) if takes_rate(found) else at_own_rate(found, factor, options)
    try:
        made = make([nn.Parameter(torch.zeros(1, 1))])
    except (TypeError, ValueError) as error:
        raise RunError(f"optimizer {named!r} refuses lr = {lr} with {options}: {error}") from error
    if not isinstance(made, Optimizer):
        raise RunError(
            f"optimizer {named!r} made {type(made).__name__}, but must make a torch.optim.Optimizer"
        )

    def build(parameters: list[nn.Parameter]) -> Optimizer:
        optimizer: Optimizer = make(parameters)
        if clip_value is not None:
            optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(parameters, clip_value))
        return optimizer

    return build


def _gradient(tensor: Tensor) -> Tensor:
    # A tensor may cross the cut and yet not influence the loss; its gradient is then zero.
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
