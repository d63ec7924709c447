"""A problem as the few arrays that the exact planner's inner loops run over.

A *cell* is a place (a cut, or a pair of cuts) and a wire. With the weights of client k,

    link = 1/up + 1/down,  on_client = N/f^C,  on_up = N/up,  on_down = N/down,  once = 1/down,
    heads_up = parts/up,  heads_down = parts/down,  trips = parts·rtt (with a tail, twice that),

what no share of the server can shorten of a session in turn is a_k = link·bits + on_client·client +
on_up·smashed + on_down·gradient + once·fixed + heads_up·head_up + heads_down·head_down + trips: products with
rows that only depend on the cell (a head is what a codec adds to each part), and on which fixed weights a
client holds already and how much of its smashed data comes again, which clients of one pattern have alike.

A session whose parts overlap takes the longest of several such sums (:mod:`cutwater.plan.schedule`). One of
them is the path along the server: the first part until the server has it, all parts at the server, the last
part from there on; others go along the links. They are lower bounds that cost no more than a session in turn
does, and spare the inner loops most of the exact ones.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cutwater.base.arrays import Bools, Floats, Ints
from cutwater.plan import kernel
from cutwater.plan.kernel import PLAIN
from cutwater.plan.latency import quickest
from cutwater.plan.problem import Problem

ROWS: Final = 11
"""bits, client, smashed, gradient, server, fixed, head up, head down, client forward, client backward, and 1
for the other round trip of a cell with a tail."""
NOT_SEEN: Final = (-1.0, 0.0, -np.inf)
"""Of a client: the cell that was the best when it was last looked at, an x, what the others took there."""


@dataclass(frozen=True)
class CutTables:
    """What depends on the cell alone, once for each pattern of allowed cells."""

    cuts: Ints
    """The place of each cell: those that leave work to the server."""
    wires: Ints
    turns: int
    """So many cells, the first ones, go in turn; the parts of the others overlap."""
    rows: Floats
    """Patterns × ROWS × cells; bits are infinite where a cell is forbidden."""
    scaled: Floats
    """The same over server, but for server itself, which is 1 / server; all 0 where a cell is forbidden.

    Then N / max over cells of (T·scaled[4] - weights·scaled) is need_k(T): the smallest share that has client
    k done by T is found without a division for each cell, and a forbidden cell never wins. Only the
    first PLAIN of them where the rest would add nothing: all cells in turn and of one cut, no heads, no
    weights that stay fixed.
    """

    @classmethod
    def of(cls, problem: Problem) -> "CutTables":
        """Lay out the costs of a problem's cells."""
        costs, crossing = problem.costs, problem.wire_costs
        busy = np.flatnonzero(costs.server > 0)
        grid = np.meshgrid(np.arange(len(problem.options)), busy, indexing="ij")
        wire, cut = (each.ravel() for each in grid)
        plain = np.array(
            [
                costs.bits[cut],
                costs.client[cut],
                np.zeros(len(cut)),
                crossing.gradient[wire, cut],
                costs.server[cut],
                np.zeros(len(cut)),
                np.zeros(len(cut)),
                crossing.gradient_message[wire, cut],
                costs.client_forward[cut],
                costs.client_backward[cut],
                costs.places.pairs[cut],
            ]
        )
        masks = problem.allowed.cells[:, wire, cut]
        rows = np.empty((len(masks), *plain.shape))
        rows[:] = plain
        rows[:, 5] = costs.once_after(
            cut, problem.allowed.holds[:, None], problem.allowed.holds_last[:, None]
        )
        fresh = problem.allowed.fresh.at((slice(None), None))
        rows[:, 2], rows[:, 6] = crossing.up(wire, cut, fresh)
        turns = int(np.count_nonzero(~crossing.overlapped[wire]))
        more = rows[:, PLAIN : PLAIN + 3].any() or rows[:, 10].any()
        needed = rows if more or turns < len(cut) else rows[:, :PLAIN]
        scaled = needed / plain[4]
        scaled[:, 4] = 1 / plain[4]
        rows[:, 0][~masks] = np.inf
        scaled[np.broadcast_to(~masks[:, None], scaled.shape)] = 0.0
        return cls(cut + 1, wire, turns, rows, scaled)

    def only(self, cells: Bools) -> "CutTables":
        """Some of the cells."""
        turns = int(np.count_nonzero(cells[: self.turns]))
        kept = (self.rows[:, :, cells], self.scaled[:, :, cells])
        return CutTables(self.cuts[cells], self.wires[cells], turns, *map(np.ascontiguousarray, kept))


