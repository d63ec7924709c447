"""The rivals: FedAvg, SplitFed, greedy and random plans. None of them is optimal; all are fast and honest."""

import heapq
import re

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import PlanError
from cutwater.base.kinds import Whole
from cutwater.plan.latency import latency, quickest, server_work
from cutwater.plan.places import place_of, shown_cuts
from cutwater.plan.problem import Problem
from cutwater.plan.value import Plan, assemble

MOST_PORTIONS = 100_000
"""Of the server, for greedy; what they would give is worked out for all of them at once."""
MOST_SEED = 2**64 - 1


def fedavg(problem: Problem, /) -> Plan:
    """Every client trains the whole model (eq. (19)); the server's compute stays unused."""
    _require(problem, problem.layers, "FedAvg")
    return assemble(problem, "fedavg", problem.layers, 0.0)


@np.errstate(over="ignore")
def splitfed(problem: Problem, /, *, cut: int | str | None = None) -> Plan:
    """One fixed cut for all and equal shares, as SplitFed trains.

    Without a ``cut`` it is the smallest that all clients may use; ``"best"`` tries them all, and ``"2-5"`` is
    a pair of cuts, where labels stay.
    """
    common = _common_cuts(problem)
    if cut is None:
        place = int(common[0])
    elif cut == "best":
        share = problem.server.compute / len(problem)
        slowest = [float(latency(problem, int(each), share).max()) for each in common]
        place = int(common[int(np.argmin(slowest))])
    else:
        place = _wanted(problem, cut)
        _require(problem, place, f"SplitFed at {shown_cuts(*_pair(problem, place))}")
    first, second = _pair(problem, place)
    outcome = f"{shown_cuts(first, second)} for all"
    share = problem.server.compute / len(problem)
    return assemble(problem, "splitfed", first, share, second_cuts=second, outcome=outcome)


def _wanted(problem: Problem, cut: int | str) -> int:
    """The place of a cut, or of a pair that is written as "2-5"."""
    pair = re.fullmatch(r"(\d+)-(\d+)", cut) if isinstance(cut, str) else None
    if pair is None:
        otherwise = ", a pair such as '2-5' or 'best'" if problem.stay.any() else " or 'best'"
        Whole(1, problem.layers - 1, otherwise=otherwise).check(cut, "cut", PlanError)
        return int(cut)
    first, second = map(int, pair.groups())
    if not 1 <= first < second < problem.layers:
        raise PlanError(
            f"cut is {cut!r}, but a pair of cuts has numbers from 1 to {problem.layers - 1}, the second "
            "above the first"
        )
    if not problem.stay.any():
        raise PlanError(f'cut is {cut!r}, but a pair needs labels = "stay" in [session]: labels go up here')
    return int(place_of(first, second, problem.layers))


def _pair(problem: Problem, place: int) -> tuple[int, int]:
    first, second = problem.places.cuts(place)
    return int(first), int(second)


def splitfed_best(problem: Problem, /) -> Plan:
    """SplitFed at the best of its cuts."""
    return splitfed(problem, cut="best")


def random(problem: Problem, /, *, seed: int = 0) -> Plan:
    """A random allowed cut for each client and random shares for those that are split."""
    Whole(0, MOST_SEED).check(seed, "seed", PlanError)
    rng = np.random.default_rng(seed)
    allowed = problem.allowed
    masks = allowed.masks if problem.server.compute else allowed.masks & (problem.costs.server == 0)
    choices = np.argsort(~masks, axis=1, kind="stable")
    place = (rng.random(len(problem)) * masks.sum(axis=1)[allowed.of]).astype(np.int64)
    cuts: Ints = choices[allowed.of, place] + 1
    weight = np.where(server_work(problem, cuts) > 0, rng.exponential(size=len(problem)) + 1e-3, 0.0)
    shares = problem.server.compute * weight / max(float(weight.sum()), 1e-300)
    first, second = problem.places.cuts(cuts)
    return assemble(problem, "random", first, shares, second_cuts=second, outcome=f"seed {seed}")


