"""Names that a module offers and imports on first use, so that planning never waits for torch."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def offered(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a module whose names live in other modules.

    >>> find, names = offered("numbers", {"sqrt": "math"})
    >>> find("sqrt")(4.0), names()
    (2.0, ['sqrt'])
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find, lambda: sorted(homes)


def by_name(homes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Where each name lives, of names that are listed module by module."""
    return {name: home for home, names in homes.items() for name in names}
