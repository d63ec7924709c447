"""Phase 5: what becomes of a round's updates (eq. (2)), by name or of a user's own.

An aggregator is a pure function taken apart: global weights and its own memory go in, updates are added one
by one, in any order, and new weights and a new memory come out. The memory is tensors by name, so that a
checkpoint holds it and a resumed run goes on to the same bits. Those that tolerate liars are in ``tolerant``.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cutwater.base.errors import RunError, suggest
from cutwater.base.usercode import find, told
from cutwater.federate.aggregator_options import ByName, check_above_0, check_fraction
from cutwater.federate.executor import Update
from cutwater.federate.tolerant import ClippedMean, CoordinateMedian, TrimmedMean
from cutwater.model.traffic import Traffic
from cutwater.train.aggregate import Average
from cutwater.train.expected import BadUpdate
from cutwater.train.session import State

__all__ = ["AGGREGATORS", "Aggregator", "BadUpdate", "Collection", "find_aggregator"]


class Collection(Protocol):
    """The updates of one round, as they come."""

    def add(self, update: Update) -> None:
        """Take in an update, or refuse it as a whole with a :class:`BadUpdate` that names its client."""

    def result(self) -> tuple[State, State]:
        """The next global weights, and what is to be remembered; asked for once, after the last update."""


class Aggregator(Protocol):
    """Makes the next global weights of a round's updates."""

    def start(self, weights: State) -> State:
        """What it remembers before the first round: tensors by name."""

    def collect(self, weights: State, memory: State, model: Traffic) -> Collection:
        """Begin a round from these global weights; ``model`` tells which of them learn."""


@dataclass(frozen=True)
class WeightedAverage(ByName):
    """FedAvg's average, weighted by n_k and exact: the same bits in any order (see ``train.aggregate``)."""

    NAME = "average"

    def collect(self, weights: State, memory: State, model: Traffic) -> Collection:
        """An empty average."""
        return _Averaging(weights, model)


class _Averaging:
    def __init__(self, weights: State, model: Traffic) -> None:
        self.average = Average(weights, model.never_learning)

    def add(self, update: Update) -> None:
        self.average.add(update.task.client, update.task.samples, update.weights)

    def result(self) -> tuple[State, State]:
        return self.average.result(), {}


class _ServerOptimizer(ByName):
    """The average of a round as a step of an optimizer at the server (Reddi et al. 2021).

    Δ is the average less the weights that the round began with. Only what learns is stepped; buffers are
    averaged. Moments begin at zero. It computes in float64 and keeps the types of the weights.
    """

    def collect(self, weights: State, memory: State, model: Traffic) -> Collection:
        """An empty average, to be stepped by."""
        return _Stepping(self, weights, memory, model)

    def step(self, delta: Tensor, moments: tuple[Tensor, ...], number: int) -> tuple[Tensor, ...]:
        """By how much the weights move in the ``number``-th step, and the new moments."""
        raise NotImplementedError

    MOMENTS: ClassVar[tuple[str, ...]]


class _Stepping(_Averaging):
    def __init__(self, optimizer: _ServerOptimizer, weights: State, memory: State, model: Traffic) -> None:
        super().__init__(weights, model)
        self._optimizer, self._weights, self._memory, self._model = optimizer, weights, memory, model
        for name in model.learned:
            for moment in optimizer.MOMENTS:
                held = memory.get(f"{moment}.{name}")
                if held is not None and held.shape != weights[name].shape:
                    raise RunError(
                        f"what the aggregator remembers of {name!r} has the shape {list(held.shape)}, but "
                        f"must have {list(weights[name].shape)}: go on from this run's own checkpoint"
                    )

    def result(self) -> tuple[State, State]:
        averaged = self.average.result()
        number = int(self._memory.get("steps", torch.zeros(())).sum()) + 1
        weights, memory = dict(averaged), {"steps": torch.tensor(number)}
        for name in self._model.learned:
            before, average = self._weights[name].detach().cpu(), averaged[name]
            keys = [f"{moment}.{name}" for moment in self._optimizer.MOMENTS]
            moments = (self._memory.get(key, torch.zeros_like(before)).double() for key in keys)
            delta = average.double() - before.double()
            move, *after = self._optimizer.step(delta, tuple(moments), number)
            weights[name] = (before.double() + move).to(before.dtype)
            memory |= {key: moment.to(before.dtype) for key, moment in zip(keys, after, strict=True)}
        weights |= {name: weights[first] for name, first in self._model.aliases.items()}
        return weights, memory


