"""What all aggregators that have a name in [train] share: the name, and checks of their options."""

import math
from collections.abc import Callable
from typing import ClassVar

from cutwater.base.errors import RunError
from cutwater.train.session import State


class ByName:
    """An aggregator with a name, which remembers nothing before the first round."""

    NAME: ClassVar[str]

    def start(self, weights: State) -> State:
        """Nothing."""
        return {}


def check_above_0(owner: ByName, *names: str) -> None:
    """Refuse an option that is no number above 0."""
    for name in names:
        _check(owner, name, lambda value: 0 < value < math.inf, "a number above 0")


def check_fraction(owner: ByName, *names: str, below: float = 1) -> None:
    """Refuse an option that is no part of a whole."""
    for name in names:
        _check(owner, name, lambda value: 0 <= value < below, f"at least 0 and below {below}")


def _check(owner: ByName, name: str, good: Callable[[float], bool], allowed: str) -> None:
    value = getattr(owner, name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not good(value):
        raise RunError(f"aggregator {owner.NAME!r} has {name} = {value!r}, but it must be {allowed}")
