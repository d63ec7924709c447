"""What became of one model."""

from dataclasses import asdict, dataclass
from typing import Any

CLASSES = ("right", "few cuts", "refused", "wrong", "skipped")


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
