"""What a page asks for, checked like any scenario, and a scenario as a page holds it.

The page sends everything with every request (a link holds it, too), so the server keeps no state of its own::

    model     a [model] table of the zoo, or profile: the name of a saved one
    server    "3000 GFLOPS"
    session   a [session] table
    wire      a [wire] table
    fleet     {csv: text} or {draw: a [fleet] table}
    planner   by name
    rates, devices, min_cut    what the sliders add: factors, and a least cut for all
    client    whose step is shown
    sections  what planning does not read, carried along
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Choice, Number, Quantity, Table, Text, Whole
from cutwater.base.schema import Field, Schema
from cutwater.base.toml import check_characters, parse_toml, to_toml
from cutwater.plan.fleet import SETS, Fleet
from cutwater.plan.planners import solve
from cutwater.plan.problem import Problem
from cutwater.plan.session import Wires
from cutwater.plan.value import Plan
from cutwater.scenario.clients import KEYS as CLIENT_KEYS
from cutwater.scenario.clients import csv_rows as client_rows
from cutwater.scenario.clients import fleet_from_rows
from cutwater.scenario.file import Scenario, read_scenario
from cutwater.scenario.generate import read_fleet
from cutwater.scenario.sections import LATER
from cutwater.web.catalogue import GIVEN, Catalogue
from cutwater.web.quantities import client_row, quantity

PLANNERS = ("exact", "alternating", "fedavg", "splitfed", "splitfed-best", "greedy", "random")
"""Those that come with Cutwater and end soon; a request never loads someone's planner."""
MOST_CLIENTS = 100_000
FACTORS = (1e-3, 1e3)
LARGEST = 1e15
"""Of a plain number, such as samples or steps: far beyond any use, and safe to multiply."""
_HERE = "the scenario"
_FACTOR = Number(*FACTORS)
_FLEET = Schema(
    "the fleet",
    ScenarioError,
    (
        Field("csv", Text(), "the clients, as pasted", told="or drawn"),
        Field("draw", Table(), "a [fleet] table to draw them from", told="or pasted"),
    ),
    either=((("csv",), ("draw",)),),
)
_LATER = Schema(
    "the other sections",
    ScenarioError,
    tuple(Field(name, Table(), "a section that planning keeps", told="none") for name in LATER),
)
_PAGE = Schema(
    _HERE,
    ScenarioError,
    (
        Field("v", Whole(0), "which question of the page it is", told="any"),
        Field("model", Table(), "a [model] table", told="or profile"),
        Field("profile", Text(), "a saved profile by name", told="or model"),
        Field("server", Quantity(least=0, per="compute"), "F^max"),
        Field("session", Table(), "a [session] table"),
        Field("wire", Table(), "a [wire] table", {}),
        Field("fleet", Table(), "the clients, pasted or drawn"),
        Field("planner", Choice(PLANNERS), "who plans", "exact"),
        Field("rates", _FACTOR, "the factor of all rates", 1.0),
        Field("devices", _FACTOR, "the factor of all devices' compute", 1.0),
        Field("min_cut", Whole(1, quoted=True), "the least cut of all clients", 1),
        Field("client", Text(), "whose step is shown", told="the one that weighs most"),
        Field("sections", Table(), "what training reads", {}),
    ),
)
"""What a page sends."""
_NOWHERE = Path("no-folder")
_ANY_FLEET = {"clients": 1, "compute": "1 GFLOPS", "rate": "1 MB/s", "samples": 1}
"""Stands in while the rest is checked: the clients are read apart, and only when they change."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A scenario and a planner, as a page asks for them."""

    body: Mapping[str, Any]
    problem: Problem
    planner: str

    @cached_property
    def plan(self) -> Plan:
        """The real planner's answer."""
        return solve(self.problem, self.planner)

    @property
    def shown(self) -> str:
        """Whose step is shown: who was chosen, if it is there, else who weighs most."""
        chosen = self.body.get("client")
        return chosen if isinstance(chosen, str) and chosen in self.plan else self.plan.bottleneck.name

    @property
    def as_drawn(self) -> bool:
        """Whether the fleet is as its [fleet] table draws it."""
        moved = any(self.body.get(key, 1) != 1 for key in ("rates", "devices", "min_cut"))
        return "draw" in self.body["fleet"] and not moved


def read_asked(body: object, catalogue: Catalogue) -> Asked:
    """Check what a page sends, or say in one sentence what is wrong with it."""
    _check_numbers(body)
    given = _PAGE.read(body)
    assert isinstance(body, Mapping)
    tables: dict[str, Any] = {
        "server": {"compute": body["server"]},
        "session": given["session"],
        "wire": given.get("wire", {}),
        "fleet": _ANY_FLEET,
        **{key: given[key] for key in ("model", "profile") if key in given},
    }
    if "model" in given:
        catalogue.check(given["model"])
    scenario = read_scenario(tables, _HERE, _NOWHERE)
    catalogue.check_codecs(scenario.wires)
    profile = (
        catalogue.counted(scenario.model, scenario.session.batch_size)
        if scenario.model is not None
        else catalogue.saved(given["profile"])
    )
    fleet = _adjust(read_clients(given["fleet"]), given)
    problem = Problem(profile, fleet, scenario.server, scenario.session, scenario.wires)
    return Asked(body, problem, given.get("planner", "exact"))


def _check_numbers(value: Any) -> None:
    if isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            _check_numbers(one)
    elif isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ScenarioError(
            f"the scenario holds {str(value)[:20]}, but a page takes numbers up to {LARGEST:g}"
        )


