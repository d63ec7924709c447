"""A model of another library to be checked, with inputs for it at two sizes; and what became of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

Inputs = Callable[[int, int], Any]
"""(batch size, length or resolution) → inputs as :func:`cutwater.layered` takes them."""
CLASSES = ("right", "few cuts", "refused", "wrong", "skipped")


@dataclass(frozen=True)
class Case:
    """One model."""

    library: str
    """As Python imports it."""
    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    sizes: tuple[int, ...]
    """The length or resolution of the example, and another that the model may take as well."""

    @property
    def key(self) -> str:
        """What it is called on the command line."""
        return f"{self.library}/{self.name}"


@dataclass
class Result:
    """One model, and the class that it ended in."""

    library: str
    name: str
    outcome: str = "right"
    """One of CLASSES."""
    reason: str = ""
    blocks: int = 0
    layers: int = 0
    cuts: int = 0
    exact: bool = True
    tied: bool = False
    """Whether weights that learn at both ends leave pairs of cuts only: head and tail on the device."""
    other_size: str = ""
    """What became of another length or resolution: works, or refused with what was said."""
    remedy: str = ""
    """Of a refusal: whether what it proposes works, when done as printed."""
    seconds: float = 0.0

    def ends(self, outcome: str, reason: str) -> "Result":
        """The same, with what became of it."""
        self.outcome, self.reason = outcome, reason
        return self

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "seconds": round(self.seconds, 1)}
