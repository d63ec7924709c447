"""Scenario files into a page, and out of it."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Table, quote
from cutwater.base.schema import Field, Schema, schema_of
from cutwater.base.toml import check_characters, parse_toml, to_toml
from cutwater.plan.prices import PriceKind, Prices
from cutwater.plan.problem import Band
from cutwater.plan.session import Wires
from cutwater.scenario.file import Scenario, read_scenario
from cutwater.scenario.jobs import read_jobs
from cutwater.scenario.sections import LATER
from cutwater.web.catalogue import GIVEN, Catalogue
from cutwater.web.fleet_text import check_count, to_csv
from cutwater.web.jobs import JobsAsked
from cutwater.web.quantities import client_rows, price_text, quantity
from cutwater.web.state import HERE, LINKS, NOWHERE, Asked, check_drawn

_LATER = Schema(
    "the other sections",
    ScenarioError,
    tuple(Field(name, Table(), "a section that planning keeps", told="none") for name in LATER),
)


def from_toml(content: str, catalogue: Catalogue) -> dict[str, Any]:
    """What a page holds, from a scenario file that someone uploads: it may name no file and no code."""
    check_characters(content, "the file")
    tables = parse_toml(content, "the file")
    if "job" in tables:
        return _from_jobs(tables, catalogue)
    _check_named(tables, catalogue)
    return _from_checked(read_scenario(tables, HERE, NOWHERE), tables, catalogue)


def _from_jobs(tables: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """A page with the jobs of a file, the first of them in its fields."""
    rows = (
        [row for row in tables["job"] if isinstance(row, Mapping)] if isinstance(tables["job"], list) else []
    )
    for row in rows:
        if "scenario" in row:
            raise ScenarioError(
                f"a job is the scenario file {quote(row['scenario'])}, which a page does not read: write its "
                "sections below [[job]], or add it to the page as a job"
            )
        _check_named(row, catalogue)
    file = read_jobs(tables, HERE, NOWHERE)
    bodies = [
        _from_checked(scenario, row, catalogue) for (_, scenario), row in zip(file.jobs, rows, strict=True)
    ]
    jobs = [
        {"name": settings.name, "weight": settings.weight, "scenario": body}
        for (settings, _), body in zip(file.jobs, bodies, strict=True)
    ]
    return {**bodies[0], "jobs": jobs, "objective": file.objective}


def _check_named(tables: Mapping[str, Any], catalogue: Catalogue) -> None:
    """Refuse what names a file, code, or more clients than a page takes, before any of it is looked at."""
    if "clients" in tables:
        raise ScenarioError(
            f"the scenario takes its clients from {quote(tables['clients'])}, which a page does not read: "
            "load the scenario, then paste the CSV"
        )
    if "model" in tables:
        catalogue.check(Table().read(tables["model"], "[model]", ScenarioError))
    if "profile" in tables:
        catalogue.saved(tables["profile"])
    check_drawn(tables.get("fleet"))


def _from_checked(scenario: Scenario, tables: Mapping[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    check_count(len(scenario.fleet))
    catalogue.check_codecs(scenario.wires)
    return from_scenario(scenario, profile=tables.get("profile"))


def from_scenario(scenario: Scenario, profile: str | None = None) -> dict[str, Any]:
    """What a page holds; ``profile`` is the name that a page knows the model by if it is not of the zoo."""
    session = {key: value for key, value in vars(scenario.session).items() if value not in (None, "go")}
    fleet: dict[str, Any] = {"csv": ""}
    if scenario.generator is not None:
        spec = scenario.generator
        fleet = {"draw": {"clients": spec.clients, "seed": spec.seed, **spec.columns}}
    else:
        fleet["csv"] = to_csv(scenario.fleet)
    model: dict[str, Any] = {"profile": profile or GIVEN}
    if profile is None and scenario.model is not None:
        model = {"model": scenario.model.given}
    compute = scenario.server.compute
    return {
        **model,
        "server": quantity("compute", compute) if compute else "0 GFLOPS",
        "session": session,
        **({"wire": wire} if (wire := _wire_table(scenario.wires)) else {}),
        **_link_tables(scenario.band),
        **({"prices": prices} if (prices := _price_table(scenario.prices)) else {}),
        "fleet": fleet,
        "planner": "exact",
        **({"sections": _as_json(scenario.sections)} if scenario.sections else {}),
    }


def _wire_table(wires: Wires) -> dict[str, Any]:
    """A [wire] table: one name where there is one; what is at its default is left out."""
    usual = Wires()
    named = {key: list(names) for key, names in vars(wires).items() if names != getattr(usual, key)}
    return {key: names[0] if len(names) == 1 else names for key, names in named.items()}


def _link_tables(band: Band) -> dict[str, Any]:
    """Tables of the lines that clients share, if any."""
    capacities = zip(LINKS, (band.up, band.down), strict=True)
    return {key: {"capacity": quantity("rate", rate)} for key, rate in capacities if isfinite(rate)}


def _price_table(prices: Prices) -> dict[str, str]:
    """A [prices] table."""
    kinds = {each.key: each.kind for each in schema_of(Prices)}
    return {
        key: price_text(kind.per, price)
        for key, kind in kinds.items()
        if isinstance(kind, PriceKind) and (price := getattr(prices, key)) is not None
    }


def _as_json(sections: Mapping[str, Any]) -> Any:
    """What a page can carry along: a date becomes text."""
    try:
        return json.loads(json.dumps(sections, default=str, allow_nan=False))
    except ValueError as error:
        raise ScenarioError(
            "the scenario holds inf or nan, which a page can't carry: write a finite number"
        ) from error


def export_toml(asked: Asked, catalogue: Catalogue) -> str:
    """The scenario as a file for every command; what the sliders changed is written into the clients."""
    tables = {"server": {"compute": asked.body["server"]}, **_sections(asked, catalogue)}
    return _written(tables)


def export_jobs(asked: JobsAsked, catalogue: Catalogue) -> str:
    """The jobs as a file for `cutwater jobs`."""
    jobs = [
        {"name": job.name, "weight": job.weight, **_sections(scenario, catalogue)}
        for job, scenario in zip(asked.jobs, asked.scenarios, strict=True)
    ]
    top = {"objective": asked.objective, "server": {"compute": asked.server}, "job": jobs}
    return _written(top)


def _sections(asked: Asked, catalogue: Catalogue) -> dict[str, Any]:
    """What a scenario says, but for its server."""
    body, fleet = asked.body, asked.problem.fleet
    given = catalogue.given if body.get("profile") == GIVEN else None
    model = given or {key: body[key] for key in ("profile", "model") if key in body}
    clients = {"fleet": body["fleet"]["draw"]} if asked.as_drawn else {"client": client_rows(fleet)}
    some = {key: body[key] for key in ("wire", *LINKS, "prices") if body.get(key)}
    later = _LATER.read(body.get("sections", {}))
    return {**model, "session": body["session"], **some, **later, **clients}


def _written(tables: Mapping[str, Any]) -> str:
    content = to_toml(tables)
    check_characters(content, HERE)  # the other sections come as they are
    return content
