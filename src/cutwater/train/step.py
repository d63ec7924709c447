"""One mini-batch of split training: the six stages of Sec. III-B, Phase 3.

(1) client-side forward, (2) smashed data and labels up, (3) server-side forward, (4) server-side backward and
update, (5) gradients down, (6) client-side backward and update. This module knows no transport: whoever plays
the server (:class:`ServerSide` in this process, or a stand-in that talks to one elsewhere) has one method.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cutwater.base.errors import RunError
from cutwater.base.usercode import find
from cutwater.model.randomness import LOSS, RandomStream, enter_layer

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


@dataclass(frozen=True)
class Reply:
    """What comes back from the server after a mini-batch."""

    gradients: Tensors
    """G: one for each smashed tensor that requires a gradient, in order."""
    loss: float
    unused: tuple[int, ...] = ()
    """Which of them are zero because the loss does not depend on the tensor at all."""


class ServerStages(Protocol):
    """Stages 2 to 5 as the client sees them."""

    def step(self, step: int, smashed: Tensors, labels: Tensor) -> Reply:
        """Take the smashed data of a step and answer with its gradients."""


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

    def _loss(self, step: int, loss: Loss, labels: Tensor, *inputs: Any) -> Tensor:
        with RandomStream(self.seed, step):
            output = self.half(*inputs)
            enter_layer(LOSS)
            return loss(output, labels)

    def _update(self) -> None:
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class ClientSide(_Side):
    """w^C of one client in a session."""

    def forward(self, step: int, inputs: Sequence[Tensor]) -> Tensors:
        """Stage 1: S = fp(x; w^C) (eq. (5)), cut loose from the client's own graph."""
        with self.watch("client_forward"):
            output = self._run(step, *inputs)
        self._kept = output if isinstance(output, tuple) else (output,)
        return tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in self._kept)

    def backward(self, gradients: Sequence[Tensor], unused: Sequence[int] = ()) -> None:
        """Stage 6: backward through w^C from the gradients G, and the update (eq. (8)).

        From what the loss does not depend on nothing goes back: a weight without a gradient stays as it is,
        where one whose gradient is zero would still decay.
        """
        with self.watch("client_backward"):
            kept = [t for t in self._kept if t.requires_grad]
            used = [place for place in range(len(kept)) if place not in unused]
            if used:
                torch.autograd.backward([kept[place] for place in used], [gradients[place] for place in used])
            del self._kept, kept
            self._update()

    def whole(self, step: int, inputs: Sequence[Tensor], labels: Tensor, loss: Loss) -> float:
        """The step of a client that holds the whole model (FedAvg, eq. (1))."""
        with self.watch("client_forward"):
            value = self._loss(step, loss, labels, *inputs)
        with self.watch("client_backward"):
            torch.autograd.backward(value)
            self._update()
        return float(value.detach())


class ServerSide(_Side):
    """w^S of one client in a session, at the server."""

    def __init__(
        self, half: nn.Module, optimizer: MakeOptimizer, seed: int, loss: Loss, watch: Watch = no_watch
    ) -> None:
        super().__init__(half, optimizer, seed, watch)
        self.loss = loss

    def step(self, step: int, smashed: Tensors, labels: Tensor) -> Reply:
        """Stages 3 and 4: forward (eq. (6)), backward and update (eq. (7))."""
        reply = self.differentiate(step, smashed, labels)
        self.update()
        return reply

    def differentiate(
        self, step: int, smashed: Tensors, labels: Tensor, backward: Backward = backward_in_one_go
    ) -> Reply:
        """Stages 3 and 4 up to the update; ``backward`` may leave out what the reply does not need."""
        wanted = [tensor for tensor in smashed if tensor.requires_grad]
        with self.watch("server_forward"):
            # A copy, because a layer that works in place (an inplace ReLU, say) may not touch a leaf of the
            # graph, nor what the client has kept for its own backward pass.
            inputs = tuple(tensor.clone() for tensor in smashed)
            value = self._loss(step, self.loss, labels, inputs[0] if len(inputs) == 1 else inputs)
        with self.watch("server_backward"):
            backward(value, wanted)
        unused = tuple(place for place, tensor in enumerate(wanted) if tensor.grad is None)
        return Reply(tuple(map(_gradient, wanted)), float(value.detach()), unused)

    def update(self) -> None:
        """The rest of stage 4, due before the next step."""
        with self.watch("server_backward"):
            self._update()


def train_step(
    client: ClientSide,
    server: ServerStages | None,
    loss: Loss,
    step: int,
    inputs: Sequence[Tensor],
    labels: Tensor,
) -> float:
    """One mini-batch of one client, whole (no server) or split; the loss."""
    if server is None:
        return client.whole(step, inputs, labels, loss)
    smashed = client.forward(step, inputs)
    reply = server.step(step, smashed, labels)
    client.backward(reply.gradients, reply.unused)
    return reply.loss


def optimizer_factory(
    name: str, lr: float, *, clip_value: float | None = None, **options: Any
) -> MakeOptimizer:
    """An optimizer by name, of torch.optim or a user's own, for the parameters of either side.

    ``clip_value`` clips every element of the gradients, which means the same at every cut; the global norm
    would need the gradients of both sides at once.
    """
    make = _own_optimizer(name) if ":" in name else _torchs_optimizer(name)
    try:
        make([nn.Parameter(torch.zeros(1, 1))], lr=lr, **options)
    except (TypeError, ValueError) as error:
        raise RunError(f"optimizer {name!r} refuses lr = {lr} with {options}: {error}") from error

    def build(parameters: list[nn.Parameter]) -> Optimizer:
        optimizer: Optimizer = make(parameters, lr=lr, **options)
        if clip_value is not None:
            optimizer.register_step_pre_hook(lambda *_: nn.utils.clip_grad_value_(parameters, clip_value))
        return optimizer

    return build


def _torchs_optimizer(name: str) -> Callable[..., Optimizer]:
    known = {key.lower(): value for key, value in vars(torch.optim).items() if _is_optimizer(value)}
    if name.lower() in _NOT_SEPARABLE:
        raise RunError(f"optimizer {name!r} can't be used: {_NOT_SEPARABLE[name.lower()]}")
    if name.lower() not in known:
        raise RunError(
            f"optimizer {name!r} is unknown: use one of {', '.join(sorted(known))}, or your own as "
            "package.module:Class"
        )
    make: Callable[..., Optimizer] = known[name.lower()]
    return make


def _own_optimizer(name: str) -> Callable[..., Optimizer]:
    found = find(name, "optimizer", RunError)
    if not _is_optimizer(found):
        raise RunError(f"optimizer {name!r} is {found!r}, but must be a class of torch.optim.Optimizer")
    return found


_NOT_SEPARABLE = {
    "lbfgs": "its line search needs the loss and the gradients of both sides at once; use sgd or adam",
    "sparseadam": "it takes sparse gradients only; use adam",
}


def _is_optimizer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer


def _gradient(tensor: Tensor) -> Tensor:
    # A tensor may cross the cut and yet not influence the loss; its gradient is then zero.
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
