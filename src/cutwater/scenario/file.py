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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cutwater.base.errors import FileFormatError, ScenarioError
from cutwater.base.jsonfile import read_json
from cutwater.base.units import parse_compute
from cutwater.plan.fleet import Fleet
from cutwater.plan.problem import Problem, Server, Session
from cutwater.profile.cache import profile_of
from cutwater.profile.optimizers import optimizer_kind
from cutwater.profile.options import check_option
from cutwater.profile.values import Profile
from cutwater.scenario.clients import fleet_from_csv, fleet_from_rows
from cutwater.scenario.generate import FleetSpec, read_fleet
from cutwater.scenario.keys import (
    as_table,
    check_keys,
    file_name,
    number,
    optional,
    parse_toml,
    required,
    text,
    whole,
)

LATER = ("data", "train", "conditions")
"""Sections that planning keeps but does not read."""
_KEYS = ("profile", "clients", "model", "server", "session", "client", "fleet", *LATER)


@dataclass(frozen=True)
class ModelSpec:
    """The [model] table: which model, and how its cost is counted."""

    name: str
    input: str = "1x28x28"
    classes: int | None = 10
    count: str = "exact"
    kappa: float | None = None
    optimizer: str = "sgd"
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Scenario:
    """A scenario file, read and checked."""

    source: str
    model: ModelSpec | None
    profile_path: Path | None
    server: Server
    session: Session
    fleet: Fleet
    generator: FleetSpec | None
    sections: Mapping[str, Mapping[str, Any]]
    """The sections that planning does not read, by name, as they stand in the file."""

    @cached_property
    def profile(self) -> Profile:
        """The cost of every cut: from the saved profile, or counted on the model (once, if the zoo's)."""
        if self.profile_path is not None:
            return Profile.from_json(read_json(self.profile_path), str(self.profile_path))
        assert self.model is not None
        return profile_of(
            self.model.name,
            input=self.model.input,
            classes=self.model.classes,
            count=self.model.count,
            kappa=self.model.kappa,
            batch_size=self.session.batch_size,
            optimizer=self.model.optimizer,
            **self.model.options or {},
        )

    def problem(self) -> Problem:
        """What a planner solves."""
        return Problem(self.profile, self.fleet, self.server, self.session)

    def with_clients(self, count: int) -> "Scenario":
        """The scenario with another number of clients: newly drawn, or the first of those listed."""
        if self.generator is not None:
            return replace(self, fleet=self.generator.generate(count))
        if count > len(self.fleet):
            raise ScenarioError(
                f"{self.source} lists {len(self.fleet)} clients, not {count}: use a [fleet] table"
            )
        return replace(self, fleet=self.fleet.take(count))


def load_scenario(path: str | os.PathLike[str]) -> Scenario:
    """Read a scenario file, or say in one sentence what is wrong with it."""
    try:
        content = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not TOML: {error}") from error
    return read_scenario(parse_toml(content, str(path)), str(path), Path(path).parent)


def read_scenario(tables: Mapping[str, Any], source: str, folder: Path) -> Scenario:
    """Check the parsed tables of a scenario; files that it names are looked up from ``folder``."""
    check_keys(tables, _KEYS, source)
    profile_path, model = _model(tables, source, folder)
    fleet, generator = _fleet(tables, source, folder)
    return Scenario(
        source=source,
        model=model,
        profile_path=profile_path,
        server=_server(required(tables, "server", source, "a [server] table"), f"{source}: [server]"),
        session=_session(required(tables, "session", source, "a [session] table"), f"{source}: [session]"),
        fleet=fleet,
        generator=generator,
        sections={name: as_table(tables[name], f"{source}: [{name}]") for name in LATER if name in tables},
    )


def _model(tables: Mapping[str, Any], source: str, folder: Path) -> tuple[Path | None, ModelSpec | None]:
    if ("profile" in tables) == ("model" in tables):
        found = "both" if "model" in tables else "neither"
        raise ScenarioError(
            f'{source} has {found} of a [model] table and profile = "file.json": give one of them'
        )
    if "profile" in tables:
        return folder / file_name(tables["profile"], f"{source}: profile"), None
    where = f"{source}: [model]"
    table = as_table(tables["model"], where)
    check_keys(table, ("name", "input", "classes", "count", "kappa", "optimizer", "options"), where)
    given: dict[str, Any] = {
        "name": text(required(table, "name", where, '"efficientnet_v2_m"'), f"{where} name"),
        "input": optional(table, "input", f"{where} input", text),
        "classes": optional(table, "classes", f"{where} classes", whole),
        "count": optional(table, "count", f"{where} count", text),
        "kappa": optional(table, "kappa", f"{where} kappa", number),
        "optimizer": optional(table, "optimizer", f"{where} optimizer", text) or _trained_by(tables),
        "options": optional(table, "options", f"{where} options", as_table),
    }
    for option in given["options"] or ():
        check_option(option, f"{where} option {option!r}")
    return None, ModelSpec(**{key: value for key, value in given.items() if value is not None})


def _trained_by(tables: Mapping[str, Any]) -> str | None:
    """The optimizer of [train] as profiles name it: what it keeps counts in the memory of a cut."""
    train = tables.get("train")
    if not isinstance(train, Mapping) or not isinstance(train.get("optimizer", "sgd"), str):
        return None  # training says what is wrong with it; planning does not read it
    return optimizer_kind(train.get("optimizer", "sgd"), train.get("momentum", 0.0))


def _server(table: object, where: str) -> Server:
    table = as_table(table, where)
    check_keys(table, ("compute",), where)
    compute = required(table, "compute", where, '"3000 GFLOPS"')
    return Server(parse_compute(compute, f"{where} compute", or_none=True))


def _session(table: object, where: str) -> Session:
    table = as_table(table, where)
    check_keys(table, ("epochs", "steps", "batch_size"), where)
    epochs = optional(table, "epochs", f"{where} epochs", whole)
    steps = optional(table, "steps", f"{where} steps", whole)
    if (epochs is None) == (steps is None):
        found = "neither" if epochs is None else "both"
        raise ScenarioError(f"{where} has {found} of epochs and steps: give one, such as epochs = 20")
    batch_size = optional(table, "batch_size", f"{where} batch_size", whole)
    return Session(epochs=epochs, steps=steps, batch_size=batch_size or 32)


def _fleet(tables: Mapping[str, Any], source: str, folder: Path) -> tuple[Fleet, FleetSpec | None]:
    given = [key for key in ("client", "clients", "fleet") if key in tables]
    if len(given) != 1:
        found = " and ".join(given) or "no clients"
        raise ScenarioError(
            f'{source} has {found}: give [[client]] tables, or clients = "fleet.csv", or a [fleet] table'
        )
    if "clients" in tables:
        return fleet_from_csv(folder / file_name(tables["clients"], f"{source}: clients")), None
    if "fleet" in tables:
        generator = read_fleet(tables["fleet"], f"{source}: [fleet]")
        return generator.generate(), generator
    rows = tables["client"]
    if not isinstance(rows, list):
        raise ScenarioError(f"{source}: [client] is one table, but clients are listed as [[client]]")
    return fleet_from_rows([as_table(row, f"{source}: [[client]]") for row in rows], source), None
