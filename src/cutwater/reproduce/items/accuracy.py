"""Fig. 12: test accuracy by round and by virtual time, SFL and FedAvg."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cutwater.report.figures import PLANNER_COLOURS
from cutwater.reproduce.item import Claim, Context, Expected, Item
from cutwater.reproduce.mean_curve import LABELS, MeanCurve, mean_curve
from cutwater.reproduce.paper_setup import MODEL
from cutwater.reproduce.recorded import Recorded, recorded
from cutwater.reproduce.sheet import letters, panels
from cutwater.reproduce.training import (
    SameBits,
    Training,
    TrainingSettings,
    check,
    load_data,
    long_sessions,
    make_study,
    slowed,
    train_one,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {"fedavg": ":", "alternating": "--", "exact": "-"}
LEVELS = (0.95, 0.9, 0.8, 0.5)
"""Accuracies that the time to is told for; the first that was reached."""
PAPER_ROUNDS = 60


@dataclass(frozen=True)
class Accuracy:
    """Trainings of one model, one for each seed, timed by each planner's clock."""

    model: str
    data: str
    note: str
    """Where the data is not the paper's."""
    lr: float
    slowed: float
    """Clients' and server's compute as a part of the scenario's."""
    trainings: tuple[Training, ...]
    same_bits: tuple[SameBits, ...]
    long_sessions: dict[str, float]
    """Seconds of as many rounds of EfficientNetV2-M with sessions of 20 epochs, by planner."""
    recorded: Recorded | None

    @cached_property
    def curve(self) -> MeanCurve:
        """The mean over the seeds."""
        return mean_curve(self.trainings)

    @property
    def final(self) -> float:
        """Mean accuracy at the end."""
        return float(self.curve.accuracy[-1])

    @property
    def level(self) -> float:
        """The accuracy that the time to is told for."""
        best = float(self.curve.accuracy.max())
        return next((level for level in LEVELS if best >= level), best)

    def time_to_level(self, planner: str) -> float:
        """Virtual time until the mean accuracy reaches the level."""
        found = self.curve.time_to(self.level, planner)
        assert found is not None, "the level is one that was reached"
        return found

    @property
    def paper_model(self) -> Recorded | None:
        """EfficientNetV2-M: as it was trained now, else as it was recorded."""
        return Recorded(self.lr, self.trainings) if self.model == MODEL else self.recorded

    @property
    def faster(self) -> float:
        """How many times as long FedAvg takes to the level as the optimal plan."""
        return self.time_to_level("fedavg") / self.time_to_level("exact")

    @property
    def faster_by_algorithm_1(self) -> float:
        """The same for Algorithm 1."""
        return self.time_to_level("fedavg") / self.time_to_level("alternating")

    @property
    def agreeing(self) -> int:
        """Checked rounds whose weights are the same, bit for bit."""
        return sum(one.agrees for one in self.same_bits)


def run(settings: TrainingSettings, context: Context) -> Accuracy:
    """Train every seed, check the bits, read every clock."""
    data, note = load_data(settings.source)
    trainings = []
    for done, seed in enumerate(settings.seeds):
        study = make_study(settings, data, seed)
        name = f"{settings.model}-seed-{seed}"
        trainings.append(train_one(study, settings, context, name, done=done, trainings=len(settings.seeds)))
    first = make_study(settings, data, settings.seeds[0])
    return Accuracy(
        model=settings.model,
        data=data.name,
        note=note,
        lr=settings.lr,
        slowed=slowed(first.profile),
        trainings=tuple(trainings),
        same_bits=check(first, settings.checked, settings.seeds[0]),
        long_sessions=long_sessions(settings.rounds, settings.seeds[0]),
        recorded=recorded() if settings.model != MODEL else None,
    )


def draw(values: Accuracy) -> "Figure":
    """By round above, by virtual time below; beside them EfficientNetV2-M, once its training is whole."""
    beside = values.recorded
    if beside is None or not beside.is_whole(PAPER_ROUNDS):
        figure, axes = panels(3.8, rows=2)
    else:
        figure, axes = panels(4.2, rows=2, columns=2)
        axes = [axes[0], axes[2], axes[1], axes[3]]
        _by_round(axes[2], beside.curve)
        _by_time(axes[3], beside.curve, decades=True)
    every = np.array([one.accuracy for one in values.trainings])
    axes[0].fill_between(
        values.curve.rounds, every.min(axis=0), every.max(axis=0), color="#cccccc", linewidth=0
    )
    _by_round(axes[0], values.curve)
    axes[0].legend(loc="lower right", title="same bits", title_fontsize=7)
    _by_time(axes[1], values.curve, decades=values.model == MODEL)
    axes[1].legend(loc="lower right", fontsize=6.5)
    for one in axes[:2]:
        one.set_ylabel("test accuracy")
    names = [f"{values.model}, {values.curve.seeds_in_words}"] * 2
    if beside is not None:
        names += [f"EffNetV2-M, {beside.curve.seeds_in_words}"] * 2
    letters(axes, names)
    return figure


