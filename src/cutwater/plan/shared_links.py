"""Cuts, shares of the server and rates of shared links, planned together, with an interval for the optimum.

Where clients share a cell or a site's line, the rates of their links are there to be planned as shares of the
server are: Σ f ≤ F^max, Σ b ≤ B up and Σ d ≤ D down, each client's own rates being the most that it can use.

**A bound.** Let π ≥ 0 be prices that add up to one when all there is of everything is bought. To be done by
T, client k pays at least cost_k(T; π), the smallest price over its options
(:mod:`cutwater.plan.band_kernel`). Whoever keeps to F, B and D pays at most 1. So where Σ cost_k(T; π) > 1,
no plan is done by T, and the best π gives the latest such T. At π, what the cheapest choices use of each, u,
tells of all other prices: with the same choices they come to u·π', so Σ cost_k(T; π') ≤ u·π', and prices that
improve on T have u·π' > 1. That is a cutting plane; a few dozen of them through the centre of what is left
find the best π.

**A plan.** With every client's option fixed, the problem is convex and the bound is the optimum (Slater's
condition holds): the prices at which all that is scarce is used equally yield shares and rates. Options that
the best prices hesitate between are branched on; the bound of the whole is the smallest of what is left open.
"""

import heapq
from dataclasses import dataclass
from itertools import count

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan.band_kernel import LINKS, price
from cutwater.plan.latency import server_work, session_bits
from cutwater.plan.problem import Problem
from cutwater.plan.simplex import Simplex

CLOSE = 1e-8
"""How near bound and plan come to each other, relatively, before the search ends."""
MOST_NODES = 60
"""Nodes that are looked at before the search ends with the interval that it has."""
MOST_LOOKS = 3_000_000
"""Clients × options × nodes, the same for large fleets."""
_CUTS = 200
_EXACT = 1e-12
"""Width, relative to T, to which a root is found."""
_HARDLY = 1e-12
"""Of the most that a client can use."""
_NEAR = 1e-5
"""Bounds this near to a node's best are of prices that matter."""


@dataclass(frozen=True)
class Rates:
    """A way to share the links out, with a bound on what any plan can reach."""

    up: Floats
    down: Floats
    lower_bound: float
    """No plan is faster, whatever the rates."""


def share_links(problem: Problem) -> Rates:
    """Rates for all clients under which the best plan is next to the best of all plans."""
    return _Search(_Options.of(problem)).run()


def fair_rates(problem: Problem) -> tuple[Floats, Floats]:
    """Rates that nobody planned: equal parts of a shared link, but no more than a client can use."""
    band, fleet = problem.band, problem.fleet
    return _fair(fleet.up, band.up), _fair(fleet.down, band.down)


def _fair(most: Floats, capacity: float) -> Floats:
    if most.sum() <= capacity:
        return most
    ordered = np.sort(most)
    # With so many of the slowest at their most, what the others have is an equal part of the rest.
    before = np.concatenate([[0.0], np.cumsum(ordered)[:-1]])
    parts = (capacity - before) / np.arange(len(most), 0, -1)
    level = float(parts[np.argmax(ordered >= parts)])
    return np.minimum(most, level)


