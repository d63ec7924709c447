"""A plan as a table of columns: CSV for spreadsheets, Parquet for what reads columns, JSON row by row.

A million clients are written in pieces, a column at a time, never as a million objects. CSV has the 14 digits
that spreadsheets hold anyway, which are written in half the time of all 17; the others have every bit.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cutwater.base.errors import FileFormatError
from cutwater.base.jsonfile import document, write_atomically
from cutwater.plan.busy import NOTHING, RESOURCES, Busy
from cutwater.plan.latency import OVERLAP, PHASES
from cutwater.plan.value import FORMAT, VERSION, Column, Plan

PIECE = 50_000
"""Rows that are held as text at a time."""
_FORMULA = tuple("=+-@\t")
"""A name that starts a formula in a spreadsheet is kept from being one."""

_ODD = re.compile(r'[,"\r\n]')
_ANY_ODD = re.compile(r'[,"\r\n]|(?:^|\0)[=+\-@\t]')
"""The same of many names at once, which mostly are as plain as can be; null characters are between them."""
_LOOK = 1000
"""Numbers of a column that tell whether many of them are alike."""


def spreadsheet(plan: Plan) -> dict[str, Column]:
    """A plan as the columns of a file: its clients with FLOPS, seconds and bytes, plain numbers."""
    told = plan.columns
    busy = Busy.of(plan.phases)
    waits = np.where(np.array([*busy]).max(axis=0) > 0, busy.places, len(RESOURCES))
    rates = {f"{key}_bits_per_second": told[key] for key in ("rate_up", "rate_down") if key in told}
    return {
        **{key: told[key] for key in ("name", "cut", "second_cut")},
        "share_flops": told["share"],
        "mode": told["mode"],
        **{key: np.where(plan.split, told[key], "") for key in ("schedule", "up", "down")},
        "lossy": np.where(plan.may_lose, "yes", "no"),
        **rates,
        **{key: told[key] for key in ("bytes_up", "bytes_down")},
        "waits_for": np.array([*RESOURCES, NOTHING])[waits],
        "latency_seconds": plan.latencies,
        **{f"{name}_seconds": getattr(plan.phases, name) for name in (*PHASES, OVERLAP)},
    }


def csv_pieces(plan: Plan) -> Iterator[bytes]:
    """The table as CSV, piece by piece."""
    table = spreadsheet(plan)
    yield (",".join(table) + "\n").encode()
    for some in _pieces(len(plan)):
        cells = [_csv_cells(column[some]) for column in table.values()]
        yield "".join(",".join(row) + "\n" for row in zip(*cells, strict=True)).encode()


def json_pieces(plan: Plan, more: Mapping[str, Any] | None = None) -> Iterator[bytes]:
    """The plan's JSON document with a line for each client, piece by piece; ``more`` are further keys."""
    document_ = document(FORMAT, VERSION, plan.head() | dict(more or {}))
    head = json.dumps(document_, indent=2, allow_nan=False)
    yield (head.removesuffix("\n}") + ',\n  "clients": [').encode()
    columns_ = plan.columns
    keys = [json.dumps(key) for key in columns_]
    phases = [json.dumps(name) for name in (*PHASES, OVERLAP)]
    row = '\n    {{{}, "phases": {{{}}}}}'.format(
        ", ".join(f"{key}: %s" for key in keys), ", ".join(f"{name}: %s" for name in phases)
    )
    for some in _pieces(len(plan)):
        cells = [_json_cells(column[some]) for column in columns_.values()]
        cells += [_json_cells(getattr(plan.phases, name)[some]) for name in (*PHASES, OVERLAP)]
        comma = "," if some.start else ""
        yield (comma + ",".join(row % each for each in zip(*cells, strict=True))).encode()
    yield b"\n  ]\n}\n"


def _pieces(count: int) -> Iterator[slice]:
    return (slice(start, start + PIECE) for start in range(0, count, PIECE))


def _numbers(values: NDArray[Any], write: Callable[[list[Any]], list[str]]) -> list[str]:
    """Numbers as text; in columns where many are alike, each is written once."""
    first = values[:_LOOK]
    if 2 * len(np.unique(first)) > len(first):
        return write(values.tolist())
    known, places = np.unique(values, return_inverse=True)
    written = write(known.tolist())
    return [written[place] for place in places.tolist()]


def _all_digits(values: list[Any]) -> list[str]:
    """As Python and JSON write them."""
    return list(map(repr, values))


def _fourteen_digits(values: list[float]) -> list[str]:
    """Rounded, all in one go."""
    return ("%.14g," * len(values) % tuple(values)).split(",")[:-1]


def _texts(column: Column, write: Callable[[str], str]) -> list[str]:
    """Texts as they are written; a column of a few words writes each of them once."""
    if not isinstance(column, np.ndarray):
        return list(map(write, column))
    words: list[str] = column.tolist()
    known = {word: write(word) for word in set(words)}
    return [known[word] for word in words]


def _is_numeric(column: Column) -> TypeGuard[NDArray[Any]]:
    return isinstance(column, np.ndarray) and column.dtype.kind in "if"


def _csv_cells(column: Column) -> list[str]:
    if _is_numeric(column):
        return _numbers(column, _fourteen_digits if column.dtype.kind == "f" else _all_digits)
    if not isinstance(column, np.ndarray) and not _ANY_ODD.search("\0".join(column)):
        return list(column)
    return _texts(column, _csv_text)


def _csv_text(text: str) -> str:
    text = f"'{text}" if text.startswith(_FORMULA) else text
    return '"' + text.replace('"', '""') + '"' if _ODD.search(text) else text


def _json_cells(column: Column) -> list[str]:
    if not _is_numeric(column):
        return _texts(column, json.dumps)
    found = _numbers(column, _all_digits)
    for place in np.flatnonzero(~np.isfinite(column)).tolist():
        found[place] = "null"
    return found


def _parquet(path: Path, plan: Plan) -> None:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise FileFormatError(
            f"{path} can't be written: Parquet needs pyarrow (pip install pyarrow); or write .csv"
        ) from None
    table = pyarrow.table({name: np.asarray(column) for name, column in spreadsheet(plan).items()})
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(table, sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def write_plan(path: Path, plan: Plan, more: Mapping[str, Any] | None = None) -> None:
    """Write a plan as its name says: .csv, .parquet, or else as JSON with ``more`` keys."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        _parquet(path, plan)
    else:
        write_atomically(path, csv_pieces(plan) if kind == ".csv" else json_pieces(plan, more))
