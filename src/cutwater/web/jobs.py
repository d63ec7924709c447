"""Several jobs on the page's server: what a page asks, and the table of `cutwater jobs`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Choice, Many, Number, Quantity, Table, Text
from cutwater.base.schema import Field, Nested, Schema
from cutwater.plan.jobs import MORE, OBJECTIVES, Job, JobPlan, plan_jobs
from cutwater.web.catalogue import Catalogue
from cutwater.web.state import Asked, read_asked

MOST_JOBS = 12
"""Of a page: each is planned anew with every change of the server."""
_JOB = Schema(
    "a job",
    ScenarioError,
    (
        Field("name", Text(), "what it is called"),
        Field("weight", Number(above=0), "how much its time counts"),
        Field("scenario", Table(), "what the page holds of it"),
    ),
)
_JOBS = Schema(
    "the jobs",
    ScenarioError,
    (
        Field("server", Quantity(least=0, per="compute"), "F^max, which they share"),
        Field("objective", Choice(OBJECTIVES), "what is made small", "slowdown"),
        Field("jobs", Many(Nested(_JOB), 1), "the jobs"),
    ),
)


@dataclass(frozen=True, eq=False)
class JobsAsked:
    """Jobs as a page asks for them, and each as a scenario of the page."""

    server: str
    objective: str
    jobs: tuple[Job, ...]
    scenarios: tuple[Asked, ...]


def read_jobs_asked(body: object, catalogue: Catalogue) -> JobsAsked:
    """Check what a page sends, or say in one sentence what is wrong with it."""
    given = _JOBS.read(body)
    assert isinstance(body, Mapping)
    if len(given["jobs"]) > MOST_JOBS:
        raise ScenarioError(
            f"the page has {len(given['jobs'])} jobs, but shows {MOST_JOBS} at most: use cutwater jobs"
        )
    server = body["server"]
    asked = tuple(read_asked(job["scenario"] | {"server": server}, catalogue) for job in given["jobs"])
    jobs = tuple(
        Job(job["name"], scenario.problem, job["weight"])
        for job, scenario in zip(given["jobs"], asked, strict=True)
    )
    return JobsAsked(server, given.get("objective", "slowdown"), jobs, asked)


def jobs_answer(asked: JobsAsked) -> dict[str, Any]:
    """The table of `cutwater jobs`, number for number."""
    plan = plan_jobs(asked.jobs, asked.jobs[0].problem.server, asked.objective)
    return {
        "objective": plan.objective,
        "value": plan.value,
        "lower_bound": plan.lower_bound,
        "server_compute": plan.server_compute,
        "explanation": plan.explain(),
        "more": MORE,
        "jobs": [_row(job) for job in plan.jobs],
    }


def _row(job: JobPlan) -> dict[str, Any]:
    return job.figures | {"clients": len(job.plan), "split": int(job.plan.split.sum())}
