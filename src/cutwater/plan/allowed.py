"""Which cuts each client may use, and by which wires, kept as a few distinct patterns."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan.costs import Fresh, WireCosts
from cutwater.plan.fleet import Fleet
from cutwater.plan.places import Places, on_client, ruled_out, used_elsewhere
from cutwater.plan.session import usable
from cutwater.profile.optimizers import OPTIMIZER_STATE
from cutwater.profile.values import Profile

if TYPE_CHECKING:  # a problem finds its allowed cuts by this module
    from cutwater.plan.problem import Problem


@dataclass(frozen=True)
class Allowed:
    """``cells[of[k], w, p - 1]`` says whether client k may use place p (a cut, or a pair) by wire w.

    Planners that know nothing of wires use each client's first one: ``masks[of[k], p - 1]``.
    """

    cells: Bools
    first: Ints
    """The first wire that the clients of each pattern can use, at some cut if at any."""
    of: Ints
    memory: Floats
    """Bits that each pattern's cuts hold by the leanest wire; infinite where another rule forbids the cut."""
    holds: Ints
    """Of how many first layers the clients of each pattern have the fixed weights; 0 where there are none."""
    holds_last: Ints
    """The same of last layers."""
    fresh: Fresh
    """How much of a session's smashed data is new, where any of it may come again."""

    @property
    def masks(self) -> Bools:
        """Cuts that are allowed by the first wire of each pattern."""
        rows: Bools = self.cells[np.arange(len(self.first)), self.first]
        return rows

    @property
    def first_wires(self) -> Ints:
        """The first wire that each client can use."""
        found: Ints = self.first[self.of]
        return found

    def by(self, wire: int, place: int) -> Bools:
        """For each client, whether it may use this place by this wire."""
        return np.take(self.cells[:, wire, place - 1], self.of)

    def cuts(self, k: int) -> Ints:
        """The places that client k may use, ascending."""
        return np.flatnonzero(self.masks[self.of[k]]) + 1

    def any_of(self, wanted: Bools) -> Bools:
        """For each client, whether it may use at least one of the wanted cuts."""
        return np.take(np.logical_or.reduce(self.masks & wanted, axis=1), self.of)

    def at(self, cut: int) -> Bools:
        """For each client, whether it may use this cut."""
        return np.take(self.masks[:, cut - 1], self.of)


def client_memory(profile: Profile, samples: float, places: Places | None = None) -> Floats:
    """Bits that training a client's layers holds with the activations of so many samples.

    Weights, gradients and optimizer state stay; saved activations grow with the samples. What a head has
    saved is held while its tail is trained.
    """
    places = places or Places.of(len(profile), pairs=False)
    fixed, saved = held_by_layers(profile)
    row = places.first - 1
    if not places.pairs.any():
        return fixed + saved * (samples / profile.batch_size)
    # A tail has its input, and what its layers save: a profile tells that of all layers up to each.
    crossed = np.where(places.pairs, profile.column("smashed_bits")[places.second - 1], 0.0)
    tail = crossed * profile.batch_size + np.maximum(saved[-1] - saved[places.second - 1], 0.0)
    held = (saved[row] + np.where(places.pairs, tail, 0.0)) * (samples / profile.batch_size)
    return on_client(fixed, places) + used_elsewhere(profile.shared or (), places) + held


def held_by_layers(profile: Profile) -> tuple[Floats, Floats]:
    """Bits of layers 1..l: weights, gradients and optimizer state; and what a batch of the profile saves.

    An optimizer that only a profile from elsewhere knows is taken to keep no state, and weights that it does
    not tell of are taken to be those that learn.
    """
    total, learned = profile.column("client_memory_bits"), profile.column("client_bits")
    told = [cut.client_bits if cut.weight_bits is None else cut.weight_bits for cut in profile.cuts]
    weights = np.array(told, dtype=np.float64)
    fixed = np.minimum(total, weights + (1 + OPTIMIZER_STATE.get(profile.optimizer.lower(), 0)) * learned)
    return fixed, total - fixed


def memory_by_wire(problem: "Problem", batch_size: float) -> Floats:
    """Wires × places: what training holds on the client, at its peak.

    Parts in turn are in memory one at a time, and so they are where nothing is cut. Where parts overlap, the
    activations of the whole mini-batch are held, and coded copies of smashed data until they are answered.
    """
    profile, wires, places = problem.profile, problem.wire_costs, problem.places
    parts = min(problem.session.micro_batches, int(batch_size))
    in_turn = client_memory(profile, np.ceil(batch_size / parts), places)
    copies = wires.coded[:, None] * (wires.smashed * batch_size + wires.smashed_message * parts)
    together = client_memory(profile, batch_size, places) + copies
    held = np.where(wires.overlapped[:, None], together, in_turn)
    held[:, places.layers - 1] = in_turn[places.layers - 1]
    return held


