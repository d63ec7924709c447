"""The optimum after a change of one client, found from the optimum before it.

With D(T) = Σ need_k(T), another client j needs need'_j(T) instead, and nobody else needs anything else: T is
feasible exactly when D(T) - need_j(T) + need'_j(T) ≤ F^max. So one pass over all clients at some T tells, of
every change of any one client, whether the round could then be over by T. A few passes leave of all changes
the best ones, proven: every other one leaves the round above a T by which each of these would be over.

The smallest T of those is searched for from there. Near the optimum nearly every client stays in its cell, in
which its share is N over a line in T: a million clients are added up in a moment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan import kernel
from cutwater.plan.fleet import Fleet
from cutwater.plan.optimum import WORTH, Field
from cutwater.plan.root import TOLERANCE, smallest_feasible
from cutwater.plan.tables import ClientTables

_APART = 3.0
"""Changes whose optima lie so many times as far away, as a logarithm, are looked at apart."""
_FARTHER = 8.0
"""How many times as far from the optimum is looked next, where nothing is known."""
_PASSES = 60
"""Over all changes that are left; mostly half a dozen are enough."""


@dataclass(frozen=True)
class Near:
    """A solved problem, and changes of single clients."""

    supply: float
    """F^max."""
    latency: float
    """The optimum."""
    table: ClientTables
    """All clients as they are."""
    changed: ClientTables
    """A client as it would be, for every change."""
    whose: Ints
    """The client that each change is of; of those that others wait for anyway, no change is kept."""
    numbers: Ints
    """Which of the given changes each of these is."""

    @classmethod
    def of(cls, field: Field, latency: float, variants: Sequence[Callable[[Fleet], Fleet]]) -> "Near":
        """``variants`` change every client of a fleet: one change of each client, each variant.

        The number of a change is the client's place, plus the number of clients for each variant before.
        A client that is done alone before the round is over changes nothing by being faster.
        """
        problem = field.problem
        last = np.flatnonzero(field.alone >= latency)
        waited_for = problem.fleet.some(last)
        changed = [Field.plain(problem.replace(clients=change(waited_for))) for change in variants]
        tables = [each.everyone for each in changed]
        return cls(
            problem.server.compute,
            latency,
            field.everyone,
            ClientTables(
                tables[0].by_cut,
                *(
                    np.concatenate([getattr(table, name) for table in tables])
                    for name in ("pattern", "weights", "alone", "seen")
                ),
            ),
            np.tile(last, len(variants)),
            np.concatenate([last + place * len(problem) for place in range(len(variants))]),
        )

    def best(self, count: int, variant: int | None = None) -> tuple[Ints, Floats]:
        """The numbers of so many changes that save the most, and the optimum with each, best first.

        Of all changes, or of those by one of the variants; what is worth nothing is left out.
        """
        among = np.arange(len(self.whose))
        if variant is not None:
            among = among[self.numbers // len(self.table.alone) == variant]
        left, low, high = self._best(count, among)
        found = self._each(left, low, high)
        order = np.argsort(found, kind="stable")[:count]
        return self.numbers[left][order], found[order]

    def _best(self, count: int, left: Ints) -> tuple[Ints, Floats, Floats]:
        """The best of these, some more at most, and for each a T that is too early and one that is not."""
        passes = _Passes(self)
        left = left[passes.look(self.latency * (1 - WORTH), left)]
        for _ in range(_PASSES):
            if len(left) <= 2 * count:
                break
            T = passes.between(left, count)
            if T is None:
                break
            done = passes.look(T, left)
            if np.count_nonzero(done) >= count:
                left = left[done]
        # Of changes that are equally good some are enough, those that are better first.
        left = left[np.argsort(passes.high[left], kind="stable")][: 2 * count]
        # A T that is too early for each of them.
        for _ in range(_PASSES):
            if not len(left) or (passes.low[left] > 0).all():
                break
            passes.look(passes.below(left), left)
        return left, passes.low[left], passes.high[left]

    def _each(self, rows: Ints, low: Floats, high: Floats) -> Floats:
        """The optimum with each of these changes."""
        found = np.empty(len(rows))
        # What is true far from the optimum takes longer to add up: those near it are looked at apart.
        far = np.ceil(np.log(self.latency / (self.latency - low)) / _APART)
        for each in np.unique(far):
            group = np.flatnonzero(far == each)
            others = _Others(self.table, float(low[group].min()), self.latency)
            for place in group:
                own = self.changed.take(rows[place : place + 1])
                jumps = np.union1d(others.jumps, own.alone)
                demand = others.with_own(int(self.whose[rows[place]]), own)
                search = smallest_feasible(demand, self.supply, low[place], high[place], jumps, pole=0.0)
                found[place] = search.high
        return np.minimum(found, self.latency)


class _Passes:
    """What passes over all clients have told of every change so far."""

    def __init__(self, near: Near) -> None:
        count = len(near.whose)
        self._near = near
        self.low, self.high = np.zeros(count), np.full(count, near.latency)
        """Of each change, a T that is too early (0: none is known) and one that is not."""
        self._missing = np.full(count, np.nan)
        self._spare = np.maximum(-self._excess(near.latency, np.arange(count)), 0.0)
        """What of the server is missing at ``low``, and to spare at ``high``: at first the optimum."""
        self._stalled = 0

    def look(self, T: float, rows: Ints) -> Bools:
        """Which of these changes would have the round over by T."""
        excess = self._excess(T, rows)
        done = excess <= 0
        self.high[rows[done]], self._spare[rows[done]] = T, -excess[done]
        early = rows[~done]
        self.low[early], self._missing[early] = T, excess[~done]
        return done

    def _excess(self, T: float, rows: Ints) -> Floats:
        """What the clients would need beyond the server's compute to be done by T, with each change."""
        near = self._near
        now, then = near.table.needs(T), near.changed.take(rows).needs(T)
        never = ~np.isfinite(now)
        now[never] = 0.0
        total, most = float(now.sum()), int(now.argmax())
        whose = near.whose[rows]
        others = total - now[whose]
        # The largest of all is not subtracted from a sum that it makes up, but left out of it.
        others[whose == most] = float(now[:most].sum() + now[most + 1 :].sum())
        others[np.count_nonzero(never) > never[whose]] = np.inf
        excess: Floats = others + then - near.supply
        return excess

    def between(self, rows: Ints, count: int) -> float | None:
        """A T by which about so many of these changes should have the round over; None if none is between."""
        high = float(np.partition(self.high[rows], count - 1)[count - 1])
        low = float(np.partition(self.low[rows], count - 1)[count - 1])
        if high - low <= TOLERANCE * high:
            return None
        self._stalled += 1
        if low == 0.0:
            # Nothing is known of how early is too early: farther each time.
            return (
                high - WORTH * self._near.latency * _FARTHER**self._stalled
                if self._stalled < 10
                else high / 2
            )
        guess = np.sort(self._guesses(rows))[count - 1 : count + 1].mean()
        if self._stalled % 3 == 0 or not low < guess < high:
            return 0.5 * (low + high)
        return float(guess)

    def below(self, rows: Ints) -> float:
        """A T that should be too early for all of these."""
        top = self._near.latency
        least = float(self.high[rows].min())
        distance = max(top - float(np.nanmin(self._guesses(rows), initial=top)), top - least, WORTH * top)
        return top - _FARTHER * distance if _FARTHER * distance < top else least / 2

    def _guesses(self, rows: Ints) -> Floats:
        """Where the optimum with each change should be, on a straight line between what is known."""
        low, high = self.low[rows], self.high[rows]
        missing, spare = self._missing[rows], self._spare[rows]
        with np.errstate(invalid="ignore", divide="ignore"):
            part = spare / (spare + missing)
        part = np.where(np.isfinite(part), part, 0.5)
        return np.where(low > 0, high - part * (high - low), high)


