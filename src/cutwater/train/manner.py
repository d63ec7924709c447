"""What both sides of a cut do alike: the learning rate of each step, clipping by the norm, and autocast.

The global norm needs the gradients of both sides, and costs no message. Squared norms of parameters are
added up from the last layer to the first, in double precision. The server sends the sum of its layers with
the gradients; the client goes on adding its own, which makes the same sum, bit for bit, as where all layers
are at one place; and what it comes to goes up with the next smashed data, or with the session's end, before
which the server updates nothing. Where the model's tail is at the client, too, the sum begins there, and goes
up with the gradients of what the tail was given.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from cutwater.base.errors import RunError

Rates = Callable[[int], float]
"""The factor of the learning rate in a step of the session, counted from 0."""
_LITTLE = 1e-6
"""Added to the norm before it divides, as torch does."""
Named = Iterable[tuple[str, nn.Parameter]]
"""Parameters with their names."""


@dataclass(frozen=True)
class Clip:
    """Clipping by the global norm."""

    most: float
    places: Mapping[str, int]
    """The place of every parameter among all of the model's, by layers and within them."""

    def add(self, before: float, named: Named) -> float:
        """The sum of squares of these parameters' gradients, added to that of the layers behind them."""
        total = before
        for tensor in reversed(self._gradients(named)):
            norm = float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
            total += norm * norm
        if not math.isfinite(total):
            raise RunError(
                f"the norm of the gradients is {total}: lower the learning rate or check the client's data"
            )
        return total

    def apply(self, total: float, named: Named) -> None:
        """Scale the gradients of these parameters down, given the sum of squares of all."""
        factor = self.most / (math.sqrt(total) + _LITTLE)
        if factor < 1.0:
            for tensor in self._gradients(named):
                tensor.mul_(factor)

    def _gradients(self, named: Named) -> list[Tensor]:
        placed = [(self.places[name], one.grad) for name, one in named]
        found = sorted(((place, grad) for place, grad in placed if grad is not None), key=lambda one: one[0])
        return [grad for _, grad in found]


@dataclass(frozen=True)
class Manner:
    """How a session trains, on both sides."""

    rates: Rates | None = None
    """None where a session has one learning rate."""
    clip: Clip | None = None
    autocast: str | None = None
    """The precision that forward passes and the loss are computed in; see :mod:`cutwater.model.precision`."""


AS_IT_IS = Manner()


class Rated:
    """An optimizer's learning rates, set for each step."""

    def __init__(self, optimizer: Optimizer, rates: Rates) -> None:
        self._optimizer, self._rates, self.step = optimizer, rates, 0
        self._first = [group["lr"] for group in optimizer.param_groups]

    def next_step(self) -> None:
        """Set them for the step that is next."""
        factor, self.step = self._rates(self.step), self.step + 1
        for group, rate in zip(self._optimizer.param_groups, self._first, strict=True):
            group["lr"] = rate * factor
