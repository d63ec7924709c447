"""What a page asks for, checked like any scenario, and a scenario as a page holds it.

The page sends everything with every request (a link holds it, too), so the server keeps no state of its own::

    model     a [model] table of the zoo, or profile: the name of a saved one
    server    "3000 GFLOPS"
    session   a [session] table
    wire      a [wire] table
    uplink, downlink           tables of lines that all clients share
    prices    a [prices] table
    fleet     {csv: text} or {draw: a [fleet] table}
    planner   by name
    rates, devices, min_cut    what the sliders add: factors, and a least cut for all
    client    whose step is shown
    sections  what planning does not read, carried along
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Choice, Number, Quantity, Table, Text, Whole
from cutwater.base.schema import Field, Schema
from cutwater.base.toml import check_characters
from cutwater.plan.fleet import Fleet
from cutwater.plan.planners import solve
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Problem
from cutwater.plan.value import Plan
from cutwater.scenario.file import read_scenario
from cutwater.scenario.generate import read_fleet
from cutwater.web.catalogue import Catalogue
from cutwater.web.fleet_text import check_count, fleet_of

PLANNERS = ("exact", "alternating", "fedavg", "splitfed", "splitfed-best", "greedy", "random")
"""Those that come with Cutwater and end soon; a request never loads someone's planner."""
FACTORS = (1e-3, 1e3)
LARGEST = 1e15
"""Of a plain number, such as samples or steps: far beyond any use, and safe to multiply."""
HERE = "the scenario"
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
_PAGE = Schema(
    HERE,
    ScenarioError,
    (
        Field("v", Whole(0), "which question of the page it is", told="any"),
        Field("model", Table(), "a [model] table", told="or profile"),
        Field("profile", Text(), "a saved profile by name", told="or model"),
        Field("server", Quantity(least=0, per="compute"), "F^max"),
        Field("session", Table(), "a [session] table"),
        Field("wire", Table(), "a [wire] table", {}),
        Field("uplink", Table(), "an [uplink] table", told="none"),
        Field("downlink", Table(), "a [downlink] table", told="none"),
        Field("prices", Table(), "a [prices] table", {}),
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
LINKS = ("uplink", "downlink")
NOWHERE = Path("no-folder")
_ANY_FLEET = {"clients": 1, "compute": "1 GFLOPS", "rate": "1 MB/s", "samples": 1}
"""Stands in while the rest is checked: the clients are read apart, and only when they change."""


@dataclass(frozen=True, eq=False)
class Asked:
    """A scenario and a planner, as a page asks for them."""

    body: Mapping[str, Any]
    problem: Problem
    planner: str
    prices: Prices

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
        "prices": given.get("prices", {}),
        "fleet": _ANY_FLEET,
        **{key: given[key] for key in ("model", "profile", *LINKS) if key in given},
    }
    if "model" in given:
        catalogue.check(given["model"])
    scenario = read_scenario(tables, HERE, NOWHERE)
    catalogue.check_codecs(scenario.wires)
    profile = (
        catalogue.counted(scenario.model, scenario.session)
        if scenario.model is not None
        else catalogue.saved(given["profile"])
    )
    fleet = _adjust(read_clients(given["fleet"]), given)
    problem = Problem(profile, fleet, scenario.server, scenario.session, scenario.wires, scenario.band)
    return Asked(body, problem, given.get("planner", "exact"), scenario.prices)


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
        check_drawn(given["draw"])
        return read_fleet(given["draw"], "[fleet]").generate()
    return fleet_of(given["csv"])


def check_drawn(table: object) -> None:
    """Refuse a [fleet] table before so many clients are drawn; what else is wrong with it is told later."""
    if isinstance(table, Mapping) and "clients" in table:
        check_count(Whole(1, quoted=True).read(table["clients"], "[fleet] clients", ScenarioError))


def _adjust(fleet: Fleet, given: Mapping[str, Any]) -> Fleet:
    """What the sliders say, on top of the fleet."""
    rates, devices, least = (given.get(key, 1) for key in ("rates", "devices", "min_cut"))
    if rates == devices == least == 1:
        return fleet
    columns = {"up": fleet.up * rates, "down": fleet.down * rates, "compute": fleet.compute * devices}
    return fleet.replace(**columns, min_cut=np.maximum(fleet.min_cut, least))
