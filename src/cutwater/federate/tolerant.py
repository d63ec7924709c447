"""Aggregators that tolerate liars: whatever a minority of clients sends, it moves the model little.

They compare the updates of a round with each other, so these are set aside until the last is in
(:mod:`~cutwater.train.spool`): memory is a model and 32 MiB, whatever the number of clients, and the disk
holds one model a client. Every client has one vote, however many samples it says it has; the order of
arrival changes no bit.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.federate.aggregator_options import ByName, check_above_0, check_fraction
from cutwater.federate.executor import Update
from cutwater.model.traffic import Traffic
from cutwater.train.aggregate import Average
from cutwater.train.distance import Distance
from cutwater.train.expected import BadUpdate, Expected
from cutwater.train.session import State
from cutwater.train.spool import Spool

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class CoordinateMedian(ByName):
    """Of every weight the middle one of all clients (Yin et al. 2018): right while fewer than half lie."""

    NAME = "median"

    def collect(self, weights: State, memory: State, model: Traffic) -> "_Sorting":
        """No updates yet."""
        return _Sorting(weights, model, _middle)


@dataclass(frozen=True)
class TrimmedMean(ByName):
    """Of every weight the mean without the largest and the smallest (Yin et al. 2018)."""

    NAME = "trimmed"
    trim: float = 0.3
    """The part of the clients that is left out at either end; as many may lie."""

    def __post_init__(self) -> None:
        check_fraction(self, "trim", below=0.5)

    def collect(self, weights: State, memory: State, model: Traffic) -> "_Sorting":
        """No updates yet."""
        return _Sorting(weights, model, self._mean)

    def _mean(self, ordered: Numbers) -> Numbers:
        cut = math.floor(self.trim * len(ordered) + 1e-9)
        found: Numbers = ordered[cut : len(ordered) - cut].mean(axis=0)
        return found


@dataclass(frozen=True)
class ClippedMean(ByName):
    """The n_k-weighted average of updates none of which is longer than the round's middle one.

    w + Σ n_k·min(1, c / ‖Δ_k‖)·Δ_k / Σ n_k, where c is ``factor`` times the median of all ‖Δ_k‖. Weights that
    learn and buffers are clipped each by their own norm.
    """

    NAME = "clipped"
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_above_0(self, "factor")

    def collect(self, weights: State, memory: State, model: Traffic) -> "_Clipping":
        """No updates yet."""
        return _Clipping(weights, model, self.factor)


class _Held:
    """Updates of a round, checked and set aside."""

    def __init__(self, weights: State, model: Traffic) -> None:
        self.weights, self.model = weights, model
        self.expected = Expected(weights, model.never_learning)
        self.spool = Spool(self.expected)
        self.held: dict[str, tuple[int, int]] = {}
        """Of each client the place of its update, and n_k."""

    def add(self, update: Update) -> None:
        client = update.task.client
        self.expected.check(client, update.weights)
        if client in self.held:
            raise BadUpdate(client, "arrived twice")
        self.held[client] = (self.spool.put(update.weights), update.task.samples)

    def result(self) -> tuple[State, State]:
        if not self.held:
            raise RunError("no client's update is left to aggregate; the model stays as it was")
        try:
            return self.combined(), {}
        finally:
            self.spool.close()

    def combined(self) -> State:
        raise NotImplementedError

    def counted(self, name: str) -> Tensor:
        """A buffer of whole numbers: of every number the middle one, the lower of two."""
        return self.over_all(name, lambda ordered: ordered[(len(ordered) - 1) // 2])

    def over_all(self, name: str, combine: Callable[[Numbers], Numbers]) -> Tensor:
        """A tensor made of every client's, which are given in ascending order number by number."""
        kind = self.expected.kinds[name]
        made = torch.empty(kind.shape, dtype=kind.dtype)
        flat = made.view(-1)
        for place, rows in self.spool.columns(name):
            # A negative zero is no less than a zero, so a sort would leave them in the order of arrival.
            flat[place] = torch.from_numpy(combine(np.sort(rows + 0, axis=0))).to(kind.dtype)
        return made


class _Sorting(_Held):
    def __init__(self, weights: State, model: Traffic, combine: Callable[[Numbers], Numbers]) -> None:
        super().__init__(weights, model)
        self.combine = combine

    def combined(self) -> State:
        made: dict[str, Tensor] = {}
        for name in self.expected.kinds:
            first = self.model.first_name(name)
            if name in self.expected.fixed:
                made[name] = self.expected.fixed[name].detach().cpu()
            elif first in made:
                made[name] = made[first]
            elif name in self.expected.floats:
                made[name] = self.over_all(name, self.combine)
            else:
                made[name] = self.counted(name)
        return made


class _Clipping(_Held):
    def __init__(self, weights: State, model: Traffic, factor: float) -> None:
        super().__init__(weights, model)
        self.factor = factor
        floats = self.expected.floats
        learned = tuple(name for name in floats if model.first_name(name) in model.learned)
        self.groups = (learned, tuple(name for name in floats if name not in learned))
        self.distances = [Distance(weights, group) for group in self.groups]
        self.norms: dict[str, tuple[float, ...]] = {}

    def add(self, update: Update) -> None:
        super().add(update)
        norms = tuple(distance.of(update.weights) for distance in self.distances)
        self.norms[update.task.client] = norms

    def combined(self) -> State:
        limits = [self.factor * median(norms) for norms in zip(*self.norms.values(), strict=True)]
        average = Average(self.weights, self.expected.fixed)
        counters = {name: self.counted(name) for name in self.expected.counters}
        for client, (place, samples) in self.held.items():
            state = dict(self.spool.get(place)) | counters
            for group, norm, limit in zip(self.groups, self.norms[client], limits, strict=True):
                if norm > limit:
                    state |= {name: self._drawn_back(name, state[name], limit / norm) for name in group}
            average.add(client, samples, state)
        return average.result()

    def _drawn_back(self, name: str, tensor: Tensor, part: float) -> Tensor:
        before = self.weights[name].detach().cpu()
        return (before.double() + part * (tensor.double() - before.double())).to(tensor.dtype)


def _middle(ordered: Numbers) -> Numbers:
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return np.asarray(low + (high - low) / 2)
