"""Beyond the paper: the ten clients with overlapped parts and codecs, and what codecs do to accuracy."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cutwater.base.errors import DataError
from cutwater.codec import find_codec
from cutwater.federate.study import Study
from cutwater.plan.baselines import fedavg
from cutwater.plan.session import Wires
from cutwater.plan.worth import CODECS, PARTS, Worth, worth
from cutwater.reproduce.item import Claim, Context, Expected, Item
from cutwater.reproduce.paper_setup import TEN_ARE, ten
from cutwater.reproduce.sheet import letters, panels
from cutwater.reproduce.training import TrainingSettings, load_data, make_study, train_one

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRIED = ("fp32", "bf16", "int8", "int4", "topk")
"""Codecs that are trained with, both ways."""
COLOURS = {"fp32": "#000000", "bf16": "#0072B2", "int8": "#009E73", "int4": "#E69F00", "topk": "#D55E00"}
POINTS = 0.005
"""Accuracy that bf16 and int8 may lose against fp32."""


@dataclass(frozen=True)
class BeyondSettings:
    """On which data, how long and how often codecs are trained with."""

    sources: tuple[str, ...] = ("mnist", "fashion-mnist")
    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(model="cnn", rounds=10, keep=True)
    )


@dataclass(frozen=True)
class CodecAccuracy:
    """Test accuracy with one codec on one set of data, by seed."""

    data: str
    codec: str
    lossy: bool
    accuracy: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.accuracy))


@dataclass(frozen=True)
class Beyond:
    """Seconds of the ten clients, and accuracies."""

    fedavg: float
    """Seconds of FedAvg."""
    grid: tuple[Worth, ...]
    accuracies: tuple[CodecAccuracy, ...]
    missing: tuple[str, ...]
    """Why some data is not there."""
    rounds: int

    def seconds(self, codec: str, parts: int) -> float:
        """The optimum with one codec and number of parts."""
        return next(each.latency for each in self.grid if (each.codec, each.micro_batches) == (codec, parts))

    @property
    def today(self) -> float:
        """As the paper has it: fp32, one after the other."""
        return self.seconds("fp32", 1)

    @property
    def overlapped(self) -> float:
        """Four overlapped parts, fp32."""
        return self.seconds("fp32", 4)

    @property
    def eight_bits(self) -> float:
        """One after the other, eight bits."""
        return self.seconds("int8", 1)

    @property
    def gap(self) -> float:
        """How far above the optimum any of these can be at most, as a fraction."""
        return max(each.gap for each in self.grid)

    @property
    def both(self) -> float:
        """Four overlapped parts, eight bits."""
        return self.seconds("int8", 4)

    @property
    def most_lost(self) -> float:
        """The most accuracy that bf16 or int8 lose against fp32 on any data, seeds averaged."""
        plain = {each.data: each.mean for each in self.accuracies if each.codec == "fp32"}
        near = [each for each in self.accuracies if each.codec in ("bf16", "int8")]
        return max((plain[each.data] - each.mean for each in near), default=0.0)


def run(settings: BeyondSettings, context: Context) -> Beyond:
    """Plan the ten under every codec and number of parts; train with every codec."""
    problem = ten()
    accuracies: list[CodecAccuracy] = []
    missing: list[str] = []
    each = len(TRIED) * len(settings.training.seeds)
    total = len(settings.sources) * each
    for place, source in enumerate(settings.sources):
        try:
            accuracies += _accuracies(replace(settings.training, source=source), context, place * each, total)
        except DataError as error:
            missing.append(str(error))
    return Beyond(
        fedavg=fedavg(problem).latency,
        grid=tuple(worth(problem)),
        accuracies=tuple(accuracies),
        missing=tuple(missing),
        rounds=settings.training.rounds,
    )


def _accuracies(settings: TrainingSettings, context: Context, done: int, total: int) -> list[CodecAccuracy]:
    data, note = load_data(settings.source)
    if note:
        raise DataError(note)
    found = []
    for codec in TRIED:
        scores = []
        for seed in settings.seeds:
            study = with_codec(make_study(settings, data, seed), codec)
            name = f"{settings.model}-{settings.source}-{settings.rounds}-rounds-{codec}-seed-{seed}"
            trained = train_one(study, settings, context, name, done=done, trainings=total, planners=())
            scores.append(trained.accuracy[-1])
            done += 1
        found.append(CodecAccuracy(settings.source, codec, not find_codec(codec).lossless, tuple(scores)))
    return found


def with_codec(study: Study, codec: str) -> Study:
    """The same study with every client cut, so that none of its training escapes the codec."""
    return replace(study, wires=Wires.both_ways(codec), planner="splitfed-best")


def draw(values: Beyond) -> "Figure":
    """Seconds by number of parts for each codec, and accuracy by codec."""
    figure, axes = panels(4.4, rows=2)
    for codec in CODECS:
        seconds = [values.seconds(codec, parts) for parts in PARTS]
        label = codec if codec == "fp32" else f"{codec} (lossy)"
        axes[0].plot(PARTS, seconds, "o-", color=COLOURS[codec], markersize=3, label=label)
    axes[0].set(xlabel="overlapped micro-batches", ylabel="round (s)", ylim=(0, None), xscale="log")
    axes[0].set_xticks(PARTS, [str(parts) for parts in PARTS], minor=False)
    axes[0].minorticks_off()
    axes[0].legend(ncols=2)
    _bars(axes[1], values)
    letters(axes, ["the ten clients, optimal plans", f"accuracy after {values.rounds} rounds"])
    return figure


def _bars(axes: "Axes", values: Beyond) -> None:
    sources = list(dict.fromkeys(each.data for each in values.accuracies))
    width = 0.8 / len(TRIED)
    for place, codec in enumerate(TRIED):
        mine = [each for each in values.accuracies if each.codec == codec]
        at = [sources.index(each.data) + (place - (len(TRIED) - 1) / 2) * width for each in mine]
        axes.bar(at, [each.mean for each in mine], 0.9 * width, color=COLOURS[codec])
        for x, each in zip(at, mine, strict=True):
            axes.text(x, 0.04, codec, rotation=90, ha="center", va="bottom", color="white", fontsize=7)
            axes.plot([x] * len(each.accuracy), each.accuracy, ".", color="#999999", markersize=2)
    axes.set_xticks(range(len(sources)), sources)
    axes.set(ylabel="test accuracy", ylim=(0, 1))


def reading(values: Beyond) -> str:
    """What to see."""
    text = (
        f"FedAvg takes the ten clients {values.fedavg:.0f} s, the paper's serial fp32 steps "
        f"{values.today:.0f} s at their optimum, four overlapped parts {values.overlapped:.0f} s, "
        f"int8 {values.eight_bits:.0f} s, and both {values.both:.0f} s, every one of them certified."
    )
    for source in dict.fromkeys(each.data for each in values.accuracies):
        mine = [each for each in values.accuracies if each.data == source]
        told = ", ".join(f"{each.codec} {100 * each.mean:.1f} %" for each in mine)
        text += f" Mean accuracy on {source} after {values.rounds} rounds, all clients cut: {told}."
    return " ".join([text, *values.missing])


def claims(values: Beyond) -> list[Claim]:
    """Our own, as the paper has none here."""
    found = [
        Claim(
            claim="Overlapped micro-batches and 8-bit activations shorten the optimal round",
            paper="not in the paper: its step is serial, its wire fp32",
            ours=f"{values.today:.0f} s → {values.overlapped:.0f} s (4 parts) and "
            f"{values.eight_bits:.0f} s (int8), {values.both:.0f} s (both)",
            holds=values.both < 0.4 * values.today,
            why="Client, link up, server and link down work at the same time, and links carry a quarter.",
        )
    ]
    if values.accuracies:
        found.append(
            Claim(
                claim="bf16 and int8 cost no more than half a point of accuracy",
                paper="not in the paper",
                ours=f"at most {100 * values.most_lost:.2f} points below fp32 after {values.rounds} rounds",
                holds=values.most_lost <= POINTS,
                why="Lossy codecs change what is learned: int8 and int4 round at random, without bias; all "
                "clients are cut here, which is the hardest case. int4 and topk are shown as they are.",
            )
        )
    return found


ITEM = Item(
    name="beyond",
    source="beyond the paper",
    title="Overlapped steps and codecs",
    about="The optimal round of the ten clients by codec and number of overlapped micro-batches, and the "
    "test accuracy of the small CNN by codec: thirty clients, ten a round, 20 mini-batches of 32, all cut.",
    basis=f"{TEN_ARE} Codecs are free here: they take no compute of clients and server. Accuracy is trained.",
    normal=BeyondSettings(),
    quick=BeyondSettings(
        sources=("digits",),
        training=TrainingSettings(model="mlp", rounds=2, seeds=(1,), source="digits"),
    ),
    full=BeyondSettings(training=TrainingSettings(model="cnn", rounds=40, keep=True)),
    run=run,
    draw=draw,
    reading=reading,
    claims=claims,
    expected=(
        Expected("today", 390.0, 392.0),
        Expected("overlapped", 0.0, 215.0),
        Expected("eight_bits", 0.0, 210.0),
        Expected("both", 0.0, 142.0),
        Expected("gap", 0.0, 1e-9),
    ),
)
