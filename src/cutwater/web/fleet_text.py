"""A fleet as the CSV text that a page holds, read and written a column at a time."""

import csv
import io
from typing import Any

import numpy as np

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Choice, Many, Number, Whole
from cutwater.base.schema import Field, Schema
from cutwater.plan.fleet import SETS, Fleet
from cutwater.scenario.clients import KEYS, csv_table, fleet_from_table
from cutwater.web.quantities import client_columns

MOST_CLIENTS = 100_000
_KEPT = 8
"""Texts whose fleets are kept, since a page sends its text with every request."""
_SCALED = {
    "compute": ("compute",),
    "rate": ("up", "down"),
    "rtt": ("rtt",),
    "samples": ("samples",),
    "memory": ("memory",),
}
"""What can be multiplied, and the columns that this is."""
_SCALE = Schema(
    "the change",
    ScenarioError,
    (
        Field("key", Choice(tuple(_SCALED)), "the column"),
        Field("factor", Number(1e-6, 1e6), "what it is multiplied by"),
        Field("clients", Many(Whole(0, MOST_CLIENTS)), "whose, by their places in the fleet"),
    ),
)


_fleets: dict[str, Fleet] = {}
"""The fleets of the texts that were read or written last, the newest at the end."""


def _keep(content: str, fleet: Fleet) -> Fleet:
    _fleets.pop(content, None)
    _fleets[content] = fleet
    for old in list(_fleets)[:-_KEPT]:
        _fleets.pop(old, None)
    return fleet


def check_count(count: int) -> None:
    """Refuse a fleet that is too large for a page."""
    if count > MOST_CLIENTS:
        raise ScenarioError(
            f"the fleet has {count:,} clients, but a page shows {MOST_CLIENTS:,} at most: use cutwater plan"
        )


def fleet_of(content: str) -> Fleet:
    """The fleet of a CSV text."""
    if (known := _fleets.get(content)) is not None:
        return _keep(content, known)
    header, rows = csv_table(io.StringIO(content), "the CSV")
    check_count(len(rows))
    return _keep(content, fleet_from_table(header, rows, "the CSV"))


def to_csv(fleet: Fleet) -> str:
    """A fleet as CSV that reads back the same; only columns that say something."""
    columns = {key: cells for key, cells in client_columns(fleet).items() if cells.count(None) < len(cells)}
    for key in SETS:
        if key in columns:
            columns[key] = [None if some is None else " ".join(map(str, some)) for some in columns[key]]
    used = [key for key in KEYS if key in columns]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(used)
    writer.writerows(zip(*(columns[key] for key in used), strict=True))
    content = out.getvalue()
    # A page sends back what it is sent. A name with a line break or with blanks around it reads otherwise.
    if all(name == name.strip() and name.isprintable() for name in columns["name"]):
        _keep(content, fleet)
    return content


def scaled(fleet: Fleet, change: Any) -> Fleet:
    """The fleet with one column of some clients multiplied by a factor."""
    given = _SCALE.read(change)
    places = np.array(given["clients"], dtype=np.int64)
    if places.size and places.max() >= len(fleet):
        raise ScenarioError(f"the change is of client {places.max() + 1}, but the fleet has {len(fleet)}")
    columns = {}
    for name in _SCALED[given["key"]]:
        column = getattr(fleet, name).copy()
        more = column[places] * given["factor"]
        column[places] = np.maximum(np.rint(more), 1) if name == "samples" else more
        columns[name] = column
    return fleet.replace(**columns)
