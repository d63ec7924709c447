"""The server's shares planned anew while a round runs: on what is left to do, for those who are left.

What is left of a session is known by its share f: the largest of a few lines away + work / f (one where its
steps go in turn, see :func:`cutwater.plan.latency.session_lines`), and what no share changes besides. All
sessions are to be done as soon as can be, so the end T is the smallest at which the shares that they need,

    f_k(T) = max over lines of  work / (T - besides - away),

add up to no more than the server has: eq. (36) again, with what is left in place of whole sessions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.plan.latency import session_lines
from cutwater.plan.root import smallest_feasible
from cutwater.plan.value import Plan


@dataclass(frozen=True)
class Rest:
    """What is left of a running session."""

    name: str
    away: tuple[float, ...]
    """Of each line: seconds that no share shortens."""
    work: tuple[float, ...]
    """Of each line: FLOPs that the server has to do."""
    besides: float = 0.0
    """Seconds before and after all that: the model's way to the client, if it is on it, and back."""

    def seconds(self, share: float) -> float:
        """Until it is done, with this share from now on; never where there is none to work with."""
        pairs = zip(self.away, self.work, strict=True)
        if share <= 0 and any(self.work):
            return np.inf
        return self.besides + max(away + (work / share if work else 0.0) for away, work in pairs)

    @property
    def least(self) -> float:
        """Until it is done, with all servers of the world."""
        return self.besides + max(self.away)

    def part(self, left: float) -> "Rest":
        """The same with only this part of its mini-batches left."""
        return replace(
            self, away=tuple(left * one for one in self.away), work=tuple(left * one for one in self.work)
        )

    def slower(self, times: float) -> "Rest":
        """The same if its device and link take so many times as long."""
        return replace(self, away=tuple(times * one for one in self.away), besides=times * self.besides)

    def slowness(self, wall: float, server: float) -> float:
        """How many times as long as this its device and link took, if all of it took these seconds.

        ``server`` are those of them in which the server had some of it. The slowness is the one at which
        the longest line is as long as the wall's clock says.
        """
        whole = max(self.work)
        busy = [server * work / whole if whole else 0.0 for work in self.work]
        lines = zip(self.away, busy, strict=True)
        found = min(((wall - there) / away for away, there in lines if away > 0), default=1.0)
        return max(found, 0.0)


@dataclass(frozen=True)
class Again:
    """New shares."""

    seconds: float
    """From now on, until the last session is done."""
    shares: Mapping[str, float]
    """f_k in FLOPS, by client."""


def whole_sessions(plan: Plan) -> dict[str, Rest]:
    """The split sessions of a plan before they have begun, by client."""
    problem, split = plan.problem, np.flatnonzero(plan.split)
    assert problem is not None, "a round is planned for a problem"
    if plan.rates is not None:
        problem = problem.at_rates(*plan.rates)
    by_schedule = problem.wire_costs.overlapped[plan.wires] & (plan.second_cuts == 0)
    phases, found = plan.phases, dict[str, Rest]()
    for overlapped in (False, True):
        some = split[by_schedule[split] == overlapped]
        if not some.size:
            continue
        away, work = session_lines(problem, plan.places[some], some, plan.wires[some], overlapped=overlapped)
        besides = (phases.model_download + phases.model_upload)[some]
        for place, k in enumerate(some.tolist()):
            lines = tuple(away[:, place].tolist()), tuple(work[:, place].tolist())
            found[plan.names[k]] = Rest(plan.names[k], *lines, besides=float(besides[place]))
    return found


def plan_again(rests: Sequence[Rest], compute: float) -> Again:
    """The shares of F^max by which the last of these sessions is done soonest; all of it is given away."""
    away, work = columns(rests)
    floor = float(away.max())

    def demand(T: float) -> tuple[float, float]:
        total = float(needs(away, work, T).sum())
        return total, total

    T = floor
    if demand(floor)[0] > compute:
        equal = compute / len(rests)
        high = max(rest.seconds(equal) for rest in rests)
        pole = float(away.max(where=work > 0, initial=0.0))
        T = smallest_feasible(demand, compute, floor, high, np.empty(0), pole).high
    shares = needs(away, work, T)
    total = float(shares.sum())
    poured = shares * (compute / total) if total > 0 else shares
    return Again(T, {rest.name: float(share) for rest, share in zip(rests, poured, strict=True)})


def needs(away: Floats, work: Floats, T: float) -> Floats:
    """The smallest share by which each session (a row of lines) is done by T; infinite where none is."""
    left = T - away
    idle = np.where((work > 0) | (left < 0), np.inf, 0.0)
    with np.errstate(over="ignore"):  # in next to no time, the need is beyond all numbers
        each = np.divide(work, left, out=idle, where=left > 0)
    found: Floats = each.max(axis=1)
    return found


def seconds_by(rests: Sequence[Rest], shares: Mapping[str, float], compute: float) -> float:
    """Until the last of these sessions is done if they keep their shares.

    What others have left of the server is theirs, in proportion: a fair queue sees to that.
    """
    total = sum(shares[rest.name] for rest in rests)
    more = compute / total if total > 0 else 0.0
    return max(rest.seconds(shares[rest.name] * more) for rest in rests)


def columns(rests: Sequence[Rest]) -> tuple[Floats, Floats]:
    """Away (with all besides) and work of all lines, sessions × lines; who has fewer has its first again."""
    most = max(len(rest.away) for rest in rests)
    away = [[rest.besides + one for one in _padded(rest.away, most)] for rest in rests]
    return np.array(away), np.array([_padded(rest.work, most) for rest in rests])


def _padded(line: tuple[float, ...], most: int) -> tuple[float, ...]:
    return line + line[:1] * (most - len(line))