@dataclass(frozen=True)
class _Options:
    """All options of all clients: what each takes, and what there is."""

    fixed: Floats
    """Clients × options: seconds on the client and in round trips; infinite where not allowed."""
    work: Floats
    """Clients × options × LINKS: FLOPs at the server, bits up, bits down."""
    most: Floats
    """Clients × LINKS: the most that each can use."""
    whole: Floats
    """What there is of the server and of both links; infinite where a link is not shared."""

    @classmethod
    def of(cls, problem: Problem) -> "_Options":
        fleet, allowed, layers = problem.fleet, problem.allowed, problem.layers
        pairs = [
            (wire, place)
            for wire in range(len(problem.options))
            for place in range(1, len(problem.places) + 1)
            if (wire == 0 or place != layers) and allowed.cells[:, wire, place - 1].any()
        ]
        fixed = np.empty((len(problem), len(pairs)))
        work = np.empty((len(problem), len(pairs), LINKS))
        for o, (wire, place) in enumerate(pairs):
            # A part waits for a round trip, and with a tail for two; the whole model for none.
            trips = 0 if place == layers else 1 + (place > layers)
            seconds = problem.costs.client[place - 1] * problem.work / fleet.compute
            able = allowed.by(wire, place)
            fixed[:, o] = np.where(able, seconds + trips * problem.steps.parts * fleet.rtt, np.inf)
            work[:, o, 0] = server_work(problem, place)
            work[:, o, 1], work[:, o, 2] = session_bits(problem, place, wires=wire)
        whole = np.array([problem.server.compute, problem.band.up, problem.band.down])
        own = np.array([np.full(len(problem), whole[0]), fleet.up, fleet.down]).T
        return cls(fixed, work, np.minimum(own, whole), whole)

    def only(self, allowed: Bools) -> "_Options":
        """Some of the options."""
        return _Options(np.where(allowed, self.fixed, np.inf), self.work, self.most, self.whole)

    def at(self, chosen: Ints) -> "_Options":
        """One option for each client."""
        rows = np.arange(len(chosen))
        return _Options(
            self.fixed[rows, chosen][:, None], self.work[rows, chosen][:, None], self.most, self.whole
        )

    @property
    def floor(self) -> float:
        """Nobody is done sooner, with all that it can use."""
        with np.errstate(all="ignore"):
            each = np.where(self.work > 0, self.work / self.most[:, None], 0.0).sum(axis=2)
        return float((self.fixed + each).min(axis=1).max())


@dataclass(frozen=True)
class _Look:
    """What clients choose at some prices, to be done by T."""

    cost: float
    chosen: Ints
    given: Floats
    used: Floats
    """Of what there is, resource by resource."""