def undominated(problem: Problem, table: CutTables) -> Bools:
    """Cells that can be the best for somebody: not those that another wire at the same cut is never behind.

    Overlapping is never slower than going in turn, and fewer bits are never slower than more. A pair of cuts
    that costs no less than another in anything is left out as well.
    """
    count = len(problem.options)
    if not len(table.cuts):
        return np.ones(len(table.cuts), dtype=bool)
    by_wire = np.ones(len(table.cuts), dtype=bool) if count == 1 else _undominated_wires(problem, table)
    return by_wire & ~_dominated_pairs(problem, table)


def _dominated_pairs(problem: Problem, table: CutTables) -> Bools:
    """Pairs of cuts that another pair by the same wire is never behind, for any client.

    What client and server compute adds up to the same for all pairs. So only those that leave exactly as much
    to the server are compared: a model of equal blocks has a few of each kind left, not the square of them.
    """
    dominated = np.zeros(len(table.cuts), dtype=bool)
    pairs = np.flatnonzero(table.cuts > problem.layers)
    if not pairs.size:
        return dominated
    # Forbidden cells have infinite bits: whoever is allowed less is never better.
    cost = table.rows[:, :, pairs].reshape(-1, len(pairs))
    kinds = np.array([table.wires[pairs], table.rows[0, 4, pairs]])
    alike = np.unique(kinds, axis=1, return_inverse=True)[1].ravel()
    for group in np.split(np.argsort(alike, kind="stable"), np.cumsum(np.bincount(alike))[:-1]):
        kept: list[int] = []
        # The cheapest in sum comes first, so that none that is kept is dominated by a later one.
        with np.errstate(invalid="ignore"):
            order = group[np.argsort(cost[:, group].sum(axis=0), kind="stable")]
        for cell in order.tolist():
            if kept and (cost[:, kept] <= cost[:, cell : cell + 1]).all(axis=0).any():
                dominated[pairs[cell]] = True
            else:
                kept.append(cell)
    return dominated


def _undominated_wires(problem: Problem, table: CutTables) -> Bools:
    count = len(problem.options)
    overlapped = problem.wire_costs.overlapped
    # Samples of the smallest part of any client's mini-batches.
    parts = (kind.last_size.min(where=kind.count > 0, initial=np.inf) for kind in problem.steps.kinds)
    smallest = min(map(float, parts))
    by_wire = table.rows.reshape(len(table.rows), ROWS, count, -1)
    allowed = np.isfinite(by_wire[:, 0])
    # Of every wire against every other at every cut.
    never_behind = (overlapped[:, None] >= overlapped)[:, :, None]
    never_behind = never_behind & (allowed[:, :, None] | ~allowed[:, None]).all(axis=0)
    for sample, message in ((by_wire[:, 2], by_wire[:, 6]), (by_wire[:, 3], by_wire[:, 7])):
        least = sample * smallest + message
        no_more = (sample[:, :, None] <= sample[:, None]) & (least[:, :, None] <= least[:, None])
        never_behind &= no_more.all(axis=0)
    # Of two that are never behind each other, the first stays.
    first = np.arange(count)[:, None] < np.arange(count)
    better = never_behind & (first[:, :, None] | ~never_behind.transpose(1, 0, 2))
    dominated: Bools = np.logical_or.reduce(better, axis=0).ravel()
    return ~dominated


