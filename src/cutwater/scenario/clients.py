"""A fleet from a list of clients: [[client]] tables or the rows of a CSV file."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cutwater.base.errors import CutwaterError, FileFormatError, ScenarioError
from cutwater.base.schema import NO_DEFAULT, schema_of
from cutwater.base.textfile import reading
from cutwater.plan.fleet import FEW, Client, Fleet

CLIENT = schema_of(Client)
KEYS = tuple(each.key for each in CLIENT)
_DEFAULTS = {
    each.name: None if each.default is NO_DEFAULT else each.default
    for each in CLIENT
    if each.name not in ("name", "rate", *FEW)
}


def fleet_from_rows(rows: Iterable[Mapping[str, Any]], where: str) -> Fleet:
    """The fleet of a sequence of tables, checked one by one so that a mistake names its client."""
    names: list[str] = []
    columns: dict[str, Any] = {column: [] for column in _DEFAULTS}
    sets: dict[str, Any] = {name: {} for name in FEW}
    for k, row in enumerate(rows):
        values, mistakes = CLIENT.sift(row)
        if mistakes:
            CLIENT.read(row, _who(row, k, where), ScenarioError)
        names.append(values.get("name") or f"c{k + 1}")
        if "rate" in values:
            values["up"] = values["down"] = values["rate"]
        for name in FEW:
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


def csv_table(lines: Iterable[str], where: str) -> tuple[list[str], list[list[str]]]:
    """The header of a CSV file, which names keys of a [[client]] table, and its rows of as many cells.

    Commas, semicolons or tabs separate, whichever the header has the most of; a byte order mark and empty
    lines before the header are passed over.
    """
    lines = iter(lines)
    first = next((line for line in (each.lstrip("\ufeff \r\n") for each in lines) if line), "")
    try:
        delimiter = max(",;\t", key=first.count)
        reader = csv.reader(chain([first], lines), delimiter=delimiter, skipinitialspace=delimiter != "\t")
        header = [name.strip() for name in next(reader, ())]
        if first and "compute" not in header:
            raise ScenarioError(
                f"{where} starts with {first.strip()[:80]!r}, but its first line must name the columns, "
                "such as name,compute,rate,samples"
            )
        for mistake in CLIENT.unknown(header, where):
            raise ScenarioError(mistake)
        for place, column in enumerate(header):
            if column in header[:place]:
                raise FileFormatError(f"{where} has the column {column!r} more than once: leave one of them")
        rows = []
        for cells in reader:
            if cells and len(cells) != len(header):
                raise FileFormatError(
                    f"{where}, line {reader.line_num}, has more or fewer cells than the header has columns"
                )
            if cells:
                rows.append(cells)
        return header, rows
    except csv.Error as error:
        raise FileFormatError(f"{where} is not a CSV file: {error}") from error


def fleet_from_table(header: Sequence[str], rows: Sequence[Sequence[str]], where: str) -> Fleet:
    """The fleet of a CSV file: by columns, and client by client where one has a mistake, to name it."""
    try:
        if rows and _every_row_has_what_it_needs(header, rows):
            return _by_columns(header, rows)
    except (ValueError, CutwaterError):
        pass
    given = ({key: cell for key, cell in zip(header, cells, strict=True) if cell} for cells in rows)
    return fleet_from_rows(given, where)


def _every_row_has_what_it_needs(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    needed = {each.key for each in CLIENT if each.needed}
    if not needed <= {*header} or any(CLIENT.ways_mixed({*header}, "")):
        return False
    ways = {key for ways in CLIENT.either for way in ways for key in way}
    return all(row[place] for place, key in enumerate(header) if key in needed | ways for row in rows)


def _by_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Fleet:
    known, count = {each.key: each for each in CLIENT}, len(rows)
    names: list[str] = [f"c{k + 1}" for k in range(count)]
    columns: dict[str, Any] = {key: [default] * count for key, default in _DEFAULTS.items()}
    sets: dict[str, Any] = {name: {} for name in FEW}
    for key, cells in zip(header, zip(*rows, strict=True), strict=True):
        places = [k for k, cell in enumerate(cells) if cell]
        values = known[key].column([cells[k] for k in places])
        for name in {"name": ("name",), "rate": ("up", "down")}.get(key, (known[key].name,)):
            target = names if name == "name" else sets[name] if name in FEW else columns[name]
            for k, value in zip(places, values, strict=True):
                target[k] = value
    for name in FEW:
        sets[name] = {k: some for k, some in sets[name].items() if some}
    return Fleet.from_columns(names=names, **sets, **columns)


def fleet_from_csv(path: Path) -> Fleet:
    """The fleet in a CSV file."""
    with reading(path, "a CSV file"), path.open(encoding="utf-8-sig", newline="") as file:
        return fleet_from_table(*csv_table(file, str(path)), str(path))
