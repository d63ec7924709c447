"""Several jobs (models, each with clients and a session of its own) planned together on one server.

The paper leaves "several models on one server" open. Each job gets a part F_j of the server, and within that
its clients have shares as ever: the plan of a job is the exact planner's for a server of F_j. What is decided
here is the parts, by one of three objectives:

- ``slowest``: the largest of the weighted round times, w_j·T_j, is as small as can be, then the second, and
  so on; exactly (:mod:`cutwater.plan.fastest_jobs`);
- ``slowdown``: the same for w_j·T_j / T_j°, where T_j° is what the job takes with the server to itself
  (finish-time fairness); exactly;
- ``sum``: Σ w_j·T_j is as small as can be, within an interval (:mod:`cutwater.plan.sum_of_jobs`).

What the server is worth to each job is told: what a little more of it for this job alone takes off its round.
Under ``sum``, jobs that are neither stuck nor at a jump have the same weighted derivative, or the parts would
not be the best ones.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

from cutwater.base.errors import PlanError, suggest
from cutwater.base.jsonfile import document
from cutwater.base.kinds import Number, quote
from cutwater.base.speech import by_file
from cutwater.plan.exact import ROUNDING, exact
from cutwater.plan.fastest_jobs import curve_of, share_out
from cutwater.plan.problem import Problem, Server
from cutwater.plan.root import AT_OPTIMUM
from cutwater.plan.sum_of_jobs import smallest_sum
from cutwater.plan.value import Plan

FORMAT = "cutwater.jobs"
VERSION = 1
MORE = 0.01
"""Of the server: how much more a job is asked about to have."""
WEIGHT = Number(above=0)
_NOTHING = 1e-9
"""Of a round: what two plans may differ by rounding alone."""

Objective = Literal["slowest", "slowdown", "sum"]
OBJECTIVES: tuple[str, ...] = get_args(Objective)
_TAKES = {
    "slowest": "the largest weighted round time",
    "slowdown": "the largest weighted slowdown",
    "sum": "the weighted sum of round times",
}


@dataclass(frozen=True)
class Job:
    """One model and those who train it. The server of its problem is the one that all jobs share."""

    name: str
    problem: Problem
    weight: float = 1.0
    """How much its time counts against that of the others."""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name):
            raise PlanError(f"a job's name is {quote(self.name)}, but must be text")
        weight = WEIGHT.check(self.weight, f"the weight of job {self.name!r}", PlanError)
        object.__setattr__(self, "weight", weight)


@dataclass(frozen=True)
class JobPlan:
    """What one job gets, and how its round goes."""

    job: Job
    plan: Plan
    """Of its clients, on its part of the server."""
    undisturbed: Plan
    """The same if it had the server to itself."""
    server: float
    """All of it."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.name

    @property
    def part(self) -> float:
        """F_j in FLOPS."""
        return self.plan.server_compute

    @property
    def latency(self) -> float:
        """T_j, what its round takes."""
        return self.plan.latency

    @property
    def alone(self) -> float:
        """T_j°, what its round would take with the server to itself."""
        return self.undisturbed.latency

    @property
    def slowdown(self) -> float:
        """T_j / T_j°: 1 for a job that the others cost nothing."""
        return self.latency / self.alone if self.alone > 0 else 1.0

    @property
    def marginal(self) -> float:
        """-dT_j/dF_j: the derivative of its round, in seconds for each FLOPS, while cuts stay as they are."""
        return self.plan.marginal[0]

    @property
    def figures(self) -> dict[str, Any]:
        """What a table and a document tell of it in numbers, by name."""
        return {
            "name": self.name,
            "weight": self.job.weight,
            "part": self.part,
            "latency": self.latency,
            "alone": self.alone,
            "slowdown": self.slowdown,
            "marginal_seconds_per_flops": self.marginal,
            "saved_by_more": self.saved,
        }

    @cached_property
    def saved(self) -> float:
        """Seconds off its round if it alone had :data:`MORE` of the server on top, planned anew."""
        more = self.job.problem.at_compute(self.part + MORE * self.server)
        less = self.latency - exact(more, leftover="none").latency
        return less if less > _NOTHING * self.latency else 0.0