def _by_round(axes: "Axes", curve: MeanCurve) -> None:
    axes.plot(curve.rounds, curve.accuracy, "-", color=PLANNER_COLOURS["exact"], label="SFL")
    axes.plot(
        curve.rounds, curve.accuracy, "o", color=PLANNER_COLOURS["fedavg"], markersize=2.4, label="FedAvg"
    )
    axes.set(xlabel="round", xlim=(0, max(curve.rounds) + 0.5), ylim=(0, 1))
    axes.locator_params(axis="x", integer=True)


def _by_time(axes: "Axes", curve: MeanCurve, *, decades: bool) -> None:
    """Decades for EfficientNetV2-M, of which FedAvg's rounds take some twenty times as long as SFL's."""
    for planner, seconds in curve.seconds.items():
        axes.plot(
            seconds, curve.accuracy, LINES[planner], color=PLANNER_COLOURS[planner], label=LABELS[planner]
        )
    axes.set(xlabel="virtual time (s)", ylim=(0, 1))
    if decades:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)


def reading(values: Accuracy) -> str:
    """What to see."""
    long = values.long_sessions
    text = (
        f"{values.model} on {values.data}, {len(values.trainings)} seeds: SFL and FedAvg are one curve by "
        f"round, and {values.level:.0%} accuracy takes FedAvg {values.time_to_level('fedavg'):.0f} s, the "
        f"optimal plan {values.time_to_level('exact'):.0f} s ({values.faster:.2f} times as fast) and "
        f"Algorithm 1 {values.time_to_level('alternating'):.0f} s. With EfficientNetV2-M and sessions of 20 "
        f"epochs the same rounds take FedAvg {long['fedavg'] / long['alternating']:.2f} times as long as "
        f"Algorithm 1 and {long['fedavg'] / long['exact']:.2f} times as long as the optimum."
    )
    more = (text, values.note, values.paper_model.sentence(PAPER_ROUNDS) if values.paper_model else "")
    return " ".join(part for part in more if part)


def claims(values: Accuracy) -> list[Claim]:
    """What the paper says of the figure."""
    long = values.long_sessions
    found = [
        Claim(
            claim="SFL has the same test accuracy by round as FedAvg",
            paper="consistent",
            ours=f"the same bits: SHA-256 of all weights agrees in {values.agreeing} of "
            f"{len(values.same_bits)} rounds trained as FedAvg, by Algorithm 1's plan and with random cuts",
            holds=values.agreeing == len(values.same_bits),
            why="A split step computes what an unsplit one does; so one training stands for both, with two "
            "clocks.",
        ),
        Claim(
            claim="SFL takes less time than FedAvg to the same accuracy",
            paper="much less",
            ours=f"to {values.level:.0%}: FedAvg takes {values.faster:.2f} × the optimal plan's time, "
            f"{values.faster_by_algorithm_1:.2f} × Algorithm 1's ({values.model}); "
            f"{long['fedavg'] / long['exact']:.2f} × and {long['fedavg'] / long['alternating']:.2f} × for "
            "EfficientNetV2-M with sessions of 20 epochs",
            holds=values.faster > 1.5 and long["fedavg"] / long["alternating"] > 1.5,
            why="By the virtual clock of the calibrated thirty clients. The curves of Algorithm 1 were made "
            "for EfficientNetV2, not for other models.",
        ),
    ]
    return found + (values.paper_model.claims(PAPER_ROUNDS) if values.paper_model else [])


NORMAL = TrainingSettings(model="cnn", rounds=20, lr=0.003)
"""The learning rate is such that accuracy rises over many rounds, as it does in the paper."""
FULL = TrainingSettings(model=MODEL, rounds=PAPER_ROUNDS, evaluate_every=2, checked=1, keep=True)

ITEM = Item(
    name="accuracy",
    source="Fig. 12",
    title="Test accuracy of the trained model",
    about="Thirty clients, ten drawn for each round, 20 mini-batches of 32 each; test accuracy of the global "
    "model by round (mean and range of the seeds) and by the virtual clock.",
    basis="The thirty clients are calibrated. By default a small model is trained, with clients and server "
    "slowed down in proportion to its FLOPs, so that computing takes what EfficientNetV2-M takes; --full "
    "trains EfficientNetV2-M itself for 60 rounds.",
    normal=NORMAL,
    quick=TrainingSettings(model="mlp", rounds=3, seeds=(1, 2), source="digits", checked=1),
    full=FULL,
    run=run,
    draw=draw,
    reading=reading,
    claims=claims,
    expected=(Expected("faster", 1.2, 50.0), Expected("final", 0.3, 1.0)),
)
