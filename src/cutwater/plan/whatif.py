"""What changes of a fleet are worth: the optimum of every changed fleet that is told of, never an estimate.

Of one more step of everything (the server's compute, each client's link, each client's device, each link that
is shared), the best changes are found and proven to be so by :mod:`cutwater.plan.nearby`; changes that
somebody asks for (:mod:`cutwater.plan.changes`) are planned anew.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.plan.fleet import Fleet
from cutwater.plan.nearby import Near
from cutwater.plan.optimum import MOST_SHARED, Field, noise, optimum
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Band, Problem

Resource = Literal["server compute", "link", "device compute", "uplink", "downlink"]
Amount = TypeVar("Amount", float, Floats)
"""Of one thing, or a column of many."""

_OF_CLIENTS: tuple[Resource, ...] = ("link", "device compute")
"""Kinds of changes that there is one of for each client."""
_PAID_BY = {"server compute": "compute", "device compute": "device"}
"""Which of the prices a kind has that is not called so itself."""
TOP = 10
"""Changes that are told of unless more are asked for."""


@dataclass(frozen=True)
class Increment:
    """How much more of each thing is asked about: so many times what there is, plus an amount."""

    compute: float = 1e9
    """FLOPS, at the server and at each device."""
    rate: float = 8e6
    """Bits per second, up and down, on each link, and on each that is shared."""
    times: float = 1.0

    def of(self, kind: Resource) -> float:
        """The amount that is added of some kind."""
        return self.compute if kind.endswith("compute") else self.rate

    def raised(self, kind: Resource, had: Amount) -> Amount:
        """What there is more than ``had`` of some kind, with it."""
        return had * self.times + self.of(kind)


@dataclass(frozen=True)
class Change:
    """One thing that could be better, and what that is worth."""

    kind: Resource
    client: str | None
    """Whose link or device; None for the server and for shared links."""
    amount: float
    """How much more: FLOPS, or bits per second up (and as many times more down)."""
    saved: float
    """Seconds off the round."""
    latency: float
    """The round with the change: the optimum of the changed fleet."""

    def cost(self, prices: Prices) -> float | None:
        """What it costs; None where it has no price."""
        return prices.cost(**{_PAID_BY.get(self.kind, self.kind): self.amount}) if prices.money else None

    def per_money(self, prices: Prices) -> float | None:
        """Seconds off the round for one unit of money; None where it costs nothing or has no price."""
        cost = self.cost(prices)
        return self.saved / cost if cost else None


@dataclass(frozen=True)
class Ranking:
    """The best of all changes of one thing."""

    latency: float
    """The round as it is: the optimum."""
    changes: tuple[Change, ...]
    """The best first."""
    others: int
    """How many other changes there are; none of them saves more than ``at_most``."""
    at_most: float
    """Seconds off the round; seconds for one unit of money where changes are ranked by that."""
    best_of_kinds: tuple[Change, ...] = ()
    """The change of each kind that saves the most, of the kinds that save anything."""

    def most_for_money(self, prices: Prices) -> Change | None:
        """The change that saves the most for the money, of all: within a kind all cost the same."""
        return max(
            (change for change in self.best_of_kinds if change.per_money(prices) is not None),
            key=lambda change: change.per_money(prices) or 0.0,
            default=None,
        )


def ranking(
    problem: Problem,
    increment: Increment | None = None,
    *,
    top: int = TOP,
    latency: float | None = None,
    by: Prices | None = None,
) -> Ranking:
    """What one step more of everything is worth: the best ``top`` changes of all, proven.

    ``latency`` is the optimum, where it is known already. With prices as ``by``, the best are those that save
    the most for the money, of the changes that cost some: within a kind, where all cost the same, the best by
    seconds.
    """
    increment = increment or Increment()
    if by is not None:
        _check_prices(increment, by)
    if problem.band.shared:
        known, found = _of_shared_links(problem, increment)
    else:
        field = Field.plain(problem)
        known = field.optimum(problem.server.compute) if latency is None else latency
        found = list(_of_own_links(field, known, increment, top, every_kind=by is not None)) if known else []
    least = noise(problem) * known
    helpful = sorted((each for each in found if each.saved > least), key=lambda each: -each.saved)
    kinds: dict[Resource, int] = {"server compute": 1, "link": len(problem), "device compute": len(problem)}
    kinds |= dict.fromkeys(_shared(problem.band), 1)
    firsts = tuple({change.kind: change for change in reversed(helpful)}.values())
    paid = {kind: cost for kind in kinds if (cost := _cost(kind, increment, by))}
    ranked = [change for change in helpful if change.kind in paid]
    ranked.sort(key=lambda change: -change.saved / paid[change.kind])
    best, trifle = tuple(ranked[:top]), least / min(paid.values(), default=1.0)
    at_most = best[-1].saved / paid[best[-1].kind] if len(best) == top else trifle
    return Ranking(known, best, sum(kinds[kind] for kind in paid) - len(best), at_most, firsts)


def _shared(band: Band) -> list[Resource]:
    """Which links are shared."""
    links: tuple[tuple[Resource, float], ...] = (("uplink", band.up), ("downlink", band.down))
    return [kind for kind, capacity in links if math.isfinite(capacity)]


def _cost(kind: Resource, increment: Increment, by: Prices | None) -> float:
    """What changes of a kind are ranked by: what they cost, nothing if they can't be bought."""
    return 1.0 if by is None else Change(kind, None, increment.of(kind), 0.0, 0.0).cost(by) or 0.0


