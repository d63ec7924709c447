"""Which cuts each client may use, and by which wires, kept as a few distinct patterns."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan.costs import WireCosts
from cutwater.plan.fleet import Fleet
from cutwater.plan.session import Session, Wire, usable
from cutwater.profile.optimizers import OPTIMIZER_STATE
from cutwater.profile.values import Profile


@dataclass(frozen=True)
class Allowed:
    """``cells[of[k], w, l - 1]`` says whether client k may use cut l by wire w.

    Planners that know nothing of wires use each client's first one: ``masks[of[k], l - 1]``.
    """

    cells: Bools
    first: Ints
    """The first wire that the clients of each pattern can use, at some cut if at any."""
    of: Ints
    memory: Floats
    """Bits that each pattern's cuts hold by the leanest wire; infinite where another rule forbids the cut."""
    holds: Ints
    """Of how many layers the clients of each pattern have the fixed weights; 0 where there are none."""

    @property
    def masks(self) -> Bools:
        """Cuts that are allowed by the first wire of each pattern."""
        rows: Bools = self.cells[np.arange(len(self.first)), self.first]
        return rows

    def cuts(self, k: int) -> Ints:
        """The cuts that client k may use, ascending."""
        return np.flatnonzero(self.masks[self.of[k]]) + 1

    def any_of(self, wanted: Bools) -> Bools:
        """For each client, whether it may use at least one of the wanted cuts."""
        return np.take(np.logical_or.reduce(self.masks & wanted, axis=1), self.of)

    def at(self, cut: int) -> Bools:
        """For each client, whether it may use this cut."""
        return np.take(self.masks[:, cut - 1], self.of)

    def clients_without_any(self) -> Ints:
        """Clients that no cut is left for."""
        return np.flatnonzero(~np.take(self.cells.any(axis=(1, 2)), self.of))

    def least_memory(self, k: int) -> float | None:
        """What the leanest cut needs that only memory rules out, or None if other rules leave no cut."""
        least = float(self.memory[self.of[k]].min())
        return least if np.isfinite(least) else None


def client_memory(profile: Profile, samples: float) -> Floats:
    """Bits that training layers 1..l holds with the activations of so many samples.

    Weights, gradients and optimizer state stay; saved activations grow with the samples. An optimizer that
    only a profile from elsewhere knows is taken to keep no state, and weights that it does not tell of are
    taken to be those that learn.
    """
    total, learned = profile.column("client_memory_bits"), profile.column("client_bits")
    told = [cut.client_bits if cut.weight_bits is None else cut.weight_bits for cut in profile.cuts]
    weights = np.array(told, dtype=np.float64)
    fixed = np.minimum(total, weights + (1 + OPTIMIZER_STATE.get(profile.optimizer.lower(), 0)) * learned)
    return fixed + (total - fixed) * (samples / profile.batch_size)


def memory_by_wire(profile: Profile, batch_size: float, session: Session, wires: WireCosts) -> Floats:
    """Wires × cuts: what training holds on the client, at its peak.

    Parts in turn are in memory one at a time, and so they are where nothing is cut. Where parts overlap, the
    activations of the whole mini-batch are held, and coded copies of smashed data until they are answered.
    """
    parts = min(session.micro_batches, int(batch_size))
    in_turn = client_memory(profile, np.ceil(batch_size / parts))
    copies = wires.coded[:, None] * (wires.smashed * batch_size + wires.smashed_message * parts)
    together = client_memory(profile, batch_size) + copies
    held = np.where(wires.overlapped[:, None], together, in_turn)
    held[:, -1] = in_turn[-1]
    return held


def allowed_cuts(
    profile: Profile,
    fleet: Fleet,
    batch_size: Floats,
    session: Session,
    wires: Sequence[Wire],
    costs: WireCosts,
) -> Allowed:
    """The patterns of a fleet; clients with the same limits share one.

    A client's pattern depends on its min_cut, its forbidden cuts, the wires that it can use, the fixed
    weights it holds, and on where its memory stands among what cuts and wires need, so a million clients with
    arbitrary memory still have few patterns.
    """
    layers = len(profile)
    free = np.array([cut.ruled_out is None for cut in profile.cuts])
    sizes, size_of = np.unique(batch_size, return_inverse=True) if np.ptp(batch_size) else (batch_size[:1], 0)
    needs = np.array([memory_by_wire(profile, size, session, costs) for size in sizes])
    rank = _memory_rank(needs.reshape(len(sizes), -1), size_of, fleet.memory)
    bans, ban_of = _distinct(fleet.forbidden, len(fleet), frozenset())
    limits, limit_of = _limits(fleet)
    # What a device holds matters only where a model has weights that do not learn.
    held = np.minimum(fleet.holds, layers) if profile.cuts[-1].frozen_bits else 0
    ranks = needs[0].size + 1
    code = (size_of * ranks + rank) * (layers + 1) + np.minimum(fleet.min_cut, layers)
    code = ((code * (layers + 1) + held) * len(bans) + ban_of) * len(limits) + limit_of
    codes, of = (
        np.unique(code, return_inverse=True) if np.ptp(code) else (code[:1], np.zeros(len(fleet), np.int64))
    )
    cells = np.zeros((len(codes), *needs[0].shape), dtype=bool)
    memory = np.full((len(codes), layers), np.inf)
    first, holds = np.zeros(len(codes), dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
    numbers = np.arange(1, layers + 1)
    for row, number in enumerate(codes):
        rest, limit = divmod(int(number), len(limits))
        rest, ban = divmod(rest, len(bans))
        rest, holds[row] = divmod(rest, layers + 1)
        rest, min_cut = divmod(rest, layers + 1)
        size, place = divmod(rest, ranks)
        rules = free & (numbers >= min_cut) & ~np.isin(numbers, list(bans[ban]))
        can = usable(wires, *limits[limit])
        fits = needs[size] <= (np.sort(needs[size].ravel())[place - 1] if place else -1.0)
        # The whole model crosses no cut, so that any wire will do for it.
        able = (can[:, None] & costs.known) | (numbers == layers)
        cells[row] = rules & able & fits
        # A wire that the client can use at some cut, if there is one.
        cutting = can & cells[row, :, :-1].any(axis=1)
        first[row] = int((cutting if cutting.any() else can).argmax())
        memory[row] = np.where(rules & able, needs[size], np.inf).min(axis=0)
    return Allowed(cells, first, of.astype(np.int64), memory, holds)


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
