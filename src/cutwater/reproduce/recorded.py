"""The committed trainings of EfficientNetV2-M, and what they say of the paper's Fig. 12.

A training of the paper's own model takes hours, so some are kept in ``recorded.json``, one for each seed:
what `cutwater reproduce accuracy --full` had in its run folders when they were recorded by

    python -m cutwater.reproduce.record DIR/runs/accuracy/efficientnet_v2_m-seed-1 …

What was trained just now by ``--full`` is told in the same words.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cutwater.base.jsonfile import check_document, read_json
from cutwater.reproduce.item import Claim
from cutwater.reproduce.mean_curve import SPOKEN, MeanCurve, mean_curve
from cutwater.reproduce.training import PLANNERS, Training

FORMAT = "cutwater.recorded"
VERSION = 2
HOME = Path(__file__).with_name("recorded.json")
CLAIMED = 0.9
"""The accuracy that the paper's curve approaches."""
LEVELS = (0.8, 0.9)
"""Accuracies that the time to is told for."""
START = (
    "The zoo's EfficientNetV2 starts with residual blocks that are identities, grouped convolutions scaled "
    "by their own fan-out and a classifier near zero; eight rounds from a start without these three stayed "
    "at chance, and `python benchmarks/initialisation.py` takes each of them away in turn."
)


@dataclass(frozen=True, kw_only=True)
class RecordedTraining(Training):
    """The training of one seed, as far as it went, and where it comes from."""

    wall_hours: float
    versions: dict[str, str]


@dataclass(frozen=True)
class Recorded:
    """Trainings of EfficientNetV2-M, one for each seed."""

    lr: float
    trainings: tuple[Training, ...]

    @cached_property
    def curve(self) -> MeanCurve:
        """Their mean, at the rounds that all of them tested."""
        return mean_curve(self.trainings)

    @property
    def done(self) -> int:
        """Rounds that were trained with every seed."""
        return min(one.done for one in self.trainings)

    def is_whole(self, rounds: int) -> bool:
        """Whether every seed was trained for, and tested after, as many rounds as the paper has."""
        return rounds in self.curve.rounds

    def sentence(self, rounds: int) -> str:
        """What was run, and what it gave."""
        curve = self.curve
        losses = [sum(one.loss[at] for one in self.trainings) / len(self.trainings) for at in (0, -1)]
        long = curve.seconds["fedavg"][-1] / curve.seconds["exact"][-1]
        return (
            f"EfficientNetV2-M, {curve.seeds_in_words}, {self.done} of {rounds} rounds of 20 mini-batches: "
            f"test accuracy {curve.accuracy[-1]:.3f}, training loss from {losses[0]:.2f} down to "
            f"{losses[-1]:.2f}. {self._times()}. FedAvg's clock shows {long:.1f} times the optimal plan's, "
            "because moving the whole model takes FedAvg most of such a short session."
        )

    def claims(self, rounds: int) -> list[Claim]:
        """What the paper says of EfficientNetV2 in its Fig. 12."""
        return [self._accuracy_claim(rounds), self._time_claim(rounds)]

    def _accuracy_claim(self, rounds: int) -> Claim:
        curve, whole = self.curve, self.is_whole(rounds)
        reached = curve.round_to(CLAIMED)
        parts = [
            f"SGD with a learning rate of {self.lr:g}, which the paper does not give.",
            "" if whole else f"Open: {self.done} of {rounds} rounds were trained.",
            ""
            if reached is None
            else f"The mean is at {CLAIMED:.2f} after {reached} rounds already. {START}",
        ]
        return Claim(
            claim=f"EfficientNetV2 approaches 0.90 after {rounds} rounds",
            paper="0.90",
            ours=f"{curve.accuracy[-1]:.3f} after {curve.rounds[-1]} rounds, mean of {curve.seeds_in_words} "
            f"(best {curve.accuracy.max():.3f})",
            holds=whole and bool(curve.accuracy[-1] >= CLAIMED),
            why=" ".join(part for part in parts if part),
        )

    def _time_claim(self, rounds: int) -> Claim:
        times = [{planner: self.curve.time_to(level, planner) for planner in PLANNERS} for level in LEVELS]
        open_ = "" if self.is_whole(rounds) else f" Open: {self.done} of {rounds} rounds were trained."
        return Claim(
            claim="EfficientNetV2-M: time to 0.8 and 0.9",
            paper="much less than FedAvg",
            ours=self._times(),
            holds=all(_much_less(one) for one in times),
            why="By the virtual clock of the calibrated thirty clients, with sessions of 20 mini-batches, at "
            "the end of the first tested round whose mean accuracy is at the level."
            + (open_ if any(None in one.values() for one in times) else ""),
        )

    def _times(self) -> str:
        return "; ".join(self._times_to(level) for level in LEVELS)

    def _times_to(self, level: float) -> str:
        number = self.curve.round_to(level)
        if number is None:
            return f"{level:.1f} was never reached at a tested round"
        each = ", ".join(
            f"{SPOKEN[planner]} {self.curve.time_to(level, planner):.1f} s" for planner in PLANNERS
        )
        return f"{level:.1f} was reached at a tested round after {number} rounds, which takes {each}"


def _much_less(seconds: dict[str, float | None]) -> bool:
    """Whether FedAvg takes more than 1.5 times as long as either plan of SFL."""
    fedavg = seconds["fedavg"]
    return fedavg is not None and all(
        other is not None and fedavg > 1.5 * other for name, other in seconds.items() if name != "fedavg"
    )


def recorded(path: Path = HOME) -> Recorded | None:
    """The committed trainings, if there are any."""
    if not path.exists():
        return None
    body = check_document(read_json(path), FORMAT, VERSION, str(path))
    return Recorded(lr=body["lr"], trainings=tuple(_training(one) for one in body["trainings"]))


def _training(one: dict[str, Any]) -> RecordedTraining:
    lists = {name: tuple(one[name]) for name in ("rounds", "accuracy", "loss")}
    seconds = {planner: tuple(times) for planner, times in one["seconds"].items()}
    return RecordedTraining(**{**one, **lists, "seconds": seconds})