@dataclass(frozen=True)
class JobsPlan:
    """All jobs of one server; ``plan["name"]`` is one of them."""

    objective: Objective
    server_compute: float
    jobs: tuple[JobPlan, ...]
    lower_bound: float
    """No plan has a smaller value."""

    @cached_property
    def value(self) -> float:
        """What is made small: seconds, or times as long (``slowdown``)."""
        return _value(self.objective, self.jobs)

    @property
    def gap(self) -> float:
        """How far above the optimum the value can be at most, as a fraction."""
        if self.value == 0:
            return 0.0
        return max(self.value / self.lower_bound - 1, 0.0) if self.lower_bound > 0 else float("inf")

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, name: str) -> JobPlan:
        for job in self.jobs:
            if job.name == name:
                return job
        raise PlanError(f"there is no job {name!r}: {suggest(name, [job.name for job in self.jobs])}")

    def explain(self) -> str:
        """What is made small, how near to the optimum it is, and whom more of the server would help most."""
        found = f"{_TAKES[self.objective]} is {self.value:.6g}"
        found = found[0].upper() + found[1:] + ("" if self.objective == "slowdown" else " s")
        if self.gap <= AT_OPTIMUM:
            return f"{found}: no plan has a smaller one."
        return f"{found}; the optimum is between {self.lower_bound:.6g} and this (a gap of {self.gap:.2g})."

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON document, each job with the plan of its clients."""
        body = {
            "objective": self.objective,
            "value": self.value,
            "lower_bound": self.lower_bound,
            "server_compute": self.server_compute,
            "jobs": [job.figures | {"plan": job.plan.to_json()} for job in self.jobs],
        }
        return document(FORMAT, VERSION, body)


def plan_jobs(jobs: Iterable[Job], server: Server, objective: str = "slowdown") -> JobsPlan:
    """Share a server out among jobs, by an objective above, and plan each of them on its part."""
    all_ = _checked(jobs, server, objective)
    F = server.compute
    undisturbed = [exact(job.problem, leftover="none") for job in all_]
    weights = [job.weight for job in all_]
    if objective == "sum":
        found = smallest_sum([curve_of(job.problem, F) for job in all_], weights, F)
    else:
        scales = weights
        if objective == "slowdown":
            scales = [w / (plan.latency or 1.0) for w, plan in zip(weights, undisturbed, strict=True)]
        curves = [curve_of(job.problem, F, scale) for job, scale in zip(all_, scales, strict=True)]
        found = share_out(curves, F)
    plans = tuple(
        JobPlan(job, exact(job.problem.at_compute(part)), whole, F)
        for job, part, whole in zip(all_, _within(found.parts, F), undisturbed, strict=True)
    )
    bound = min(found.lower * (1 - ROUNDING), _value(objective, plans))
    return JobsPlan(known_objective(objective), F, plans, bound)


def known_objective(objective: str) -> Objective:
    """The objective, if there is one of this name."""
    if objective not in OBJECTIVES:
        raise PlanError(f"there is no objective {objective!r}: {suggest(objective, OBJECTIVES)}")
    return objective  # type: ignore[return-value]


def _checked(jobs: Iterable[Job], server: Server, objective: str) -> list[Job]:
    known_objective(objective)
    all_ = [replace(job, problem=job.problem.replace(server=server)) for job in jobs]
    if not all_:
        raise PlanError("there are no jobs, but a server is shared out to at least one")
    for job in all_:
        if job.problem.band.shared:
            raise PlanError(
                f"job {job.name!r} shares links, but several jobs are planned for links of their own only: "
                f"leave {by_file('[uplink] and [downlink]', 'band')} out, or plan the job by itself"
            )
    names = [job.name for job in all_]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise PlanError(f"two jobs are called {name!r}: give each a name of its own")
    return all_


def _within(parts: Sequence[float], F: float) -> list[float]:
    """The parts, of which rounding must not make more than there is."""
    total = math.fsum(parts)
    return [part * (F / total) for part in parts] if total > F else list(parts)


def _value(objective: str, jobs: Sequence[JobPlan]) -> float:
    if objective == "sum":
        return math.fsum(job.job.weight * job.latency for job in jobs)
    slowed = objective == "slowdown"
    return max(job.job.weight * (job.slowdown if slowed else job.latency) for job in jobs)
