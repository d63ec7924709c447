"""What a table or figure of the paper is here: settings, numbers, a figure, claims, and expected ranges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from cutwater.reproduce.sheet import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

C = TypeVar("C")
V = TypeVar("V")


ShowProgress = Callable[[int, int], None]
"""Hears how many of all steps of an item are done, for a progress bar."""


@dataclass(frozen=True)
class Context:
    """What surrounds the run of an item."""

    watch: ShowProgress = lambda *_: None
    runs: Path | None = None
    """Where long trainings keep their run folders, so that they can be resumed; None keeps nothing."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper beside what we find."""

    claim: str
    paper: str
    """What the paper says."""
    ours: str
    """What comes out here."""
    holds: bool
    why: str
    """What it rests on, or why it does not follow."""


@dataclass(frozen=True)
class Expected:
    """The range that a number must be in, for the item to count as reproduced."""

    key: str
    """Where the number stands in the item's values, such as ``exact.latency``."""
    low: float
    high: float

    def value(self, values: Any) -> float:
        """The number in an item's values."""
        for step in self.key.split("."):
            if isinstance(values, Mapping):
                values = values[step]
            else:
                values = values[int(step)] if step.lstrip("-").isdigit() else getattr(values, step)
        return float(values)

    def met(self, values: Any) -> bool:
        """Whether the number is in its range."""
        return self.low <= self.value(values) <= self.high


def unmet(expected: Mapping[str, Any]) -> str:
    """That a number of an item's document is not what it should be."""
    low, high = expected["low"], expected["high"]
    return f"{expected['key']} is {expected['value']:.4g}, outside of the expected {low:.4g} to {high:.4g}"


@dataclass(frozen=True, kw_only=True)
class Item(Generic[C, V]):
    """A table or figure that can be made anew."""

    name: str
    source: str
    """Where it stands in the paper."""
    title: str
    about: str
    """What the figure shows, for the page."""
    basis: str
    """What of it is given by the paper and what is calibrated, counted or measured here."""
    normal: C
    """The settings of ``cutwater reproduce``."""
    quick: C | None = None
    """Smaller settings that show the same, for tests, if the normal ones take long."""
    full: C | None = None
    """The settings of ``--full``, if they are others."""
    run: Callable[[C, Context], V]
    draw: "Callable[[V], Figure]"
    reading: Callable[[V], str]
    """What to see in the figure, in one or two sentences with the numbers in them."""
    claims: Callable[[V], Sequence[Claim]] = lambda _: ()
    expected: tuple[Expected, ...] = ()

    def figure(self, values: V) -> "Figure":
        """What is drawn of its values, in the look that all figures have."""
        with look():
            return self.draw(values)


def plain(value: Any) -> Any:
    """Frozen values as what JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
