"""A fleet from a list of clients: [[client]] tables or the rows of a CSV file."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cutwater.base.errors import FileFormatError, ScenarioError
from cutwater.base.units import parse_compute, parse_rate, parse_size
from cutwater.plan.fleet import NO_LIMIT, Fleet
from cutwater.scenario.keys import check_characters, check_keys, optional, required, text, whole

KEYS = (
    "name",
    "compute",
    "rate",
    "up",
    "down",
    "samples",
    "epochs",
    "steps",
    "batch_size",
    "min_cut",
    "memory",
    "forbidden",
)
_COLUMNS = ("compute", "up", "down", "samples", "epochs", "steps", "batch_size", "min_cut", "memory")


def fleet_from_rows(rows: Iterable[Mapping[str, Any]], where: str) -> Fleet:
    """The fleet of a sequence of tables, checked one by one so that a mistake names its client."""
    names: list[str] = []
    columns: dict[str, list[Any]] = {column: [] for column in _COLUMNS}
    forbidden: dict[int, frozenset[int]] = {}
    for k, row in enumerate(rows):
        who = f"{where}: the name of client {k + 1}"
        name = text(row.get("name") or f"c{k + 1}", who)
        check_characters(name, who)
        values = _client(row, f"client {name!r}")
        if cuts := _forbidden(row.get("forbidden"), f"client {name!r} forbidden"):
            forbidden[k] = cuts
        names.append(name)
        for column in _COLUMNS:
            columns[column].append(values[column])
    if not names:
        raise ScenarioError(f"{where} lists no clients, but a plan needs at least one")
    return Fleet.from_columns(names=names, forbidden=forbidden, **columns)


def _client(row: Mapping[str, Any], who: str) -> dict[str, Any]:
    check_keys(row, KEYS, who)
    up, down = _rates(row, who)
    memory = optional(row, "memory", f"{who} memory", parse_size)
    return {
        "compute": parse_compute(required(row, "compute", who, '"100 GFLOPS"'), f"{who} compute"),
        "up": up,
        "down": down,
        "samples": whole(required(row, "samples", who, "3396"), f"{who} samples"),
        "epochs": optional(row, "epochs", f"{who} epochs", whole),
        "steps": optional(row, "steps", f"{who} steps", whole),
        "batch_size": optional(row, "batch_size", f"{who} batch_size", whole),
        "min_cut": optional(row, "min_cut", f"{who} min_cut", whole) or 1,
        "memory": NO_LIMIT if memory is None else memory,
    }


def _rates(row: Mapping[str, Any], who: str) -> tuple[float, float]:
    given = {key for key in ("rate", "up", "down") if row.get(key) not in (None, "")}
    if given == {"rate"}:
        rate = parse_rate(row["rate"], f"{who} rate")
        return rate, rate
    if given == {"up", "down"}:
        return parse_rate(row["up"], f"{who} up"), parse_rate(row["down"], f"{who} down")
    if not given:
        raise ScenarioError(f'{who} lacks a rate: add one, such as rate = "4 MB/s", or both up and down')
    raise ScenarioError(f"{who} has {' and '.join(sorted(given))}: give rate alone, or both up and down")


def _forbidden(value: Any, what: str) -> frozenset[int]:
    """Cuts as a TOML list, or as numbers with spaces between in a CSV cell."""
    if value is None:
        return frozenset()
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ScenarioError(f"{what} is {value!r}, but must be a list of cuts such as [3, 4]")
    return frozenset(whole(item, what) for item in items)


def check_header(columns: Sequence[str], where: str) -> None:
    """Refuse columns that nobody would read: unknown ones, and one that a later one stands in for."""
    check_keys(dict.fromkeys(columns), KEYS, where)
    for place, column in enumerate(columns):
        if column in columns[:place]:
            raise FileFormatError(f"{where} has the column {column!r} more than once: leave one of them")


def fleet_from_csv(path: Path) -> Fleet:
    """The fleet in a CSV file whose header names the same keys as a [[client]] table."""
    return fleet_from_rows(_rows(path), str(path))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            check_header(reader.fieldnames or (), str(path))
            for row in reader:
                if None in row or None in row.values():
                    raise FileFormatError(
                        f"{path}, line {reader.line_num}, has more or fewer cells than the header has columns"
                    )
                yield row
    except OSError as error:
        raise FileFormatError(f"{path} can't be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path} is not a CSV file: {error}") from error
