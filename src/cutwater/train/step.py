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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cutwater.base.errors import RunError
from cutwater.model.at_cut import as_tuple, cut_loose, one_or_all
from cutwater.model.precision import autocast
from cutwater.model.randomness import LOSS, RandomStream, enter_layer
from cutwater.plan.session import part_sizes
from cutwater.train.manner import AS_IT_IS, Manner, Rated
from cutwater.train.optimizers import at_own_rate, find_optimizer, takes_rate

Loss = Callable[[Any, Tensor], Tensor]
"""(model output, labels) → mean loss of the mini-batch."""
MakeOptimizer = Callable[[list[nn.Parameter]], Optimizer]
Tensors = tuple[Tensor, ...]
Backward = Callable[[Tensor, Sequence[Tensor]], object]
"""Goes back from a loss, at least as far as the tensors whose gradients somebody waits for."""
Watch = Callable[[str], AbstractContextManager[object]]
"""Given the name of a stage, a context that is open while the stage runs (a stopwatch, say)."""


_NOTHING = nullcontext()


def no_watch(stage: str) -> AbstractContextManager[object]:
    """Watch nothing."""
    return _NOTHING


def backward_in_one_go(value: Tensor, wanted: Sequence[Tensor]) -> None:
    """All gradients, as torch has them."""
    torch.autograd.backward(value)


class Part(NamedTuple):
    """A part of a mini-batch (a micro-batch), or all of it."""

    number: int
    """Counted through the session, from 0; its random streams begin from it."""
    weight: float = 1.0
    """Its samples over the mini-batch's."""
    last: bool = True
    """Whether it ends the mini-batch: both sides update after it."""
    norm: float | None = None
    """What :meth:`ServerStages.clip` is told of the mini-batch before, where it travels with this part."""


@dataclass(frozen=True)
class Reply:
    """What comes back from the server for a part."""

    gradients: Tensors
    """G: one for each smashed tensor that requires a gradient, in order."""
    loss: float
    unused: tuple[int, ...] = ()
    """Which of them are zero because the loss does not depend on the tensor at all."""
    norm: float = 0.0
    """After the last part, the sum of squares of the server's gradients, where they are clipped by it."""


