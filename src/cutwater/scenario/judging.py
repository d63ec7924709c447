"""``[judge]``: what an update may be before it counts, as a frozen value. Needs no torch."""

from dataclasses import dataclass
from typing import Annotated

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Flag, Number
from cutwater.base.schema import check, described


@described("[judge]", ScenarioError)
@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """``[judge]``: what an update may be before it counts."""

    active: Annotated[
        bool,
        Flag(),
        "whether these rules hold; names, shapes, types and finite numbers are always checked",
    ] = True
    norm_of_model: Annotated[
        float,
        Number(0),
        "an update that moves the weights by at most this times the norm of the global model is not refused "
        "for what it moves them by",
    ] = 1.0
    norm_of_others: Annotated[
        float,
        Number(2),
        "beyond that, it is refused where it moves them by more than this times the median of the round's "
        "updates (of three or more), in proportion to its steps where it has more than they",
    ] = 10.0
    largest_norm: Annotated[
        float,
        Number(above=0),
        "and it is refused where it moves them by more than this times the norm of the global model, "
        "whatever the others did",
    ] = 1e6
    statistics: Annotated[
        float,
        Number(2),
        "running variances of normalisation layers, and the squares of how far running means move, may be "
        "this times the global model's variances or, if that is more, this times the median of the round's; "
        "variances are never negative",
    ] = 1000.0
    counters: Annotated[
        float,
        Number(1),
        "a buffer of one whole number may advance by this times the parts of mini-batches trained (more than "
        "1 where a layer is used several times in a pass) or, if that is more, by the median of the round's "
        "updates (of three or more); buffers of several whole numbers must stay as they are",
    ] = 1.0

    def __post_init__(self) -> None:
        check(self)
