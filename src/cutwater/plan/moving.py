"""Cuts planned anew while a round runs, together with the server's shares.

A session that goes in turn is, at cut l and by its share f, one line: what device and link take for the
mini-batches that are left, and work(l) / f. To go on at another cut l' it first has to move the layers
between, with what the optimizer keeps of them, over its link. So each client has a few lines to choose from,
by T the share that it needs is the least of theirs, and the soonest end of all is, as for shares alone
(:mod:`cutwater.plan.again`), the smallest T at which these add up to no more than the server has.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.plan.again import Again, Rest, columns, needs, plan_again
from cutwater.plan.latency import server_work, session_phases
from cutwater.plan.root import smallest_feasible
from cutwater.plan.value import Plan
from cutwater.profile.optimizers import OPTIMIZER_STATE

WORTH = 0.05
"""Of what is left of a round: nothing moves that would not make it shorter by more."""
_SLACK = 0.01
"""Of the soonest end there is: who may stay within that, stays."""
_UNSEEN = 0.5
"""Of what a link was seen to be slower by: so much more may be the link's, too."""


@dataclass(frozen=True)
class Pace:
    """How many times as long as believed a client takes."""

    device: float = 1.0
    up: float = 1.0
    down: float = 1.0


@dataclass(frozen=True)
class Ways:
    """What a whole session takes, in seconds as believed, at each cut that it may have."""

    name: str
    cuts: Ints
    """Ascending."""
    device: Floats
    up: Floats
    down: Floats
    trips: Floats
    """Round trips."""
    work: Floats
    """FLOPs of the server."""
    upload: Floats
    """The client's half to the server, at the end."""
    layers: Floats
    """Bits of the client's half and of what the optimizer keeps of it."""
    rates: tuple[float, float]
    """Bits per second up and down."""

    def rest(self, cut: int, left: float, pace: Pace) -> Rest:
        """What is left of it at a cut, if this part of its mini-batches is."""
        c = self._place(cut)
        away = pace.device * self.device[c] + pace.up * self.up[c] + pace.down * self.down[c] + self.trips[c]
        besides = pace.up * float(self.upload[c])
        return Rest(self.name, (left * float(away),), (left * float(self.work[c]),), besides)

    def transfer(self, cut: int, to: int, pace: Pace) -> float:
        """Seconds that the layers between two cuts take to the other side."""
        bits = float(self.layers[self._place(to)] - self.layers[self._place(cut)])
        return bits / self.rates[1] * pace.down if bits > 0 else -bits / self.rates[0] * pace.up

    def seen(self, cut: int, part: float, away: float, up: float, down: float | None) -> Pace:
        """The pace of a client that took so many seconds away from the server for a part of its mini-batches.

        ``up`` and ``down`` are the rates that were seen; a link is never believed to be faster than planned,
        as buffers make it look. One that became slower is taken to be so both ways, unless more was seen, or
        that would not leave the device the time that was believed of it. Only the end of a part is timed, and
        buffers hide some of that: time that is missing beside a slow link is the link's before it is the
        device's, of which at an early cut so little is known that it would seem to stand still.
        """
        c = self._place(cut)
        parts = (self.device[c], self.up[c], self.down[c], self.trips[c])
        mine, there, back, trips = (part * float(one) for one in parts)
        slow_up = max(self.rates[0] / up, 1.0)
        slow_down = slow_up if down is None else max(slow_up, self.rates[1] / down)
        seen = slow_up * there + slow_down * back
        most = seen + _UNSEEN * (seen - there - back)
        slower = min(max(away - trips - mine, seen), most) / seen if seen > 0 else 1.0
        slow_up, slow_down = slower * slow_up, slower * slow_down
        left = away - trips - slow_up * there - slow_down * back
        device = max(left / mine, 1.0) if mine > 0 else 1.0
        left = away - trips - device * mine - slow_up * there
        return Pace(device, slow_up, min(slow_down, max(left / back, 0.0)) if back > 0 else slow_down)

    def _place(self, cut: int) -> int:
        return int(np.searchsorted(self.cuts, cut))