@dataclass(frozen=True)
class FedAvgM(_ServerOptimizer):
    """FedAvg with momentum at the server (Hsu et al. 2019): m ← β·m + Δ, w ← w + η·m."""

    NAME = "fedavgm"
    lr: float = 1.0
    """η."""
    momentum: float = 0.9
    """β."""

    MOMENTS = ("m",)

    def __post_init__(self) -> None:
        check_above_0(self, "lr")
        check_fraction(self, "momentum")

    def step(self, delta: Tensor, moments: tuple[Tensor, ...], number: int) -> tuple[Tensor, ...]:
        """See :class:`FedAvgM`."""
        m = self.momentum * moments[0] + delta
        return self.lr * m, m


@dataclass(frozen=True)
class FedAdam(_ServerOptimizer):
    """Adam at the server (Reddi et al. 2021), with the bias correction that Flower's has.

    m ← β₁·m + (1-β₁)·Δ, v ← β₂·v + (1-β₂)·Δ², w ← w + η·√(1-β₂^(t+1)) / (1-β₁^(t+1)) · m / (√v + τ).
    """

    NAME = "fedadam"
    lr: float = 0.1
    """η."""
    beta_1: float = 0.9
    beta_2: float = 0.99
    tau: float = 1e-3
    """τ: how far it adapts; the smaller, the further."""

    MOMENTS = ("m", "v")

    def __post_init__(self) -> None:
        check_above_0(self, "lr", "tau")
        check_fraction(self, "beta_1", "beta_2")

    def step(self, delta: Tensor, moments: tuple[Tensor, ...], number: int) -> tuple[Tensor, ...]:
        """See :class:`FedAdam`."""
        m = self.beta_1 * moments[0] + (1 - self.beta_1) * delta
        v = self.beta_2 * moments[1] + (1 - self.beta_2) * delta.square()
        corrected = math.sqrt(1 - self.beta_2 ** (number + 1)) / (1 - self.beta_1 ** (number + 1))
        return self.lr * corrected * m / (v.sqrt() + self.tau), m, v


AGGREGATORS: Mapping[str, Callable[..., Aggregator]] = {
    made.NAME: made
    for made in (WeightedAverage, FedAvgM, FedAdam, CoordinateMedian, TrimmedMean, ClippedMean)
}
"""Aggregators by name, as ``aggregator`` in [train] says them."""


def find_aggregator(name: str, options: Mapping[str, object]) -> Aggregator:
    """An aggregator by name, or a user's own as ``package.module:Class``, made with these options."""
    if ":" in name:
        make = find(name, "aggregator", RunError)
    elif name in AGGREGATORS:
        make = AGGREGATORS[name]
        known = [field.name for field in fields(make)]  # type: ignore[arg-type] # ours are dataclasses
        for key in options:
            if key not in known:
                raise RunError(
                    f"aggregator {name!r} has no option {key!r}; "
                    + (suggest(str(key), known) if known else "it takes none")
                )
    else:
        raise RunError(
            f"aggregator is {name!r}; {suggest(name, list(AGGREGATORS))}; your own is package.module:Class"
        )
    try:
        made: Aggregator = make(**options)
    except RunError:
        raise
    except Exception as error:  # whatever a user's class makes of its options
        raise RunError(f"aggregator {name!r} can't be made with {dict(options)} ({told(error)})") from error
    return made
