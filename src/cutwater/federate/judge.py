"""Updates are judged before they count: against the global model, and against the others of their round.

Each rule looks at one number of an update. Up to what the global model alone allows, an update is taken in at
once, as it comes; only what is beyond that waits until the round is over (:mod:`~cutwater.train.spool`: on
disk, so memory stays that of one update) and is held against the median of all. So a round of ordinary
updates costs one more look at each and no room, and who is refused depends on the updates alone, not on the
order in which they come. Where fewer than half lie, the median is no liar's, and nobody is refused for what
another did. Rounds of one or two updates have no majority: there the global model alone is asked.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutwater.federate.aggregators import Collection
from cutwater.federate.executor import Update
from cutwater.model.traffic import Traffic
from cutwater.scenario.judging import JudgeSettings
from cutwater.train.distance import Distance, TensorMeans
from cutwater.train.expected import BadUpdate, Expected
from cutwater.train.session import State
from cutwater.train.spool import Spool

_VARIANCE, _MEAN = "running_var", "running_mean"
_MAJORITY = 3
"""Updates of which the median is more than one client's word."""


class Refused(BadUpdate):
    """An update that breaks a rule of [judge]."""


class Finding(NamedTuple):
    """One number of an update, and what is allowed of it."""

    what: str
    """What it is, in words that go on a sentence about an update."""
    value: float
    free: float
    """Up to here nobody asks what the others did."""
    factor: float
    """Beyond that it may be so many times the median of the others'."""
    key: str
    """The rule, as [judge] names it."""
    work: int
    """What the client did for it, in proportion to which it may be more than the others'."""
    alone: float = math.inf
    """What it may be where there is no majority to ask."""

    @property
    def suspicious(self) -> bool:
        """Whether the others must be asked."""
        return self.value > self.free


