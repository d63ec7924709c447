"""Make items anew and leave figures, numbers, claims and one page in a folder.

::

    DIR/index.html            the page
    DIR/claims.json           every claim: claim, paper, ours, holds, why
    DIR/figures/NAME.png      and .svg
    DIR/values/NAME.json      all numbers of an item ("cutwater.reproduction")
    DIR/runs/                 run folders of long trainings, to resume them

The page shows every item that the folder holds, so that items can be made one at a time.
"""

import os
import platform
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cutwater.base.errors import FileFormatError
from cutwater.base.jsonfile import check_document, document, read_json, write_atomically, write_json
from cutwater.reproduce.catalogue import NAMES
from cutwater.reproduce.item import Context, Item, plain
from cutwater.reproduce.page import page
from cutwater.reproduce.sheet import as_png, as_svg

FORMAT = "cutwater.reproduction"
VERSION = 1

ShowItemProgress = Callable[[str, int, int], None]
"""Hears of which item how many of all steps are done."""


def reproduce(
    items: Sequence[Item[Any, Any]],
    out: Path,
    *,
    full: bool = False,
    progress: ShowItemProgress = lambda *_: None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[dict[str, Any]]:
    """Make these items and the page of all items in the folder; returns the documents of those made."""
    made = []
    for item in items:
        made.append(make(item, (item.full if full else None) or item.normal, out, progress, clock))
        publish(out)
    return made


def make(
    item: Item[Any, Any], settings: Any, out: Path, progress: ShowItemProgress, clock: Callable[[], float]
) -> dict[str, Any]:
    """One item: run it, draw it, write it; returns its document."""
    began = clock()
    watch = partial(progress, item.name)
    watch(0, 1)
    values = item.run(settings, Context(watch=watch, runs=out / "runs" / item.name))
    figure = item.figure(values)
    body = {
        "item": item.name,
        "source": item.source,
        "title": item.title,
        "about": item.about,
        "basis": item.basis,
        "reading": item.reading(values),
        "claims": [plain(claim) for claim in item.claims(values)],
        "expected": [
            {"key": e.key, "low": e.low, "high": e.high, "value": e.value(values), "met": e.met(values)}
            for e in item.expected
        ],
        "made_with": _made_with(),
        "seconds": round(clock() - began, 1),
        "settings": plain(settings),
        "values": plain(values),
    }
    write_atomically(out / "figures" / f"{item.name}.png", as_png(figure))
    write_atomically(out / "figures" / f"{item.name}.svg", as_svg(figure))
    write_json(out / "values" / f"{item.name}.json", document(FORMAT, VERSION, body))
    return body


def publish(out: Path) -> None:
    """Write claims.json and index.html for all items that the folder holds."""
    bodies = [body for name in NAMES if (body := _read(out, name)) is not None]
    write_json(out / "claims.json", all_claims(bodies))
    figures = {body["item"]: (out / "figures" / f"{body['item']}.svg").read_bytes() for body in bodies}
    write_atomically(out / "index.html", page(bodies, figures).encode())


def all_claims(bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every claim of some items, each with the item that it belongs to."""
    return [{**claim, "item": body["item"]} for body in bodies for claim in body["claims"]]


def _read(out: Path, name: str) -> dict[str, Any] | None:
    path = out / "values" / f"{name}.json"
    if not path.exists() or not (out / "figures" / f"{name}.svg").exists():
        return None
    try:
        return check_document(read_json(path), FORMAT, VERSION, str(path))
    except FileFormatError:
        # Left over from another release: it is made anew when it is asked for.
        return None


def _made_with() -> dict[str, str]:
    return {
        "cutwater": version("cutwater"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