class _Market:
    """Prices of what is scarce, for some options."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self.scarce = np.flatnonzero(np.isfinite(options.whole) & (options.whole > 0))

    def look(self, T: float, prices: Floats) -> _Look:
        """All clients at these prices."""
        options, per_unit = self._options, np.zeros(LINKS)
        per_unit[self.scarce] = prices / options.whole[self.scarce]
        chosen, given = np.zeros(len(options.fixed), dtype=np.int64), np.zeros((len(options.fixed), LINKS))
        cost = price(T, per_unit, options.most, options.fixed, options.work, chosen, given)
        used = given.sum(axis=0)[self.scarce] / options.whole[self.scarce]
        return _Look(cost, chosen, given, used)

    def infeasible_to(self, T: float, prices: Floats) -> float:
        """From T, which these prices prove infeasible, to the latest that they do."""
        low, high = T, 2 * T
        while self.look(high, prices).cost > 1:
            low, high = high, 2 * high
        seconds: list[tuple[float, float]] = []
        while high - low > _EXACT * high:
            middle = _between(low, high, seconds)
            cost = self.look(middle, prices).cost
            # What is paid is nearly proportional to 1 / (T - what can't be bought).
            seconds = [*seconds[-1:], (middle, 1 / cost if cost > 0 else np.inf)]
            low, high = (middle, high) if cost > 1 else (low, middle)
        return low

    def bound(self, start: float, enough: float) -> tuple[float, list[tuple[float, _Look]]]:
        """The latest T that some prices prove infeasible, and who chose what on the way; up to ``enough``."""
        T, seen, simplex = start, [], Simplex(len(self.scarce))
        for _ in range(_CUTS):
            prices = simplex.centre
            look = self.look(T, prices)
            if look.cost > 1:
                T = self.infeasible_to(T, prices)
                look = self.look(T * (1 + 2 * _EXACT), prices)
            if np.isfinite(look.cost):
                seen.append((T, look))
            if enough <= T or not np.isfinite(look.cost):
                break
            simplex.cut(look.used, 1.0)
            if simplex.empty:
                break
        return T, seen

    def balanced(self, T: float) -> _Look:
        """What to give everybody to be done by T so that the scarcest is least used; one option for each."""
        simplex, best = Simplex(len(self.scarce)), None
        for _ in range(_CUTS):
            look = self.look(T, simplex.centre)
            if best is None or look.used.max() < best.used.max():
                best = look
            simplex.cut(look.used, look.cost)
            if simplex.empty:
                break
        assert best is not None
        return best


def _between(low: float, high: float, points: list[tuple[float, float]]) -> float:
    """Where the line through the last two points comes to 1, or halfway."""
    middle = 0.5 * (low + high)
    if len(points) == 2 and np.isfinite(points[0][1]) and np.isfinite(points[1][1]):
        (t1, y1), (t2, y2) = points
        if y1 != y2:
            guess = t2 + (1 - y2) * (t2 - t1) / (y2 - y1)
            margin = 0.4 * _EXACT * high
            if low < guess < high:
                # A little beyond the root, by turns on either side, so that the bracket closes.
                middle = guess + margin if t2 <= guess else guess - margin
                middle = middle if low < middle < high else 0.5 * (low + high)
    return middle


class _Search:
    """A best-first search over options that prices hesitate between."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._best, self._given = np.inf, np.zeros((len(options.fixed), LINKS))
        self._tried: set[bytes] = set()

    def run(self) -> Rates:
        """Go on with the node that has the smallest bound until that is close to the best plan."""
        fixed, number = self._options.fixed, count()
        heap = [(0.0, next(number), np.isfinite(fixed))]
        ended, nodes = np.inf, min(MOST_NODES, max(MOST_LOOKS // fixed.size, 1))
        while heap and nodes and heap[0][0] < self._best * (1 - CLOSE):
            bound, _, allowed = heapq.heappop(heap)
            nodes -= 1
            better, parts = self._look_into(bound, allowed)
            if not parts:
                ended = min(ended, better)
            for part in parts:
                heapq.heappush(heap, (better, next(number), part))
        lower = min([self._best, ended, *(bound for bound, *_ in heap[:1])])
        # Who has nothing to send still has a link, which takes next to nothing of what is shared.
        up, down = np.maximum(self._given[:, 1:], _HARDLY * self._options.most[:, 1:]).T.copy()
        return Rates(up, down, lower)

    def _look_into(self, bound: float, allowed: Bools) -> tuple[float, list[Bools]]:
        """A node's bound, and the two nodes that take its place; none if it is as good as solved."""
        options = self._options.only(allowed)
        market = _Market(options)
        better, seen = market.bound(max(bound, options.floor), self._best * (1 - CLOSE))
        near = [look for T, look in seen if better * (1 - _NEAR) <= T][-12:]
        for look in near:
            self._try(look.chosen)
        if better >= self._best * (1 - CLOSE):
            return better, []
        return better, _halves(allowed, near)

    def _try(self, chosen: Ints) -> None:
        """The best plan with these options."""
        if chosen.tobytes() in self._tried:
            return
        self._tried.add(chosen.tobytes())
        options = self._options.at(chosen)
        market = _Market(options)
        T, _ = market.bound(options.floor, self._best)
        if self._best <= T:
            return
        look = market.balanced(T * (1 + 10 * _EXACT))
        scale = np.ones(LINKS)
        scale[market.scarce] = 1 / np.maximum(look.used, 1e-300)
        given = np.minimum(look.given * scale, options.most)
        with np.errstate(all="ignore"):
            each = np.where(options.work[:, 0] > 0, options.work[:, 0] / given, 0.0).sum(axis=1)
        latency = float((options.fixed[:, 0] + each).max())
        if latency < self._best:
            self._best, self._given = latency, given


def _halves(allowed: Bools, near: list[_Look]) -> list[Bools]:
    """Two sets of options, between which the client lies that the looks disagree most about."""
    chosen = np.array([look.chosen for look in near])
    if not len(chosen):
        return []
    spread = chosen.max(axis=0) - chosen.min(axis=0)
    k = int(np.argmax(spread))
    if spread[k] == 0:
        return []
    middle = (int(chosen[:, k].min()) + int(chosen[:, k].max()) + 1) // 2
    low, high = allowed.copy(), allowed.copy()
    low[k, middle:], high[k, :middle] = False, False
    return [low, high]