@np.errstate(over="ignore")
def greedy(problem: Problem, /, *, portions: int = 200) -> Plan:
    """Give the server away in equal portions, always to the client that is slowest now, at its best cut.

    A client that no affordable number of portions makes faster ends it: nothing else shortens the round.
    """
    Whole(1, MOST_PORTIONS).check(portions, "portions", PlanError)
    free = np.flatnonzero(problem.costs.server == 0) + 1
    latencies, cuts, _ = quickest(problem, ((int(cut), None) for cut in free), np.inf)
    shares = np.zeros(len(problem))
    waiting = np.flatnonzero(cuts == 0)
    left = max(portions, 2 * waiting.size)
    portion = problem.server.compute / left
    for k in map(int, waiting):
        cuts[k], latencies[k] = _best_cuts(problem, k, np.array([portion]))[0]
        shares[k] = portion
    left -= waiting.size
    slowest = [(-float(seconds), k) for k, seconds in enumerate(latencies)]
    heapq.heapify(slowest)
    while left and portion:
        seconds, k = slowest[0]
        for most in (1, left):  # one portion nearly always helps; a first share may take several
            offers = _best_cuts(problem, k, shares[k] + portion * np.arange(1, most + 1))
            faster = next((i for i, (_, offer) in enumerate(offers) if offer < -seconds), None)
            if faster is not None:
                break
        else:
            break
        left -= faster + 1
        shares[k] += (faster + 1) * portion
        cuts[k] = offers[faster][0]
        heapq.heapreplace(slowest, (-offers[faster][1], k))
    first, second = problem.places.cuts(cuts)
    return assemble(
        problem, "greedy", first, shares, second_cuts=second, outcome=f"{left} portions left over"
    )


def _best_cuts(problem: Problem, k: int, shares: Floats) -> list[tuple[int, float]]:
    """The best cut of client k and its latency, for each of the shares that it might get."""
    cuts = problem.allowed.cuts(k)
    seconds = latency(problem, cuts[:, None], shares, k)
    best = seconds.argmin(axis=0)
    return [(int(cuts[i]), float(seconds[i, j])) for j, i in enumerate(best)]


def _common_cuts(problem: Problem) -> Ints:
    masks = problem.allowed.masks[np.unique(problem.allowed.of)]
    common = np.flatnonzero(np.logical_and.reduce(masks, axis=0)) + 1
    common = np.setdiff1d(common, [problem.layers])
    if not common.size:
        raise PlanError(f"SplitFed needs one cut that all clients may use, but {_why_none(problem)}")
    if problem.server.compute == 0:
        raise PlanError("SplitFed needs a server with compute to share, but it has 0 FLOPS")
    return common


def _why_none(problem: Problem) -> str:
    """Why clients have no cut in common: often the model itself has none."""
    reasons = [cut.ruled_out for cut in problem.profile.cuts[:-1]]
    if not reasons:
        return f"{problem.profile.model!r} has one layer and can't be cut"
    if all(reasons) and not problem.stay.any():
        pairs = '; labels = "stay" allows pairs of cuts' if len(reasons) > 1 else ""
        return f"{problem.profile.model!r} can't be cut anywhere: {reasons[0]}{pairs}"
    return "their limits leave none in common"


def _require(problem: Problem, cut: int, what: str) -> None:
    stuck = np.flatnonzero(~problem.allowed.at(cut))
    if stuck.size:
        name = problem.fleet.names[stuck[0]]
        first, second = _pair(problem, cut)
        limits = "its min_cut, memory or forbidden cuts rule it out"
        if cut < problem.layers and problem.stay[stuck[0]]:
            limits = "its labels stay, which takes a pair of cuts"
        elif not second and (tied := problem.profile.cuts[cut - 1].ruled_out):
            limits = tied
        raise PlanError(
            f"{what} needs {shown_cuts(first, second)} for every client, but client {name!r} can't use it: "
            f"{limits}"
        )