class Judged:
    """The updates of a round on their way to an aggregator, which sees those that may count."""

    def __init__(
        self,
        settings: JudgeSettings,
        collection: Collection,
        weights: State,
        model: Traffic,
        part_sizes: Callable[[str], Sequence[Sequence[int]]],
    ) -> None:
        """Of a round that starts from these weights; ``part_sizes`` are those of a client's mini-batches."""
        self._settings, self._collection, self._weights = settings, collection, weights
        self._part_sizes, self._model = part_sizes, model
        self._expected = Expected(weights, model.never_learning)
        self._spool = Spool(self._expected)
        self._findings: dict[str, list[Finding]] = {}
        """Of every update that may count."""
        self._aside: dict[str, tuple[int, Update]] = {}
        """Those that wait for the others: the place of each, and all of it but its weights."""
        moving = [name for name in self._expected.floats if name not in model.aliases]
        variances = [name for name in moving if _kind(name) == _VARIANCE]
        layers = {name.removesuffix(_VARIANCE) for name in variances}
        means = [name for name in moving if _kind(name) == _MEAN and name.removesuffix(_MEAN) in layers]
        self._variances = TensorMeans(weights, [name for name in variances if weights[name].numel()])
        self._means = TensorMeans(weights, [name for name in means if weights[name].numel()])
        self._means_before = self._means.numbers(weights)
        usual = self._variances.means(self._variances.numbers(weights))
        self._usual = dict(zip(self._variances.names, usual, strict=True))
        """The mean of each running variance in the global model."""
        known = {*variances, *means}
        self._moved = Distance(weights, [name for name in moving if name not in known])

    def add(self, update: Update) -> None:
        """Take in an update, set it aside until the others are known, or refuse it with a BadUpdate."""
        client = update.task.client
        if not self._settings.active:
            self._collection.add(update)
            return
        if client in self._findings:
            raise BadUpdate(client, "arrived twice")
        self._expected.check_kinds(client, update.weights)
        found = self._measured(client, update.weights)
        if any(finding.suspicious for finding in found):
            self._expected.check(client, update.weights)
            self._aside[client] = (self._spool.put(update.weights), update.without_weights())
        else:
            self._collection.add(update)
        self._findings[client] = found

    def settle(self) -> Iterator[BadUpdate]:
        """After the last update: hold those that waited against the others; those that are refused."""
        try:
            for client in sorted(self._aside):
                try:
                    self._verdict(client)
                    place, update = self._aside[client]
                    self._collection.add(replace(update, weights=self._spool.get(place)))
                except BadUpdate as error:
                    yield error
        finally:
            self._spool.close()

    def result(self) -> tuple[State, State]:
        """What the aggregator makes of the updates that count."""
        return self._collection.result()

    def _measured(self, client: str, state: State) -> list[Finding]:
        moved, norm = self._moved.of(state), self._moved.norm
        rules, steps = self._settings, self._part_sizes(client)
        if norm > 0 and moved > rules.largest_norm * norm:
            raise Refused(
                client,
                f"moves the weights by a norm of {moved:.3g}, {moved / norm:.3g} times that of the "
                f"global model ({norm:.3g}), but largest_norm of [judge] allows at most "
                f"{rules.largest_norm * norm:.3g}",
            )
        found = [
            Finding(
                "moves the weights by a norm of",
                moved,
                rules.norm_of_model * norm,
                rules.norm_of_others,
                "norm_of_others",
                len(steps),
            )
        ]
        found += self._of_variances(client, state, len(steps))
        found += self._of_means(state, len(steps))
        parts = sum(map(len, steps))  # a layer counts each micro-batch once
        for name in self._expected.counters:
            found += self._of_whole_numbers(client, name, state[name], parts)
        return found

    def _of_variances(self, client: str, state: State, steps: int) -> list[Finding]:
        """Of normalisation layers: their running variances."""
        of, numbers = self._variances, self._variances.numbers(state)
        for name, least in zip(of.names, of.least(numbers), strict=True):
            if least < 0:
                raise Refused(client, f"has {least:.3g} in {name!r}, but a variance is never negative")
        return [
            self._of_statistics(f"has {name!r} at a mean of", value, name, steps)
            for name, value in zip(of.names, of.means(numbers), strict=True)
        ]

    def _of_means(self, state: State, steps: int) -> list[Finding]:
        """Of normalisation layers: how far their running means went, squared, as a variance is."""
        far = np.square(self._means.numbers(state) - self._means_before)
        return [
            self._of_statistics(f"moves {name!r} by a mean square of", value, _variance_of(name), steps)
            for name, value in zip(self._means.names, self._means.means(far), strict=True)
        ]

    def _of_statistics(self, what: str, value: float, variance: str, steps: int) -> Finding:
        factor, usual = self._settings.statistics, self._usual.get(variance, 0.0)
        return Finding(what, value, factor * usual, factor, "statistics", steps)

    def _of_whole_numbers(self, client: str, name: str, tensor: Tensor, parts: int) -> list[Finding]:
        """A table stands still, whoever says otherwise; of a counter, how far it advanced and went back."""
        before = self._weights[name]
        if tensor.numel() == 1:
            return self._of_counter(name, float(int(tensor) - int(before)), parts)
        before, after = before.detach().cpu(), tensor.detach().cpu()
        if torch.equal(before, after):
            return []
        raise Refused(
            client,
            f"moves {name!r} by up to {float((after.double() - before.double()).abs().max()):.3g}, but "
            "buffers of several whole numbers must stay as they are",
        )

    def _of_counter(self, name: str, ahead: float, parts: int) -> list[Finding]:
        """Findings of the same number for every client, so that they can be compared."""
        allowed = self._settings.counters * parts
        return [
            Finding(f"advances {name!r} by", max(ahead, 0.0), allowed, 1.0, "counters", parts, allowed),
            Finding(f"takes back {name!r} by", max(-ahead, 0.0), 0.0, 1.0, "counters", parts, 0.0),
        ]

    def _verdict(self, client: str) -> None:
        """Raise where a number is beyond what the others and the global model allow."""
        for number, mine in enumerate(self._findings[client]):
            if not mine.suspicious:
                continue
            all_ = [found[number] for found in self._findings.values()]
            usual = median(each.value for each in all_ if math.isfinite(each.value))
            more = mine.work / median(each.work for each in all_)
            limit = max(mine.free, mine.factor * usual * max(1.0, more))
            if len(self._findings) < _MAJORITY:
                limit = mine.alone
            if mine.value > limit:
                raise Refused(client, _sentence(mine, usual, limit, len(self._findings)))


def _sentence(mine: Finding, usual: float, limit: float, updates: int) -> str:
    told = f"{mine.what} {mine.value:.3g}"
    if updates >= _MAJORITY:
        times = f"{mine.value / usual:.3g} times" if usual > 0 else "beyond"
        told += f", {times} the median of the round's {updates} updates ({usual:.3g})"
    return f"{told}, but {mine.key} of [judge] allows at most {limit:.3g}"


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _variance_of(mean: str) -> str:
    return mean.removesuffix(_MEAN) + _VARIANCE
