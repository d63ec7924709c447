"""A fleet as the CSV text that a page holds, read and written a column at a time."""

import csv
import io
from collections import OrderedDict
from threading import Lock
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


class _Fleets:
    """The fleets of the texts that were read or written last."""

    def __init__(self) -> None:
        self._fleets: OrderedDict[str, Fleet] = OrderedDict()
        self._lock = Lock()

    def get(self, content: str) -> Fleet | None:
        with self._lock:
            if content in self._fleets:
                self._fleets.move_to_end(content)
            return self._fleets.get(content)

    def keep(self, content: str, fleet: Fleet) -> None:
        with self._lock:
            self._fleets[content] = fleet
            while len(self._fleets) > _KEPT:
                self._fleets.popitem(last=False)


_fleets = _Fleets()


def check_count(count: int) -> None:
    """Refuse a fleet that is too large for a page."""
    if count > MOST_CLIENTS:
        raise ScenarioError(
            f"the fleet has {count:,} clients, but a page shows {MOST_CLIENTS:,} at most: use cutwater plan"
        )


def fleet_of(content: str) -> Fleet:
    """The fleet of a CSV text."""
    if (known := _fleets.get(content)) is not None:
        return known
    header, rows = csv_table(io.StringIO(content), "the CSV")
    check_count(len(rows))
    fleet = fleet_from_table(header, rows, "the CSV")
    _fleets.keep(content, fleet)
    return fleet


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
        _fleets.keep(content, fleet)
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
