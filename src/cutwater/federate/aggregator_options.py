"""Checks of the options that aggregators are made with."""

import math
from collections.abc import Callable

from cutwater.base.errors import RunError


def check_above_0(owner: object, *names: str) -> None:
    """Refuse an option that is no number above 0."""
    for name in names:
        _check(owner, name, lambda value: 0 < value < math.inf, "a number above 0")


def check_fraction(owner: object, *names: str, below: float = 1) -> None:
    """Refuse an option that is no part of a whole."""
    for name in names:
        _check(owner, name, lambda value: 0 <= value < below, f"at least 0 and below {below}")


def _check(owner: object, name: str, good: Callable[[float], bool], allowed: str) -> None:
    value = getattr(owner, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not good(value):
        kind = type(owner).__name__.lower()
        raise RunError(f"aggregator {kind!r} has {name} = {value!r}, but it must be {allowed}")