class ServerStages(Protocol):
    """Stages 2 to 5 as the client sees them: parts go in, and replies come out in the same order."""

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Take the smashed data of a part; all parts of a mini-batch may be sent before one is answered."""

    def receive(self) -> Reply:
        """The reply to the first part that is not answered yet."""

    def clip(self, norm: float) -> None:
        """Take the sum of squares of all gradients of the mini-batch, of both sides, and update."""

    def step(self, number: int, smashed: Tensors, labels: Tensor) -> Reply:
        """A mini-batch in one part: send it and wait for its reply."""
        self.send(Part(number), smashed, labels)
        return self.receive()


class Side:
    """A half and the optimizer of its parameters."""

    def __init__(
        self,
        half: nn.Module,
        optimizer: MakeOptimizer,
        seed: int,
        watch: Watch = no_watch,
        manner: Manner = AS_IT_IS,
    ) -> None:
        self.half, self.seed, self.watch, self.manner = half, seed, watch, manner
        trained = [parameter for parameter in half.parameters() if parameter.requires_grad]
        # torch refuses to make an optimizer of nothing, yet a first layer may well have no parameters.
        self.optimizer = optimizer(trained) if trained else None
        rated = self.optimizer is not None and manner.rates is not None
        self._rated = Rated(self.optimizer, manner.rates) if rated else None  # type: ignore[arg-type]
        half.train()

    @property
    def step_of_rates(self) -> int:
        """Where the schedule of its learning rates is."""
        return self._rated.step if self._rated is not None else 0

    @step_of_rates.setter
    def step_of_rates(self, step: int) -> None:
        if self._rated is not None:
            self._rated.step = step

    def _run(self, step: int, *inputs: Any) -> Any:
        with RandomStream(self.seed, step), autocast(self.manner.autocast, inputs):
            return self.half(*inputs)

    def _loss(
        self, part: Part, loss: Loss, labels: Tensor, *inputs: Any, last: Callable[..., Any] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss of a part, and what it adds to that of the mini-batch; ``last`` are the last layers."""
        with RandomStream(self.seed, part.number), autocast(self.manner.autocast, (labels,)):
            output = (last or self.half)(*inputs)
            enter_layer(LOSS)
            value = loss(output, labels)
        return value, value if part.weight == 1.0 else value * part.weight

    def _norm(self, before: float = 0.0) -> float:
        """The sum of squares of this side's gradients, added to that of the layers behind it."""
        return 0.0 if self.manner.clip is None else self.manner.clip.add(before, self.half.named_parameters())

    def _update(self, norm: float = 0.0) -> None:
        if self.manner.clip is not None:
            self.manner.clip.apply(norm, self.half.named_parameters())
        if self._rated is not None:
            self._rated.next_step()
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class ClientSide(Side):
    """w^C of one client in a session."""

    @cached_property
    def _kept(self) -> deque[Tensors]:
        """Smashed data with the client's graph behind it, of parts that are not answered yet."""
        return deque()

    def forward(self, number: int, inputs: Sequence[Tensor]) -> Tensors:
        """Stage 1: S = fp(x; w^C) (eq. (5)), cut loose from the client's own graph."""
        with self.watch("client_forward"):
            output = self._run(number, *inputs)
        self._kept.append(as_tuple(output))
        return tuple(map(cut_loose, self._kept[-1]))

    def backward(
        self,
        gradients: Sequence[Tensor],
        unused: Sequence[int] = (),
        *,
        last: bool = True,
        more: Sequence[tuple[Tensor, Tensor]] = (),
        norm: float = 0.0,
    ) -> float:
        """Stage 6: backward through w^C from the gradients G, and the update after the last part (eq. (8)).

        ``norm`` is the server's, where gradients are clipped by it; what is returned is that of both.

        From what the loss does not depend on nothing goes back: a weight without a gradient stays as it is,
        where one whose gradient is zero would still decay. ``more`` are weights with gradients that they have
        already from later layers: they are added up as the backward pass of the whole model does it.
        """
        with self.watch("client_backward"):
            go_back([t for t in self._kept.popleft() if t.requires_grad], gradients, unused, more)
            if last:
                norm = self._norm(norm)
                self._update(norm)
        return norm

    def exchange(self, server: Any, parts: Sequence["Piece"], loss: Loss) -> list[float]:
        """Send all these parts, then take all their replies; their losses."""
        for part, inputs, labels in parts:
            server.send(part, self.forward(part.number, inputs), labels)
        losses = []
        for part, _, _ in parts:
            reply = server.receive()
            norm = self.backward(reply.gradients, reply.unused, last=part.last, norm=reply.norm)
            if part.last and self.manner.clip is not None:
                server.clip(norm)
            losses.append(reply.loss)
        return losses

    def whole(self, part: Part, inputs: Sequence[Tensor], labels: Tensor, loss: Loss) -> float:
        """A part at a client that holds the whole model (FedAvg, eq. (1))."""
        with self.watch("client_forward"):
            value, counted = self._loss(part, loss, labels, *inputs)
        with self.watch("client_backward"):
            torch.autograd.backward(counted)
            if part.last:
                self._update(self._norm())
        return float(value.detach())


class AtServer(Side):
    """Layers of one client in a session, at the server; their update may wait for the norm of gradients."""

    least: float | None = None
    """What an update that waits for the norm of all gradients knows: that of the layers from here on."""

    @property
    def waiting(self) -> bool:
        """Whether an update waits for the norm of the client's gradients."""
        return self.least is not None

    def check_told(self) -> None:
        """Refuse to begin a mini-batch before the one before is over."""
        if self.waiting:
            raise RunError("a mini-batch was begun before the norm of the gradients of the last was told")

    def clip(self, norm: float) -> None:
        """The update, which waited for the norm of the client's gradients."""
        if self.least is None or norm < self.least:
            raise RunError(
                f"{norm} was told as the sum of squares of all gradients, but the server's alone make "
                f"{self.least}"
            )
        self.least = None
        self.update(norm)

    def update(self, norm: float = 0.0) -> None:
        """The rest of the server's backward stage, due before the next mini-batch."""
        with self.watch("server_backward"):
            self._update(norm)


