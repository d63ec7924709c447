"""All items by name, in the order of the paper, and what goes beyond it."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from cutwater.base.errors import CutwaterError, suggest
from cutwater.reproduce.item import Item

NAMES = (
    "model-size",
    "kappa",
    "compute",
    "smashed",
    "table-2",
    "cut-latency",
    "clients",
    "convergence",
    "server",
    "accuracy",
    "gap",
    "models",
    "beyond",
)


def choose(names: Iterable[str]) -> list[Item[Any, Any]]:
    """The items of these names in the order of the paper; all of them if no name is given.

    An item is imported when it is chosen, so that a misspelt name is found out at once.
    """
    wanted = set(names)
    for name in sorted(wanted - set(NAMES)):
        raise CutwaterError(f"there is no item {name!r} to reproduce; {suggest(name, NAMES)}")
    return [_item(name) for name in NAMES if not wanted or name in wanted]


def _item(name: str) -> Item[Any, Any]:
    module = import_module(f"cutwater.reproduce.items.{name.replace('-', '_')}")
    item: Item[Any, Any] = module.ITEM
    return item
