"""A fleet from a list of clients: [[client]] tables or the rows of a CSV file."""

import csv
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cutwater.base.errors import FileFormatError, ScenarioError
from cutwater.base.schema import NO_DEFAULT, schema_of
from cutwater.plan.fleet import SETS, Client, Fleet

CLIENT = schema_of(Client)
KEYS = tuple(each.key for each in CLIENT)
_DEFAULTS = {
    each.name: None if each.default is NO_DEFAULT else each.default
    for each in CLIENT
    if each.name not in ("name", "rate", *SETS)
}


def fleet_from_rows(rows: Iterable[Mapping[str, Any]], where: str) -> Fleet:
    """The fleet of a sequence of tables, checked one by one so that a mistake names its client."""
    names: list[str] = []
    columns: dict[str, Any] = {column: [] for column in _DEFAULTS}
    sets: dict[str, Any] = {name: {} for name in SETS}
    for k, row in enumerate(rows):
        values, mistakes = CLIENT.sift(row)
        if mistakes:
            CLIENT.read(row, _who(row, k, where), ScenarioError)
        names.append(values.get("name") or f"c{k + 1}")
        if "rate" in values:
            values["up"] = values["down"] = values["rate"]
        for name in SETS:
            if some := values.get(name):
                sets[name][k] = some
        for column, default in _DEFAULTS.items():
            columns[column].append(values.get(column, default))
    if not names:
        raise ScenarioError(f"{where} lists no clients, but a plan needs at least one")
    return Fleet.from_columns(names=names, **sets, **columns)


def _who(row: Mapping[str, Any], k: int, where: str) -> str:
    name = row.get("name", f"c{k + 1}") if isinstance(row, Mapping) else None
    return f"client {name!r}" if isinstance(name, str) and name.isprintable() else f"{where}: client {k + 1}"


def csv_rows(lines: Iterable[str], where: str, delimiter: str = ",") -> Iterator[dict[str, str]]:
    """The rows of a CSV file whose header names the keys of a [[client]] table, without their empty cells."""
    try:
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        header = [name.strip() for name in next(reader, ())]
        for mistake in CLIENT.unknown(header, where):
            raise ScenarioError(mistake)
        for place, column in enumerate(header):
            if column in header[:place]:
                raise FileFormatError(f"{where} has the column {column!r} more than once: leave one of them")
        for cells in reader:
            if cells and len(cells) != len(header):
                raise FileFormatError(
                    f"{where}, line {reader.line_num}, has more or fewer cells than the header has columns"
                )
            if cells:
                yield {column: cell for column, cell in zip(header, cells, strict=True) if cell}
    except csv.Error as error:
        raise FileFormatError(f"{where} is not a CSV file: {error}") from error


def fleet_from_csv(path: Path) -> Fleet:
    """The fleet in a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return fleet_from_rows(csv_rows(file, str(path)), str(path))
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is not a CSV file: {error}") from error