class ServerSide(AtServer, ServerStages):
    """w^S of one client in a session, at the server."""

    def __init__(
        self,
        half: nn.Module,
        optimizer: MakeOptimizer,
        seed: int,
        loss: Loss,
        watch: Watch = no_watch,
        manner: Manner = AS_IT_IS,
    ) -> None:
        super().__init__(half, optimizer, seed, watch, manner)
        self.loss = loss
        self._replies: deque[Reply] = deque()

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Stages 3 and 4: forward (eq. (6)), backward, and the update after the last part (eq. (7))."""
        self._replies.append(self.differentiate(part, smashed, labels))
        if part.last and self.manner.clip is None:
            self.update()

    def receive(self) -> Reply:
        """The next reply."""
        return self._replies.popleft()

    def differentiate(
        self, part: Part, smashed: Tensors, labels: Tensor, backward: Backward = backward_in_one_go
    ) -> Reply:
        """Stages 3 and 4 up to the update; ``backward`` may leave out what the reply does not need."""
        self.check_told()
        wanted = [tensor for tensor in smashed if tensor.requires_grad]
        with self.watch("server_forward"):
            # A copy, because a layer that works in place (an inplace ReLU, say) may not touch a leaf of the
            # graph, nor what the client has kept for its own backward pass.
            inputs = tuple(tensor.clone() for tensor in smashed)
            value, counted = self._loss(part, self.loss, labels, one_or_all(inputs))
        with self.watch("server_backward"):
            backward(counted, wanted)
        unused = tuple(place for place, tensor in enumerate(wanted) if tensor.grad is None)
        norm = self._norm() if part.last else 0.0
        self.least = norm if part.last and self.manner.clip is not None else None
        return Reply(tuple(map(gradient_of, wanted)), float(value.detach()), unused, norm)


def go_back(
    made: Sequence[Tensor],
    gradients: Sequence[Tensor],
    unused: Sequence[int] = (),
    more: Sequence[tuple[Tensor, Tensor]] = (),
) -> None:
    """Backward from what crossed a cut and requires gradients, but for what the loss does not depend on.

    ``more`` are weights with gradients that they have already.
    """
    check_like(gradients, made)
    used = [place for place in range(len(made)) if place not in unused]
    roots = [*((made[place], gradients[place]) for place in used), *more]
    if roots:
        torch.autograd.backward([root for root, _ in roots], [gradient for _, gradient in roots])


def check_like(gradients: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Refuse gradients that are not those of these tensors: sizes that vary are known only now."""
    shapes, wanted = [tuple(one.shape) for one in gradients], [tuple(one.shape) for one in tensors]
    if shapes != wanted:
        raise RunError(f"gradients of shapes {shapes} came for tensors of shapes {wanted}")


def train_step(
    client: ClientSide,
    server: object | None,
    loss: Loss,
    first: int,
    inputs: Sequence[Tensor],
    labels: Tensor,
    *,
    micro_batches: int = 1,
    overlapped: bool = False,
) -> float:
    """One mini-batch of one client, whole (no server) or split, from part number ``first`` on; its loss.

    The server is what the client's side exchanges parts with: :class:`ServerStages`, or those of the middle
    where the tail stays with the client (:mod:`cutwater.train.three_parts`).
    """
    parts = _parts(first, inputs, labels, micro_batches)
    if server is None:
        losses = [client.whole(part, mine, targets, loss) for part, mine, targets in parts]
    else:
        window = len(parts) if overlapped else 1
        losses = []
        for at in range(0, len(parts), window):
            losses += client.exchange(server, parts[at : at + window], loss)
    return sum(part.weight * value for (part, _, _), value in zip(parts, losses, strict=True))


Piece = tuple[Part, Sequence[Tensor], Tensor]
"""A part with its inputs and labels."""


def _parts(first: int, inputs: Sequence[Tensor], labels: Tensor, micro_batches: int) -> list[Piece]:
    if micro_batches == 1:
        return [(Part(first), inputs, labels)]
    parts, start = list[Piece](), 0
    for part, size in parts_of(first, len(labels), micro_batches):
        rows = slice(start, start + size)
        parts.append((part, [value[rows] for value in inputs], labels[rows]))
        start += size
    return parts


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
    every element of the gradients; clipping by their norm, which both sides do together, is no business of
    an optimizer (see :mod:`cutwater.train.manner`).
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


def gradient_of(tensor: Tensor) -> Tensor:
    """What came back to a tensor."""
    # A tensor may cross the cut and yet not influence the loss; its gradient is then zero.
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
