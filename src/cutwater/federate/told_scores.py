"""What a record tells of scores: the best model so far, and the spread over clients. Needs no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cutwater.base.errors import FileFormatError
from cutwater.base.kinds import Choice
from cutwater.base.schema import described
from cutwater.federate.measured import COUNT, SCORE, TEXT


def score_text(name: str, value: float) -> str:
    """A score for people.

    >>> score_text("accuracy", 0.98123), score_text("test_loss", 0.25)
    ('accuracy 98.1 %', 'test loss 0.25')
    """
    return f"{score_name(name)} {value_text(name, value)}"


def score_name(name: str) -> str:
    """What people call a score; a metric is called what its author calls it."""
    return "test loss" if name == "test_loss" else name


def value_text(name: str, value: float) -> str:
    """The number of a score for people: accuracies are told in percent."""
    return f"{value * 100:.1f} %" if name == "accuracy" else f"{value:.4g}"


@described("the best model", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class Best:
    """The best model of a run so far, by the metric that it is kept for."""

    metric: Annotated[str, TEXT, "what it is best by"]
    better: Annotated[str, Choice(("max", "min")), "whether more or less of it is better"]
    round: Annotated[int, COUNT, "the round that it is of"]
    value: Annotated[float, SCORE, "its metric"]
    waited: Annotated[int, COUNT, "how often the model was evaluated since then, and was not better"] = 0


@described("the spread", FileFormatError, open=True)
@dataclass(frozen=True, kw_only=True)
class Spread:
    """One number of each client, over the clients."""

    mean: Annotated[float, SCORE, "over the clients, each counted once"]
    deviation: Annotated[float, SCORE, "standard deviation: how unequal the model is to them"]
    least: Annotated[float, SCORE, "of any client"]
    most: Annotated[float, SCORE, "of any client"]
    clients: Annotated[int, COUNT, "how many have one"]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """The spread of some numbers; None where there is none.

        >>> Spread.of([0.5, 1.0])
        Spread(mean=0.75, deviation=0.25, least=0.5, most=1.0, clients=2)
        """
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
        return cls(mean=mean, deviation=deviation, least=min(values), most=max(values), clients=len(values))