def _check_prices(increment: Increment, prices: Prices) -> None:
    if not any(price.amount > 0 for price in prices.given):
        raise PlanError("changes are ranked by money, but nothing costs any: add [prices] to the scenario")
    if increment.times != 1:
        raise PlanError(
            "changes are ranked by money where all of a kind cost the same: ask for an amount more, not for "
            "a multiple"
        )


def _of_own_links(
    field: Field, known: float, increment: Increment, top: int, *, every_kind: bool
) -> Iterator[Change]:
    """Changes among which are the best ``top`` of all and the first of each kind, or the ``top`` of each."""
    had = field.problem.server.compute
    more = increment.raised("server compute", had)
    found = min(field.optimum(more), known)
    yield Change("server compute", None, more - had, known - found, found)

    def faster_links(some: Fleet) -> Fleet:
        return some.replace(up=increment.raised("link", some.up), down=increment.raised("link", some.down))

    def stronger_devices(some: Fleet) -> Fleet:
        return some.replace(compute=increment.raised("device compute", some.compute))

    near = Near.of(field, known, (faster_links, stronger_devices))
    missing = set(_OF_CLIENTS)
    if not every_kind:
        for change in _found(field.problem, increment, known, *near.best(top)):
            missing.discard(change.kind)  # the first of a kind is the best of it
            yield change
    for variant, kind in enumerate(_OF_CLIENTS):
        if kind in missing:
            yield from _found(field.problem, increment, known, *near.best(top if every_kind else 1, variant))


def _found(
    problem: Problem, increment: Increment, known: float, numbers: Ints, seconds: Floats
) -> Iterator[Change]:
    fleet = problem.fleet
    had = {"link": fleet.up, "device compute": fleet.compute}
    for number, found in zip(numbers.tolist(), seconds.tolist(), strict=True):
        place, k = divmod(number, len(problem))
        kind = _OF_CLIENTS[place]
        amount = float(had[kind][k]) * (increment.times - 1) + increment.of(kind)
        yield Change(kind, fleet.names[k], amount, known - found, found)


def why_not_ranked(problem: Problem) -> str | None:
    """Why single changes of this problem are not ranked; None if they are."""
    if not problem.band.shared or len(problem) <= MOST_SHARED:
        return None
    return (
        f"of {len(problem)} clients that share links, single changes are not ranked (of {MOST_SHARED} at "
        "most they are): ask for changes of your own, such as 'uplink capacity x2' or 'all compute x1.2'"
    )


def _of_shared_links(problem: Problem, increment: Increment) -> tuple[float, list[Change]]:
    """The optimum and all changes where links are shared, so that all rates move: each is planned anew."""
    why = why_not_ranked(problem)
    if why is not None:
        raise PlanError(why)
    known, found = optimum(problem), []
    for kind, name, amount, changed in _each_alone(problem, increment):
        seconds = min(optimum(changed), known)
        found.append(Change(kind, name, amount, known - seconds, seconds))
    return known, found


def _each_alone(
    problem: Problem, increment: Increment
) -> Iterator[tuple[Resource, str | None, float, Problem]]:
    """Every single change: its kind, whose it is, how much, and the changed problem."""
    fleet, had = problem.fleet, problem.server.compute
    more = increment.raised("server compute", had)
    yield "server compute", None, more - had, problem.at_compute(more)
    for kind in _shared(problem.band):
        way = "up" if kind == "uplink" else "down"
        capacity = getattr(problem.band, way)
        wider = increment.raised(kind, capacity)
        yield kind, None, wider - capacity, problem.replace(band=replace(problem.band, **{way: wider}))
    for k, name in enumerate(fleet.names):
        one = np.arange(len(problem)) == k
        up, down = (np.where(one, increment.raised("link", rate), rate) for rate in (fleet.up, fleet.down))
        yield (
            "link",
            name,
            float(up[k] - fleet.up[k]),
            problem.replace(clients=fleet.replace(up=up, down=down)),
        )
        device = np.where(one, increment.raised("device compute", fleet.compute), fleet.compute)
        amount, stronger = float(device[k] - fleet.compute[k]), fleet.replace(compute=device)
        yield "device compute", name, amount, problem.replace(clients=stronger)