def allowed_cuts(problem: "Problem") -> Allowed:
    """The patterns of a fleet; clients with the same limits share one.

    A client's pattern depends on its min_cut, its forbidden cuts, the wires that it can use, whether its
    labels stay, the fixed weights it holds, how much of its smashed data comes again, and on where its memory
    stands among what cuts and wires need, so a million clients with arbitrary memory still have few patterns.
    """
    fleet, costs, places, layers = problem.fleet, problem.wire_costs, problem.places, problem.layers
    sizes, size_of = _values(problem.batch_size)
    needs = np.array([memory_by_wire(problem, size) for size in sizes])
    rank = _memory_rank(needs.reshape(len(sizes), -1), size_of, fleet.memory)
    bans, ban_of = _distinct(fleet.forbidden, len(fleet), frozenset())
    limits, limit_of = _limits(fleet)
    # What a device holds matters only where a model has weights that do not learn.
    frozen = problem.profile.cuts[-1].frozen_bits > 0
    held, held_last = (np.minimum(each, layers) * frozen for each in (fleet.holds, fleet.holds_last))
    new, new_of = _distinct_fresh(problem.fresh, costs)
    # Each number that a pattern depends on, and how many values it may have.
    rules: dict[str, tuple[NDArray[Any] | int, int]] = {
        "size": (size_of, len(sizes)),
        "rank": (rank, needs[0].size + 1),
        "min_cut": (fleet.min_cut, int(fleet.min_cut.max()) + 1),
        "held": (held, layers + 1),
        "held_last": (held_last, layers + 1),
        "new": (new_of, len(new.samples)),
        "ban": (ban_of, len(bans)),
        "limit": (limit_of, len(limits)),
        "keeps": (problem.stay, 2),
    }
    ends = [end for _, end in rules.values()]
    code = np.zeros(len(fleet), dtype=np.int64)
    for rule, end in rules.values():
        code = code * end + rule if end > 1 else code
    codes, of = _values(code)
    of = np.full(len(fleet), of, dtype=np.int64)
    told = dict(zip(rules, np.unravel_index(codes, ends), strict=True))
    cells = np.zeros((len(codes), *needs[0].shape), dtype=bool)
    memory = np.full((len(codes), len(places)), np.inf)
    first = np.zeros(len(codes), dtype=np.int64)
    free, whole = ~ruled_out(problem.profile, places), places.first == layers
    both = np.array([places.first, np.where(places.pairs, places.second, places.first)])
    for row in range(len(codes)):
        banned = np.isin(both, list(bans[told["ban"][row]])).any(axis=0)
        keeping = whole | (places.pairs == told["keeps"][row])
        own = free & (places.first >= told["min_cut"][row]) & ~banned & keeping
        can, need = usable(problem.options, *limits[told["limit"][row]]), needs[told["size"][row]]
        place = told["rank"][row]
        fits = need <= (np.sort(need.ravel())[place - 1] if place else -1.0)
        # The whole model crosses no cut, so that any wire will do for it.
        able = (can[:, None] & costs.known & ~(costs.overlapped[:, None] & places.pairs)) | whole
        cells[row] = own & able & fits
        # A wire that the client can use at some cut, if there is one.
        cutting = can & cells[row][:, ~whole].any(axis=1)
        first[row] = int((cutting if cutting.any() else can).argmax())
        memory[row] = np.where(own & able, need, np.inf).min(axis=0)
    return Allowed(cells, first, of, memory, told["held"], told["held_last"], new.at(told["new"]))


def _values(column: NDArray[Any]) -> tuple[NDArray[Any], Ints | int]:
    """The distinct values of a column, and which one each client has: mostly all have the same."""
    if not np.ptp(column):
        return column[:1], 0
    found, of = np.unique(column, return_inverse=True)
    return found, of


def _distinct_fresh(fresh: Fresh, costs: WireCosts) -> tuple[Fresh, Ints | int]:
    """The distinct sessions by how much of them is new, and which one each client has."""
    if not costs.repeats:
        return Fresh.everything(1), 0
    found, of = np.unique(np.array(fresh), axis=1, return_inverse=True)
    return Fresh(*found), of.ravel()


def _memory_rank(needs: Floats, size_of: Ints | int, memory: Floats) -> Ints:
    """How many cells fit each client's memory, whatever their order."""
    rank = np.full(len(memory), needs.shape[1], dtype=np.int64)
    limited = np.isfinite(memory)
    if not limited.any():
        return rank
    sizes = np.broadcast_to(size_of, len(memory))
    for size, row in enumerate(needs):
        mine = limited & (sizes == size)
        rank[mine] = np.searchsorted(np.sort(row), memory[mine], side="right")
    return rank


_Some = frozenset[str] | None


def _limits(fleet: Fleet) -> tuple[list[tuple[_Some, _Some]], Ints | int]:
    """The distinct pairs of codecs and schedules that clients are limited to, and which one each has."""
    limited = {k: (fleet.codecs.get(k), fleet.schedules.get(k)) for k in {*fleet.codecs, *fleet.schedules}}
    return _distinct(limited, len(fleet), (None, None))


Kind = TypeVar("Kind", bound=Hashable)


def _distinct(given: Mapping[int, Kind], count: int, none: Kind) -> tuple[list[Kind], Ints | int]:
    """The distinct values that some of so many clients have, ``none`` first, and which one each has."""
    if not given:
        return [none], 0
    values = list(dict.fromkeys([none, *given.values()]))
    place = {value: row for row, value in enumerate(values)}
    of = np.zeros(count, dtype=np.int64)
    for k, value in given.items():
        of[k] = place[value]
    return values, of