class _Others:
    """Σ need_k from one T to another, with one client changed."""

    def __init__(self, table: ClientTables, low: float, high: float) -> None:
        clients = np.flatnonzero(table.alone >= low)
        table = table.take(clients)
        self._high, cells = high, table.by_cut
        self.jumps = np.unique(table.alone[table.alone <= high])
        slope, level = np.zeros(len(clients)), np.full(len(clients), np.nan)
        if cells.turns == len(cells.cuts):
            kernel.lines(low, high, table.laid_out, slope, level)
        straight = ~np.isnan(level)
        self._on_lines = (table.weights[straight, 4], table.alone[straight], slope[straight], level[straight])
        self._rest = table.take(~straight)
        self._of_lines, self._of_rest = clients[straight], clients[~straight]

    def with_own(self, client: int, own: ClientTables) -> Callable[[float], tuple[float, float]]:
        """Demand at T and just below it, with one client as it would be."""
        work, alone, slope, level = self._on_lines
        alone, rest = _without(alone, self._of_lines, client), self._rest
        rest = rest.with_alone(_without(rest.alone, self._of_rest, client))

        def demand(T: float) -> tuple[float, float]:
            straight = kernel.demand_on_lines(T, self._high, work, alone, slope, level)
            bent, changed = rest.demand(T), own.demand(T)
            return straight[0] + bent[0] + changed[0], straight[1] + bent[1] + changed[1]

        return demand


def _without(alone: Floats, clients: Ints, client: int) -> Floats:
    """The same T̃, but for one client that needs nothing."""
    place = int(np.searchsorted(clients, client))
    if place == len(clients) or clients[place] != client:
        return alone
    alone = alone.copy()
    alone[place] = -np.inf
    return alone
