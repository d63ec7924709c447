"""Several jobs on one server, as a TOML file: what they share at the top, a [[job]] table for each.

::

    objective = "slowdown"
    [server]   compute = "3000 GFLOPS"
    [[job]]    name = "phones"    scenario = "phones.toml"
    [[job]]    name = "cameras"   weight = 2
    [job.model]     …
    [job.session]   …
    [[job.client]]  …

A job is a scenario: another file, whose own [server] is passed over, or the sections of one below [[job]].
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cutwater.base.errors import CutwaterError, ScenarioError
from cutwater.base.kinds import Choice, Number, Table, Text
from cutwater.base.schema import Field, Schema, Told, check, described, read, schema_of
from cutwater.base.toml import to_toml
from cutwater.base.usercode import look_beside
from cutwater.plan.jobs import OBJECTIVES, Job, JobsPlan, plan_jobs
from cutwater.plan.problem import Server
from cutwater.scenario.file import Scenario, mistakes_in, named_file, read_scenario, read_tables
from cutwater.scenario.sections import SECTIONS, TOP, TableList


@described("[[job]]", ScenarioError)
@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The keys of a [[job]] table that are no section of a scenario."""

    name: Annotated[str, Text(), "what it is called", Told("`job1`, `job2`, …")]
    weight: Annotated[float, Number(above=0), "how much its time counts against that of the others"] = 1.0
    scenario: Annotated[
        str | None,
        Text(file=True),
        "a scenario file that the job is, but for its `[server]`",
        Told("the sections of one, such as `[job.model]` and `[[job.client]]`"),
    ] = None

    def __post_init__(self) -> None:
        check(self)


_FILES = tuple(
    (section, field.key)
    for section, schema in (("", TOP), *((one.key, one.schema) for one in SECTIONS.values() if not one.many))
    for field in schema
    if isinstance(field.kind, Text) and field.kind.file
)
"""Keys of a scenario that name files: the section, none at the top, and the key."""
JOB = schema_of(JobSettings)
JOBS = Schema(
    "the jobs",
    ScenarioError,
    (
        Field(
            "objective",
            Choice(OBJECTIVES),
            "what is made as small as can be: `slowest` (the largest weighted round time), `slowdown` (the "
            "largest weighted ratio of a round time to that with the server to itself) or `sum` (of weighted "
            "round times)",
            "slowdown",
        ),
        Field("server", Table(), "the one server, as in a scenario"),
        Field("job", TableList(), "one model, its clients and their session"),
    ),
)
"""The keys at the top of a file with jobs."""


@dataclass(frozen=True)
class JobsFile:
    """A file with jobs, read and checked."""

    source: str
    server: Server
    objective: str
    jobs: tuple[tuple[JobSettings, Scenario], ...]
    tables: tuple[tuple[Mapping[str, Any], Path], ...]
    """Of each job, the tables of its scenario, and the folder that files named there are looked up from."""

    def plan(self, objective: str | None = None) -> JobsPlan:
        """The jobs planned together, by the file's objective unless told otherwise."""
        jobs = [Job(settings.name, scenario.problem(), settings.weight) for settings, scenario in self.jobs]
        return plan_jobs(jobs, self.server, objective or self.objective)

    def scenarios(self, plan: JobsPlan, folder: Path) -> dict[Path, str]:
        """A scenario for each job, by its place in a folder: the job's own, with its part of the server."""
        found: dict[Path, str] = {}
        for job, (tables, before) in zip(plan.jobs, self.tables, strict=True):
            path = folder / (re.sub(r"[^\w.-]+", "-", job.name) + ".toml")
            if path in found:
                raise ScenarioError(
                    f"two jobs would be written to {path}: give job {job.name!r} another name"
                )
            server = {"server": {"compute": f"{job.part!r} FLOPS"}}
            found[path] = to_toml(_seen_from(folder, tables, before) | server)
        return found


def load_jobs(path: str | os.PathLike[str]) -> JobsFile:
    """Read a file with [[job]] tables, or say in one sentence what is wrong with it."""
    look_beside(Path(path).parent)
    return read_jobs(read_tables(path), str(path), Path(path).parent)


def mistakes(path: str | os.PathLike[str]) -> list[CutwaterError]:
    """Everything that is wrong with a scenario file; of one with jobs, the first mistake."""
    try:
        tables = read_tables(path)
        if "job" not in tables:
            return mistakes_in(tables, str(path), Path(path).parent)
        load_jobs(path)
        return []
    except CutwaterError as error:
        return [error]


def read_jobs(tables: Mapping[str, Any], source: str, folder: Path) -> JobsFile:
    """Check the parsed tables; files that they name are looked up from ``folder``."""
    given = JOBS.read(tables, source)
    if not given["job"]:
        raise ScenarioError(f"{source} has no [[job]]: add one for each model")
    server = read(Server, given["server"], f"{source}: [server]", ScenarioError)
    rows = [_job(row, k, source, folder) for k, row in enumerate(given["job"])]
    jobs = [
        (settings, read_scenario(tables | {"server": given["server"]}, where, beside))
        for settings, tables, where, beside in rows
    ]
    tables_ = tuple((tables, beside) for _, tables, _, beside in rows)
    return JobsFile(source, server, given.get("objective", "slowdown"), tuple(jobs), tables_)


def _seen_from(folder: Path, tables: Mapping[str, Any], before: Path) -> dict[str, Any]:
    """The same tables, with files by names that lead to them from another folder."""
    found = dict(tables)
    for section, key in _FILES:
        holder = found.get(section, {}) if section else found
        name = holder.get(key)
        if isinstance(name, str) and name and not (name.startswith("~") or Path(name).is_absolute()):
            there = os.path.relpath((before / name).resolve(), folder.resolve())
            found |= {section: {**holder, key: there}} if section else {key: there}
    return found


def _job(
    row: Mapping[str, Any], k: int, source: str, folder: Path
) -> tuple[JobSettings, dict[str, Any], str, Path]:
    """A job's own keys, the tables of its scenario, and where both are from."""
    own = {key: value for key, value in row.items() if key in {each.key for each in JOB}}
    name = own.get("name", f"job{k + 1}")
    where = f"{source}: [[job]] {name!r}"
    settings = read(JobSettings, {"name": name} | own, where)
    sections = {key: value for key, value in row.items() if key not in own}
    if settings.scenario is None:
        if "server" in sections:
            raise ScenarioError(f"{where} has a [server] of its own: all jobs share the one at the top")
        return settings, sections, where, folder
    if sections:
        labels = {each.key: each.kind.label(each.key) for each in TOP}
        keys = ", ".join(labels.get(key, key) for key in sections)
        raise ScenarioError(f"{where} has scenario and {keys}: give a file or its sections, not both")
    path = named_file(folder, settings.scenario, f"{where} scenario")
    return settings, dict(read_tables(path)), str(path), path.parent
