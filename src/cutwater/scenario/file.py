"""One TOML file for planning, training and deployment.

::

    [model]    name = "efficientnet_v2_m"   input = "1x28x28"   classes = 10   count = "paper"   kappa = 4.7
    [server]   compute = "3000 GFLOPS"
    [session]  epochs = 20   batch_size = 32
    [[client]] name = "c1"   compute = "100 GFLOPS"   rate = "4 MB/s"   samples = 3396   min_cut = 1

``profile = "file.json"`` at the top stands for [model] and needs no torch; ``clients = "fleet.csv"`` or a
[fleet] table (:mod:`cutwater.scenario.generate`) stands for the [[client]] tables.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cutwater.base.errors import CutwaterError, ScenarioError
from cutwater.base.jsonfile import read_json
from cutwater.base.schema import read
from cutwater.base.textfile import reading
from cutwater.base.toml import parse_toml
from cutwater.base.usercode import look_beside
from cutwater.plan.fleet import NO_LIMIT, Fleet
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Band, Problem, Server, SharedLink
from cutwater.plan.session import Session, Wires
from cutwater.profile.cache import profile_of
from cutwater.profile.optimizers import optimizer_kind
from cutwater.profile.values import Profile
from cutwater.scenario.clients import fleet_from_csv, fleet_from_rows
from cutwater.scenario.generate import FleetSpec, read_fleet
from cutwater.scenario.sections import LATER, SECTIONS, TOP, ModelSpec


@dataclass(frozen=True)
class Scenario:
    """A scenario file, read and checked."""

    source: str
    model: ModelSpec | None
    profile_path: Path | None
    server: Server
    session: Session
    wires: Wires
    band: Band
    fleet: Fleet
    generator: FleetSpec | None
    prices: Prices
    sections: Mapping[str, Mapping[str, Any]]
    """The sections that planning does not read, by name, as they stand in the file."""

    @cached_property
    def profile(self) -> Profile:
        """The cost of every cut: from the saved profile, or counted on the model (once, if the zoo's)."""
        if self.profile_path is not None:
            return Profile.from_json(read_json(self.profile_path), str(self.profile_path))
        assert self.model is not None
        return profile_of(self.model.name, **counted_by(self.model, self.session))

    def problem(self) -> Problem:
        """What a planner solves."""
        return Problem(self.profile, self.fleet, self.server, self.session, self.wires, self.band)

    def with_clients(self, count: int) -> "Scenario":
        """The scenario with another number of clients: newly drawn, or the first of those listed."""
        if self.generator is not None:
            return replace(self, fleet=self.generator.generate(count))
        if count > len(self.fleet):
            raise ScenarioError(
                f"{self.source} lists {len(self.fleet)} clients, not {count}: use a [fleet] table"
            )
        return replace(self, fleet=self.fleet.take(count))


def counted_by(model: ModelSpec, session: Session) -> dict[str, Any]:
    """What a model's profile follows from, besides its name."""
    return {
        "input": model.input,
        "classes": model.classes,
        "count": model.count,
        "kappa": model.kappa,
        "batch_size": session.batch_size,
        "optimizer": model.optimizer,
        "autocast": session.autocast,
        **(model.options or {}),
    }


def load_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario file, or say in one sentence what is wrong with it.

    Modules that it names are looked for in its folder first.
    """
    look_beside(Path(path).parent)
    return read_scenario(read_tables(path), str(path), Path(path).parent)


def read_tables(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a scenario file, as they stand."""
    with reading(path, "TOML"):
        content = Path(path).read_text(encoding="utf-8")
    return parse_toml(content, str(path))


def read_scenario(tables: Mapping[str, Any], source: str, folder: Path) -> Scenario:
    """Check the parsed tables of a scenario; files that it names are looked up from ``folder``."""
    if "job" in tables:
        raise ScenarioError(f"{source} has [[job]] tables, each a scenario: plan them with cutwater jobs")
    given = TOP.read(tables, source)
    fleet, generator = _fleet(given, source, folder)
    return Scenario(
        source=source,
        model=_model(given, source) if "model" in given else None,
        profile_path=named_file(folder, given["profile"], f"{source}: profile")
        if "profile" in given
        else None,
        server=read(Server, given["server"], f"{source}: [server]", ScenarioError),
        session=read(Session, given["session"], f"{source}: [session]", ScenarioError),
        wires=read(Wires, given.get("wire", {}), f"{source}: [wire]", ScenarioError),
        band=Band(*(_capacity(given, key, source) for key in ("uplink", "downlink"))),
        fleet=fleet,
        generator=generator,
        prices=read(Prices, given.get("prices", {}), f"{source}: [prices]", ScenarioError),
        sections={name: given[name] for name in LATER if name in given},
    )


def named_file(folder: Path, name: str, what: str) -> Path:
    """A file that a scenario in this folder names: from there, unless it begins at the root or in a home."""
    try:
        return folder / Path(name).expanduser()
    except RuntimeError as error:  # there is no such user, or no home
        raise ScenarioError(
            f"{what} is {name!r}, but that home folder is not known; write the path out"
        ) from error


def mistakes_in(tables: Mapping[str, Any], source: str, folder: Path) -> list[CutwaterError]:
    """Everything that is wrong with a scenario's tables, its sections for training included."""
    found = [*TOP.sift(tables, source)[1], *_in_sections(tables, source)]
    if found:
        return found
    try:  # what only several keys together tell: a quorum of more clients than there are, say
        scenario = read_scenario(tables, source, folder)
        for name, table in scenario.sections.items():
            made = SECTIONS[name].made
            assert made is not None
            read(made, table)
    except CutwaterError as error:
        return [error]
    return []


def _in_sections(tables: Mapping[str, Any], source: str) -> Iterator[CutwaterError]:
    for name, section in SECTIONS.items():
        rows = tables.get(name, []) if section.many else [tables[name]] if name in tables else []
        for k, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, Mapping):
                place = f" {row.get('name', k + 1)!r}" if section.many else ""
                yield from section.schema.sift(row, f"{source}: {section.title}{place}", ScenarioError)[1]


def _capacity(tables: Mapping[str, Any], key: str, source: str) -> float:
    if key not in tables:
        return NO_LIMIT
    return read(SharedLink, tables[key], f"{source}: [{key}]", ScenarioError).capacity


def _model(tables: Mapping[str, Any], source: str) -> ModelSpec:
    optimizer = {} if "optimizer" in tables["model"] else _trained_by(tables)
    return read(ModelSpec, tables["model"] | optimizer, f"{source}: [model]")


def _trained_by(tables: Mapping[str, Any]) -> dict[str, str]:
    """The optimizer of [train] as profiles name it: what it keeps counts in the memory of a cut."""
    train = tables.get("train", {})
    name = train.get("optimizer", "sgd")
    if not (isinstance(name, str) and name):
        return {}  # training says what is wrong with it; planning does not read it
    return {"optimizer": optimizer_kind(name, train.get("momentum", 0.0))}


def _fleet(tables: Mapping[str, Any], source: str, folder: Path) -> tuple[Fleet, FleetSpec | None]:
    if "clients" in tables:
        return fleet_from_csv(named_file(folder, tables["clients"], f"{source}: clients")), None
    if "fleet" in tables:
        generator = read_fleet(tables["fleet"], f"{source}: [fleet]")
        return generator.generate(), generator
    return fleet_from_rows(tables["client"], source), None