@dataclass(frozen=True)
class ClientTables:
    """Some clients of a problem, beside the cells."""

    by_cut: CutTables
    pattern: Ints
    weights: Floats
    """Of each client: link, on_client, on_up, on_down, N, once, heads_up, heads_down, trips.

    Where cells overlap, then for the paths along one station: samples of first parts over f^C and over up,
    steps/up, samples of last parts over down and over f^C, steps/down, steps·rtt. Then 1/f^C, 1/up, rtt, and
    of both kinds of mini-batches their number and n₁, size, n₂, size of their parts. Then the samples of
    first and last parts.
    """
    alone: Floats
    """T̃_k: the best latency without any share; infinite if the client can't do without."""
    seen: Floats
    """What the inner loops remember of each client between calls, where cells overlap."""

    @classmethod
    def of(cls, problem: Problem, by_cut: CutTables, alone: Floats, clients: Ints) -> "ClientTables":
        """Lay out some of the clients; ``alone`` is for all of them."""
        columns, seen = _in_turn(problem, by_cut, clients), np.zeros((len(clients), len(NOT_SEEN)))
        if by_cut.turns < len(by_cut.cuts):
            columns += _overlapped(problem, clients)
            seen[:] = NOT_SEEN
        weights = np.empty((len(clients), len(columns)))
        for place, column in enumerate(columns):
            weights[:, place] = column
        return cls(by_cut, problem.allowed.of[clients], weights, alone[clients], seen)

    def take(self, clients: Ints | Bools) -> "ClientTables":
        """Some of these clients."""
        return ClientTables(
            self.by_cut,
            self.pattern[clients],
            self.weights[clients],
            self.alone[clients],
            self.seen[clients],
        )

    def with_alone(self, alone: Floats) -> "ClientTables":
        """The same clients with other T̃, by which a search marks what it has settled."""
        return ClientTables(self.by_cut, self.pattern, self.weights, alone, self.seen)

    def demand(self, T: float) -> tuple[float, float]:
        """Σ need_k at T, and just below it; the two differ where T is a jump."""
        found: tuple[float, float] = kernel.demand(T, *self.laid_out)
        return found

    def needs(self, T: float, done: float | None = None) -> Floats:
        """need_k(T) of every client; with T for ``done``, what they need just below it."""
        found = np.empty(len(self.alone))
        kernel.needs(T, np.nextafter(T, np.inf) if done is None else done, self.laid_out, found)
        return found

    def extremes(self, equal: float) -> tuple[float, Floats]:
        """T of giving every client so large a share, and min over l of a_k(l): below that none helps k."""
        least = np.empty(len(self.alone))
        ceiling = kernel.extremes(self.laid_out, equal, least)
        return ceiling, least

    @cached_property
    def laid_out(self) -> kernel.Clients:
        """All this as the inner loops take it."""
        cells = self.by_cut
        return kernel.Clients(
            self.pattern, self.weights, self.alone, cells.scaled, cells.rows, cells.turns, self.seen
        )


def _in_turn(problem: Problem, by_cut: CutTables, clients: Ints) -> list[Floats]:
    fleet, work = problem.fleet, problem.work[clients]
    up, down = fleet.up[clients], fleet.down[clients]
    # How many messages there are does not matter where they cost nothing, and takes a while to count.
    free = by_cut.scaled.shape[1] == PLAIN and not fleet.rtt.any()
    parts = np.zeros(len(clients)) if free else problem.steps.parts[clients]
    return [
        1 / up + 1 / down,
        work / fleet.compute[clients],
        work / up,
        work / down,
        work,
        1 / down,
        parts / up,
        parts / down,
        parts * fleet.rtt[clients],
    ]


def _overlapped(problem: Problem, clients: Ints) -> list[Floats]:
    fleet, steps = problem.fleet, problem.steps
    compute, up, down, rtt = (c[clients] for c in (fleet.compute, fleet.up, fleet.down, fleet.rtt))
    count = steps.count[clients]
    full, other = steps.kinds
    first = (full.count * full.larger_size + other.count * other.larger_size)[clients]
    last = (full.count * full.last_size + other.count * other.last_size)[clients]
    along = [first / compute, first / up, count / up, last / down, last / compute, count / down, count * rtt]
    kinds = [
        column[clients]
        for kind in steps.kinds
        for column in (kind.count, kind.larger, kind.larger_size, kind.smaller, kind.smaller_size)
    ]
    return [*along, 1 / compute, 1 / up, rtt, *kinds, first, last]


def without_server(problem: Problem) -> tuple[Floats, Ints, Ints]:
    """T̃_k, its cut and wire: eq. (19), or a cut whose remaining layers cost no FLOPs, where that is quicker.

    Infinite, and cut 0, for a client that can't do without the server.
    """
    return quickest(problem, without_work(problem), 0.0)


def without_work(problem: Problem) -> list[tuple[int, int]]:
    """Cuts that leave the server nothing, by every wire: the whole model, then what is nearest to it."""
    free = np.flatnonzero(problem.costs.server == 0)[::-1] + 1
    nearest = free[np.argsort(free > problem.layers, kind="stable")].tolist()
    wires = range(len(problem.options))
    return [(cut, wire) for cut in nearest for wire in (wires if cut != problem.layers else (0,))]
