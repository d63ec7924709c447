"""Which way a metric gets better, and how far a run is to get: what ``keep_best`` and ``--target`` say.

Needs no torch.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cutwater.base.errors import CutwaterError
from cutwater.base.kinds import JsonSchema, Text

MORE, LESS = "max", "min"
BETTER = {"accuracy": MORE, "test_loss": LESS, "mae": LESS, "rmse": LESS}
"""Of what is built in, whether more or less of it is better."""
LOSS = "loss"
"""The training loss, which a run may be compared by, too."""
TAKEN = ("accuracy", "test_loss", LOSS)
"""Names that records have fields of their own for."""
_NAME = re.compile(r"[^\s<>=]+")
_TARGET = re.compile(rf"\s*({_NAME.pattern})\s*(>=|<=)\s*(\S+)\s*")
_WAYS = {">=": MORE, "<=": LESS}


def is_name(text: str) -> bool:
    """Whether a metric may be called so: a target names it before a sign of comparison.

    >>> is_name("f1"), is_name("top 5"), is_name("")
    (True, False, False)
    """
    return _NAME.fullmatch(text) is not None


def by_name(
    accuracy: float | None, test_loss: float | None, metrics: Mapping[str, float]
) -> dict[str, float]:
    """The scores that there are, by the names that goals know them by."""
    named = {"accuracy": accuracy, "test_loss": test_loss, **metrics}
    return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True)
class Goal:
    """A metric, and whether more or less of it is better."""

    metric: str
    better: str
    """``max`` or ``min``."""

    @classmethod
    def parse(cls, text: str) -> "Goal":
        """A goal as ``keep_best`` names it; a ValueError where it does not say which way.

        >>> Goal.parse("accuracy"), Goal.parse("min error")
        (Goal(metric='accuracy', better='max'), Goal(metric='error', better='min'))
        """
        way, *names = text.split()
        if not names and way in BETTER:
            return cls(way, BETTER[way])
        if len(names) == 1 and way in (MORE, LESS) and is_name(names[0]):
            return cls(names[0], way)
        raise ValueError(text)

    def improves(self, value: float, on: float | None) -> bool:
        """Whether a value is better than the best so far; what is no number never is."""
        if math.isnan(value):
            return False
        return on is None or (value > on if self.better == MORE else value < on)

    def best(self, values: list[float]) -> float:
        """The best of some values."""
        return max(values) if self.better == MORE else min(values)


@dataclass(frozen=True)
class Target:
    """How far a run is to get."""

    goal: Goal
    value: float

    @classmethod
    def parse(cls, text: str) -> "Target":
        """A target as a command is given it, or one sentence.

        >>> Target.parse("f1>=0.9")
        Target(goal=Goal(metric='f1', better='max'), value=0.9)
        """
        found = _TARGET.fullmatch(text)
        try:
            value = float(found[3]) if found else math.nan
        except ValueError:
            value = math.nan
        if found is None or not math.isfinite(value):
            raise CutwaterError(
                f"target {text!r} can't be read: write a metric, >= or <=, and a number, such as "
                "'accuracy>=0.97' or 'test_loss<=0.1'"
            )
        return cls(Goal(found[1], _WAYS[found[2]]), value)

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {**asdict(self.goal), "value": self.value}

    def reached(self, value: float | None) -> bool:
        """Whether a value is enough."""
        if value is None:
            return False
        return value >= self.value if self.goal.better == MORE else value <= self.value


@dataclass(frozen=True)
class GoalText(Text):
    """Text that names a metric and, unless that is known, which way is better."""

    def json_schema(self) -> JsonSchema:
        """A known name, or a name with a direction."""
        return {"type": "string", "pattern": rf"^\s*({'|'.join(BETTER)}|({MORE}|{LESS})\s+\S+)\s*$"}

    def _allowed(self) -> str:
        return f"{', '.join(BETTER)}, or 'max NAME' or 'min NAME' of another metric"

    def _take(self, value: Any) -> str:
        text = super()._take(value)
        if not text.strip():
            raise ValueError(value)
        Goal.parse(text)
        return text

    def _instead(self, value: Any) -> str:
        return f", but must be {self._allowed()}"
