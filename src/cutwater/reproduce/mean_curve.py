"""The mean of trainings with several seeds: accuracy by round and by each planner's clock."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.reproduce.training import Training

LABELS = {"fedavg": "FedAvg", "alternating": "SFL, Algorithm 1", "exact": "SFL, optimal plan"}
SPOKEN = {"fedavg": "FedAvg", "alternating": "Algorithm 1", "exact": "the optimal plan"}
"""The planners in a legend, and in a sentence."""


@dataclass(frozen=True)
class MeanCurve:
    """Mean over some trainings, at the rounds that all of them tested."""

    seeds: int
    rounds: tuple[int, ...]
    accuracy: Floats
    seconds: dict[str, Floats]
    """Mean virtual time at the end of each of the rounds, by planner."""

    def round_to(self, level: float) -> int | None:
        """The first tested round whose mean accuracy is at the level or above; None if there is none."""
        reached = np.flatnonzero(self.accuracy >= level)
        return self.rounds[reached[0]] if len(reached) else None

    def time_to(self, level: float, planner: str) -> float | None:
        """Mean virtual time at the end of that round."""
        found = self.round_to(level)
        return None if found is None else float(self.seconds[planner][self.rounds.index(found)])

    @property
    def seeds_in_words(self) -> str:
        """How many seeds the mean is of."""
        return f"{self.seeds} seed{'s' if self.seeds != 1 else ''}"


def mean_curve(trainings: Sequence[Training]) -> MeanCurve:
    """The mean of trainings that may have gone to different rounds."""
    common = set.intersection(*(set(one.rounds) for one in trainings))
    rounds = tuple(sorted(common))

    def mean(of: Sequence[Sequence[float]]) -> Floats:
        rows = [
            [row[one.rounds.index(number)] for number in rounds]
            for one, row in zip(trainings, of, strict=True)
        ]
        found: Floats = np.mean(rows, axis=0)
        return found

    return MeanCurve(
        seeds=len(trainings),
        rounds=rounds,
        accuracy=mean([one.accuracy for one in trainings]),
        seconds={
            planner: mean([one.seconds[planner] for one in trainings]) for planner in trainings[0].seconds
        },
    )
