"""What the planner believes of each client: what the scenario says, then what was seen.

A small value that a checkpoint keeps. A scenario may guess and a measurement be odd, so at first each has a
vote; what was settled like that follows what is seen, slowly enough that an odd round moves it little.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from statistics import median_high, median_low
from typing import Any

from cutwater.federate.conditions import Condition, Conditions
from cutwater.plan.fleet import Client
from cutwater.scenario.settings import ConditionSettings

_VOTES = 3
"""The scenario's word and two observations: the middle one of three is believed, whichever is odd."""
_LARGEST_STEP = math.log(3.0)
"""A robust average takes one round for at most a threefold change."""
_LARGEST_FIRST = math.log(10.0)
"""And at first, when the scenario may well be wrong, for at most a tenfold one."""


@dataclass(frozen=True)
class Estimate:
    """What is believed of one number: a compute or a rate."""

    value: float
    votes: tuple[float, ...] = ()
    """The first of what was said and seen of it, or the last, as long as more than a tenfold change is
    called for; none when it is settled."""

    @classmethod
    def said(cls, value: float) -> "Estimate":
        """What the scenario says, before anything was seen."""
        return cls(value, (value,))

    def after(self, observed: float, smoothing: float) -> "Estimate":
        """The estimate after an observation; one that can't be, or that is none (NaN), changes nothing.

        >>> once = Estimate.said(100.0).after(10000.0, smoothing=0.5)
        >>> round(once.value), round(once.after(9000.0, smoothing=0.5).value)
        (1000, 9000)
        """
        if not _can_be(observed):
            return self
        if self.value == 0:  # a round trip that nobody spoke of; it has no logarithm
            return Estimate(observed)
        if not self.votes:
            return Estimate(robust_average(self.value, observed, smoothing))
        votes = (*self.votes, observed)
        middle = _middle(votes)
        step = math.log(middle) - math.log(self.value)
        if abs(step) > _LARGEST_FIRST * (1 + 1e-9):
            return Estimate(self.value * math.exp(math.copysign(_LARGEST_FIRST, step)), votes[1 - _VOTES :])
        return Estimate(middle, votes if len(votes) < _VOTES else ())


def _middle(votes: tuple[float, ...]) -> float:
    """The middle one, or halfway between two by the logarithm; exactly what they say if they agree."""
    low, high = median_low(votes), median_high(votes)
    return low * math.exp((math.log(high) - math.log(low)) / 2)


def robust_average(before: float, observed: float, smoothing: float) -> float:
    """An exponential average of the logarithm that no single outlier moves far.

    >>> round(robust_average(100.0, 110.0, 0.5), 2)
    104.88
    >>> round(robust_average(100.0, 1e9, 0.5), 2)
    173.21
    """
    step = math.log(observed) - math.log(before)
    return before * math.exp(smoothing * min(max(step, -_LARGEST_STEP), _LARGEST_STEP))


@dataclass(frozen=True)
class Estimates:
    """What the planner believes of each client, from what was seen of it so far."""

    kind: str = "nominal"
    """nominal, last, average or true, as in :class:`~cutwater.scenario.settings.ConditionSettings`."""
    smoothing: float = 0.3
    seen: Mapping[str, tuple[Estimate, ...]] = field(default_factory=dict)
    """Compute, rates up and down and round trip of every client that was seen; nothing for the others."""

    @classmethod
    def of(cls, settings: ConditionSettings) -> "Estimates":
        """Estimates before the first round."""
        return cls(settings.estimate, settings.smoothing)

    def believed(self, client: Client) -> Condition:
        """The estimate for a client: what the scenario says until it was seen."""
        seen = self.seen.get(client.name)
        return Condition(*(each.value for each in seen)) if seen else Condition.of(client)

    def in_round(self, truth: Conditions, client: Client, round_: int) -> Condition:
        """What the planner of a round may know of a client: its estimate, or the truth if it is an oracle."""
        return truth.true(client, round_) if self.kind == "true" else self.believed(client)

    def after(self, observed: Iterable[tuple[Client, Condition]]) -> "Estimates":
        """The estimates after a round in which these clients were seen like this (NaN: not seen)."""
        if self.kind in ("nominal", "true"):
            return self
        news = {client.name: self._updated(client, condition) for client, condition in observed}
        return replace(self, seen={**self.seen, **news})

    def _updated(self, client: Client, observed: Condition) -> tuple[Estimate, ...]:
        said = tuple(map(Estimate.said, astuple(Condition.of(client))))
        seen = self.seen.get(client.name, ())
        # A checkpoint of a release that knew of fewer numbers has no word on the last ones.
        pairs = zip((*seen, *said[len(seen) :]), astuple(observed), strict=True)
        if self.kind == "last":
            return tuple(Estimate(now) if _can_be(now) else was for was, now in pairs)
        return tuple(was.after(now, self.smoothing) for was, now in pairs)

    def to_json(self) -> dict[str, list[list[float]]]:
        """What was seen, for a checkpoint: of each number its estimate and the votes on it."""
        return {name: [[each.value, *each.votes] for each in seen] for name, seen in self.seen.items()}

    def resumed(self, data: Mapping[str, Any]) -> "Estimates":
        """The estimates that :meth:`to_json` kept, exactly."""
        return replace(self, seen={name: tuple(map(_read, values)) for name, values in data.items()})


def _can_be(observed: float) -> bool:
    return math.isfinite(observed) and observed > 0


def _read(kept: Any) -> Estimate:
    value, *votes = map(float, kept) if isinstance(kept, list) else (float(kept),)  # older: the number alone
    return Estimate(value, tuple(votes))
