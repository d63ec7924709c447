"""Which cuts each client may use, kept as a few distinct patterns rather than a K × L table."""

from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan.fleet import Fleet
from cutwater.profile.optimizers import OPTIMIZER_STATE
from cutwater.profile.values import Profile


@dataclass(frozen=True)
class Allowed:
    """``masks[of[k], l - 1]`` says whether client k may use cut l."""

    masks: Bools
    of: Ints
    memory: Floats
    """Bits that each pattern's cuts would hold; infinite where another rule forbids the cut."""
    holds: Ints
    """Of how many layers the clients of each pattern have the fixed weights; 0 where there are none."""

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
        return np.flatnonzero(~self.any_of(np.ones(self.masks.shape[1], dtype=bool)))

    def least_memory(self, k: int) -> float | None:
        """What the leanest cut needs that only memory rules out, or None if other rules leave no cut."""
        least = float(self.memory[self.of[k]].min())
        return least if np.isfinite(least) else None


def client_memory(profile: Profile, batch_size: float) -> Floats:
    """Bits that training layers 1..l holds at a batch size other than the profile's.

    Weights, gradients and optimizer state stay; saved activations grow with the batch. An optimizer that
    only a profile from elsewhere knows is taken to keep no state, and weights that it does not tell of are
    taken to be those that learn.
    """
    total, learned = profile.column("client_memory_bits"), profile.column("client_bits")
    told = [cut.client_bits if cut.weight_bits is None else cut.weight_bits for cut in profile.cuts]
    weights = np.array(told, dtype=np.float64)
    fixed = np.minimum(total, weights + (1 + OPTIMIZER_STATE.get(profile.optimizer.lower(), 0)) * learned)
    return fixed + (total - fixed) * (batch_size / profile.batch_size)


def allowed_cuts(profile: Profile, fleet: Fleet, batch_size: Floats) -> Allowed:
    """The patterns of a fleet; clients with the same limits share one.

    A client's pattern depends on its min_cut, its forbidden cuts, the fixed weights it holds, and on where
    its memory stands among what the cuts need, so a million clients with arbitrary memory still have few
    patterns.
    """
    layers = len(profile)
    free = np.array([cut.ruled_out is None for cut in profile.cuts])
    sizes, size_of = np.unique(batch_size, return_inverse=True) if np.ptp(batch_size) else (batch_size[:1], 0)
    needs = np.array([client_memory(profile, size) for size in sizes])
    rank = _memory_rank(needs, size_of, fleet.memory)
    bans, ban_of = _bans(fleet)
    code = (size_of * (layers + 1) + rank) * (layers + 1) + np.minimum(fleet.min_cut, layers)
    # What a device holds matters only where a model has weights that do not learn.
    held = np.minimum(fleet.holds, layers) if profile.cuts[-1].frozen_bits else 0
    code = (code * (layers + 1) + held) * len(bans) + ban_of
    codes, of = (
        np.unique(code, return_inverse=True) if np.ptp(code) else (code[:1], np.zeros(len(fleet), np.int64))
    )
    masks, memory = np.zeros((len(codes), layers), dtype=bool), np.full((len(codes), layers), np.inf)
    numbers, holds = np.arange(1, layers + 1), np.zeros(len(codes), dtype=np.int64)
    for row, number in enumerate(codes):
        rest, ban = divmod(int(number), len(bans))
        rest, holds[row] = divmod(rest, layers + 1)
        rest, min_cut = divmod(rest, layers + 1)
        size, place = divmod(rest, layers + 1)
        rules = free & (numbers >= min_cut) & ~np.isin(numbers, list(bans[ban]))
        masks[row] = rules & (needs[size] <= (np.sort(needs[size])[place - 1] if place else -1.0))
        memory[row] = np.where(rules, needs[size], np.inf)
    return Allowed(masks, of.astype(np.int64), memory, holds)


def _memory_rank(needs: Floats, size_of: Ints | int, memory: Floats) -> Ints:
    """How many cuts fit each client's memory, whatever their order."""
    rank = np.full(len(memory), needs.shape[1], dtype=np.int64)
    limited = np.isfinite(memory)
    if not limited.any():
        return rank
    sizes = np.broadcast_to(size_of, len(memory))
    for size, row in enumerate(needs):
        mine = limited & (sizes == size)
        rank[mine] = np.searchsorted(np.sort(row), memory[mine], side="right")
    return rank


def _bans(fleet: Fleet) -> tuple[list[frozenset[int]], Ints | int]:
    """The distinct sets of forbidden cuts, and which one each client has."""
    if not fleet.forbidden:
        return [frozenset()], 0
    bans = [frozenset[int](), *sorted(set(fleet.forbidden.values()) - {frozenset()}, key=sorted)]
    place = {cuts: row for row, cuts in enumerate(bans)}
    of = np.zeros(len(fleet), dtype=np.int64)
    for k, cuts in fleet.forbidden.items():
        of[k] = place[cuts]
    return bans, of