def ways(plan: Plan, cuts: Mapping[str, Collection[int]]) -> dict[str, Ways]:
    """The split sessions of a plan whose cut may move, by client, each with its own cut and those told.

    Where parts overlap it can't be told what was slow, and where lines are shared another cut would need
    another rate: these stay where they are.
    """
    problem, found = plan.problem, dict[str, Ways]()
    assert problem is not None, "a round is planned for a problem"
    if plan.rates is not None:
        return found
    in_turn = ~problem.wire_costs.overlapped[plan.wires] & (plan.second_cuts == 0)
    for k in np.flatnonzero(plan.split & in_turn).tolist():
        allowed = problem.allowed.cells[problem.allowed.of[k], plan.wires[k]]
        may = {int(cut) for cut in cuts.get(plan.names[k], ()) if allowed[cut - 1]}
        if may - {int(plan.cuts[k])}:
            found[plan.names[k]] = _ways(plan, k, np.array(sorted({*may, int(plan.cuts[k])})))
    return found


def _ways(plan: Plan, k: int, cuts: Ints) -> Ways:
    problem, which = plan.problem, np.array([k])
    assert problem is not None
    phases = session_phases(problem, cuts[:, None], np.inf, which, plan.wires[which])
    kept = 1 + OPTIMIZER_STATE.get(problem.profile.optimizer.lower(), 0)
    work = np.broadcast_to(server_work(problem, cuts[:, None], which), (len(cuts), 1))
    columns = (phases.client, phases.smashed_upload, phases.gradient_download, phases.round_trips)
    device, up, down, trips = (np.broadcast_to(one, (len(cuts), 1))[:, 0] for one in columns)
    upload = np.broadcast_to(phases.model_upload, (len(cuts), 1))[:, 0]
    rates = float(problem.fleet.up[k]), float(problem.fleet.down[k])
    layers = kept * problem.costs.bits[cuts - 1]
    return Ways(plan.names[k], cuts, device, up, down, trips, work[:, 0], upload, layers, rates)


def soonest(choices: Sequence[Sequence[Rest]], compute: float) -> float:
    """Seconds until all of these sessions are done at the soonest, each as one of its choices."""
    table = _Table(choices)
    T = max(min(rest.least for rest in some) for some in choices)
    if table.demand(T) <= compute:
        return T
    high = max(some[0].seconds(compute / len(choices)) for some in choices)

    def demand(T: float) -> tuple[float, float]:
        return table.demand(T), table.demand(float(np.nextafter(T, 0.0)))

    return smallest_feasible(demand, compute, T, high, table.jumps, T).high


def plan_cuts(choices: Sequence[Sequence[Rest]], compute: float) -> tuple[Again, list[int]]:
    """New shares, and which of its choices each session has: the first, which is to stay, unless it pays.

    Not more of them move than are needed for the soonest end there is, within a hundredth.
    """
    stay = plan_again([some[0] for some in choices], compute)
    end = soonest(choices, compute)
    if end > (1 - WORTH) * stay.seconds:
        return stay, [0] * len(choices)
    needed = _Table(choices).needs((1 + _SLACK) * end)
    chosen = [int(np.argmin(each)) for each in needed]
    least = [float(each.min()) for each in needed]
    spare = compute - sum(least)
    more = [float(each[0]) - mine for each, mine in zip(needed, least, strict=True)]
    for k in sorted(range(len(choices)), key=lambda k: more[k]):
        if more[k] <= spare:
            chosen[k], spare = 0, spare - more[k]
    rests = [some[place] for some, place in zip(choices, chosen, strict=True)]
    return plan_again(rests, compute), chosen


class _Table:
    """Choices of all sessions, one row each."""

    def __init__(self, choices: Sequence[Sequence[Rest]]) -> None:
        rests = [rest for some in choices for rest in some]
        self._away, self._work = columns(rests)
        self._starts = np.cumsum([0, *(len(some) for some in choices)])
        self.jumps: Floats = np.unique(self._away[self._work == 0])

    def needs(self, T: float) -> list[Floats]:
        """The share that every choice needs by T, of each session."""
        return np.split(needs(self._away, self._work, T), self._starts[1:-1])

    def demand(self, T: float) -> float:
        """What all need who have chosen best."""
        rows = needs(self._away, self._work, T)
        return float(np.minimum.reduceat(rows, self._starts[:-1]).sum())