def read_clients(table: object) -> Fleet:
    """The clients: pasted, or drawn."""
    if isinstance(table, Mapping) and isinstance(table.get("csv"), str):
        check_characters(table["csv"], "the CSV")
    given = _FLEET.read(table)
    if "draw" in given:
        _check_drawn(given["draw"])
        return read_fleet(given["draw"], "[fleet]").generate()
    return _fleet_from_csv(given["csv"])


def _check_drawn(table: object) -> None:
    """Refuse a [fleet] table before so many clients are drawn; what else is wrong with it is told later."""
    if isinstance(table, Mapping) and "clients" in table:
        _check_count(Whole(1, quoted=True).read(table["clients"], "[fleet] clients", ScenarioError))


def _check_count(count: int) -> None:
    if count > MOST_CLIENTS:
        raise ScenarioError(
            f"the fleet has {count:,} clients, but a page shows {MOST_CLIENTS:,} at most: use cutwater plan"
        )


def _adjust(fleet: Fleet, given: Mapping[str, Any]) -> Fleet:
    """What the sliders say, on top of the fleet."""
    rates, devices, least = (given.get(key, 1) for key in ("rates", "devices", "min_cut"))
    if rates == devices == least == 1:
        return fleet
    columns = {"up": fleet.up * rates, "down": fleet.down * rates, "compute": fleet.compute * devices}
    return fleet.replace(**columns, min_cut=np.maximum(fleet.min_cut, least))


def csv_rows(content: str) -> list[dict[str, str]]:
    """The rows of a CSV text; commas, semicolons and a spreadsheet's tabs all separate."""
    content = content.lstrip("\ufeff \r\n")
    first = content.partition("\n")[0].strip()
    delimiter = max(",;\t", key=first.count)
    if "compute" not in [name.strip() for name in first.split(delimiter)]:
        raise ScenarioError(
            f"the CSV starts with {first[:80]!r}, but its first line must name the columns, "
            "such as name,compute,rate,samples"
        )
    rows: list[dict[str, str]] = []
    for row in client_rows(io.StringIO(content), "the CSV", delimiter):
        rows.append(row)
        _check_count(len(rows))
    return rows


@lru_cache(maxsize=8)
def _fleet_from_csv(content: str) -> Fleet:
    return fleet_from_rows(csv_rows(content), "the CSV")


def to_csv(fleet: Fleet) -> str:
    """A fleet as CSV that reads back the same; only columns that say something."""
    rows = [client_row(fleet, k) for k in range(len(fleet))]
    used = [key for key in CLIENT_KEYS if any(key in row for row in rows)]
    out = io.StringIO()
    writer = csv.DictWriter(out, used, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(row | {key: " ".join(map(str, row[key])) for key in SETS if key in row})
    return out.getvalue()


def from_toml(content: str, catalogue: Catalogue) -> dict[str, Any]:
    """What a page holds, from a scenario file that someone uploads: it may name no file and no code."""
    check_characters(content, "the file")
    tables = parse_toml(content, "the file")
    if "clients" in tables:
        raise ScenarioError(
            f"the scenario takes its clients from {tables['clients']!r}, which a page does not read: "
            "load the scenario, then paste the CSV"
        )
    if "model" in tables:
        catalogue.check(Table().read(tables["model"], "[model]", ScenarioError))
    if "profile" in tables:
        catalogue.saved(tables["profile"])
    _check_drawn(tables.get("fleet"))
    scenario = read_scenario(tables, _HERE, _NOWHERE)
    _check_count(len(scenario.fleet))
    catalogue.check_codecs(scenario.wires)
    return from_scenario(scenario, profile=tables.get("profile"))


def from_scenario(scenario: Scenario, profile: str | None = None) -> dict[str, Any]:
    """What a page holds; ``profile`` is the name that a page knows the model by if it is not of the zoo."""
    session = {key: value for key, value in vars(scenario.session).items() if value is not None}
    fleet: dict[str, Any] = {"csv": ""}
    if scenario.generator is not None:
        spec = scenario.generator
        fleet = {"draw": {"clients": spec.clients, "seed": spec.seed, **spec.columns}}
    else:
        fleet["csv"] = to_csv(scenario.fleet)
    model: dict[str, Any] = {"profile": profile or GIVEN}
    if profile is None and scenario.model is not None:
        model = {"model": {key: value for key, value in vars(scenario.model).items() if value is not None}}
    compute = scenario.server.compute
    return {
        **model,
        "server": quantity("compute", compute) if compute else "0 GFLOPS",
        "session": session,
        **({"wire": wire} if (wire := _wire_table(scenario.wires)) else {}),
        "fleet": fleet,
        "planner": "exact",
        **({"sections": _as_json(scenario.sections)} if scenario.sections else {}),
    }


def _wire_table(wires: Wires) -> dict[str, Any]:
    """A [wire] table: one name where there is one; what is at its default is left out."""
    usual = Wires()
    named = {key: list(names) for key, names in vars(wires).items() if names != getattr(usual, key)}
    return {key: names[0] if len(names) == 1 else names for key, names in named.items()}


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
    body, fleet = asked.body, asked.problem.fleet
    given = catalogue.given if body.get("profile") == GIVEN else None
    model = given or {key: body[key] for key in ("profile", "model") if key in body}
    clients = (
        {"fleet": body["fleet"]["draw"]}
        if asked.as_drawn
        else {"client": [client_row(fleet, k) for k in range(len(fleet))]}
    )
    sections = _LATER.read(body.get("sections", {}))
    wire = {"wire": body["wire"]} if body.get("wire") else {}
    planned = {"server": {"compute": body["server"]}, "session": body["session"], **wire}
    content = to_toml({**model, **planned, **sections, **clients})
    check_characters(content, _HERE)  # the other sections come as they are
    return content
