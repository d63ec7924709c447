"""Beyond the paper: the same study for other models, and what the regression costs there."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cutwater.plan.planners import run as plan_by
from cutwater.plan.problem import Problem
from cutwater.profile.cache import profile_of
from cutwater.profile.fit import fit
from cutwater.profile.values import Profile
from cutwater.report.figures import blank_figure
from cutwater.reproduce.curves import FORMS, numbers
from cutwater.reproduce.item import Claim, Context, Expected, Item
from cutwater.reproduce.paper_setup import ten
from cutwater.reproduce.sheet import COLUMN, CURVE, TRUE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7")
GOOD = 0.9
"""What the paper calls an accurate fit (Sec. VI-A)."""


@dataclass(frozen=True)
class Model:
    """A model by name, and what it is called here."""

    label: str
    name: str
    input: str
    classes: int
    options: tuple[tuple[str, Any], ...] = ()


EFFICIENTNET = Model("EfficientNetV2-M", "efficientnet_v2_m", "1x28x28", 10)
RESNET = Model("ResNet-50", "resnet50", "3x224x224", 1000)
VIT = Model("ViT-Tiny", "vit_tiny", "3x224x224", 1000)
TEXT = Model("text transformer", "text_transformer", "128", 2, (("depth", 12),))


@dataclass(frozen=True)
class Settings:
    """The models that are studied, and how much faster than the paper's the links are."""

    models: tuple[Model, ...] = (EFFICIENTNET, RESNET, VIT, TEXT)
    links: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ModelFits:
    """One model: its true amounts and curves (each as a part of the largest true amount), and the cost."""

    label: str
    layers: int
    r2_model: float
    r2_compute: float
    r2_smashed: float
    true: tuple[tuple[float, ...], ...]
    fitted: tuple[tuple[float, ...], ...]
    links: tuple[int, ...]
    """How many times as fast as the paper's the ten clients' links are."""
    fedavg: tuple[float, ...]
    """Seconds of a round for each speed of the links."""
    optimum: tuple[float, ...]
    lost: tuple[float, ...]
    """Algorithm 1 above the optimum, in percent."""
    lost_on_true_costs: tuple[float, ...]
    """The same with true costs in place of the curves: what is left is the alternation's fault."""

    @property
    def most(self) -> float:
        """The most that Algorithm 1 loses at any speed, in percent."""
        return max(self.lost)

    @property
    def most_on_true_costs(self) -> float:
        """The most that it loses on true costs."""
        return max(self.lost_on_true_costs)

    @property
    def wrong(self) -> tuple[str, ...]:
        """The curves that follow badly."""
        return tuple(form.name for form in FORMS if getattr(self, form.r2) < GOOD)


@dataclass(frozen=True)
class Models:
    """All models."""

    studies: tuple[ModelFits, ...]


@cache
def exact_profile(model: Model) -> Profile:
    """A model counted exactly: the paper's way of counting misses what attention computes."""
    return profile_of(
        model.name, input=model.input, classes=model.classes, count="exact", **dict(model.options)
    )


def run(settings: Settings, context: Context) -> Models:
    """Fit, cut and plan every model."""
    studies = []
    for done, model in enumerate(settings.models, start=1):
        studies.append(study(model, settings.links))
        context.watch(done, len(settings.models))
    return Models(tuple(studies))


def study(model: Model, links: tuple[int, ...]) -> ModelFits:
    """Fit one model's curves and plan the ten clients on them, for every speed of their links."""
    profile = exact_profile(model)
    curves, cuts = fit(profile), np.arange(1, len(profile) + 1)
    amounts = [(form.amount(profile), form.curve(curves, cuts)) for form in FORMS]
    problem = ten().replace(profile=profile)
    rounds = np.array([_round(problem, speed) for speed in links])
    optimum = rounds[:, 1]
    return ModelFits(
        label=model.label,
        layers=len(profile),
        r2_model=curves.r2_model,
        r2_compute=curves.r2_compute,
        r2_smashed=curves.r2_smashed,
        true=tuple(numbers(true, true.max()) for true, _ in amounts),
        fitted=tuple(numbers(fitted, true.max()) for true, fitted in amounts),
        links=links,
        fedavg=numbers(rounds[:, 0]),
        optimum=numbers(optimum),
        lost=numbers(100 * np.maximum(rounds[:, 2] / optimum - 1, 0.0)),
        lost_on_true_costs=numbers(100 * np.maximum(rounds[:, 3] / optimum - 1, 0.0)),
    )


def _round(problem: Problem, speed: int) -> list[float]:
    """FedAvg, the optimum, Algorithm 1 on curves and on true costs."""
    fleet = problem.fleet
    faster = problem.replace(clients=fleet.replace(up=fleet.up * speed, down=fleet.down * speed))
    return [
        plan_by(faster, "fedavg").latency,
        plan_by(faster, "exact").latency,
        plan_by(faster, "alternating").latency,
        plan_by(faster, "alternating", fitted="none").latency,
    ]


def draw(values: Models) -> "Figure":
    """A row of curves for each model, and below what planning on them costs."""
    rows = len(values.studies)
    figure = blank_figure(COLUMN, 1.0 * rows + 1.9)
    grid = figure.add_gridspec(rows + 1, len(FORMS), height_ratios=[1.0] * rows + [1.6])
    for row, one in enumerate(values.studies):
        for column, form in enumerate(FORMS):
            axes = figure.add_subplot(grid[row, column])
            _curve(axes, one, column, float(getattr(one, form.r2)))
            if row == 0:
                # Columns are narrow: without the thin spaces that a wider figure has.
                tex = form.tex.replace(r"\,", " ")
                axes.set_title(f"{form.name}\n{tex}", fontsize=7)
            if column == 0:
                axes.set_ylabel(f"{one.label}\npart of its max.", fontsize=6.5)
            if row == rows - 1:
                axes.set_xlabel("cut layer $l$", fontsize=7)
    _costs(figure.add_subplot(grid[rows, :]), values)
    return figure


def _curve(axes: "Axes", one: ModelFits, column: int, r2: float) -> None:
    cuts = np.arange(1, one.layers + 1)
    axes.plot(cuts, one.true[column], "o", color=TRUE, markersize=1.8)
    axes.plot(cuts, one.fitted[column], color=CURVE, linewidth=1.1)
    axes.set(ylim=(0, 1.28), xlim=(0, one.layers + 1))
    axes.set_yticks([0, 0.5, 1], ["0", "", "1"] if column == 0 else [])
    axes.tick_params(labelsize=6)
    bad = r2 < GOOD
    axes.annotate(
        f"$R$ = {r2:.3f}",
        (0.97, 0.97) if column == 2 else (0.06, 0.97),
        xycoords="axes fraction",
        ha="right" if column == 2 else "left",
        va="top",
        fontsize=6.5,
        color=CURVE if bad else "#222222",
        fontweight="bold" if bad else "normal",
    )


def _costs(axes: "Axes", values: Models) -> None:
    for one, colour, marker in zip(values.studies, COLOURS, "os^D", strict=False):
        axes.plot(
            one.links, one.lost, marker=marker, markersize=3, color=colour, label=one.label, linewidth=1.1
        )
        axes.plot(one.links, one.lost_on_true_costs, ":", color=colour, linewidth=1.1)
    axes.plot([], [], ":", color="#555555", label="dotted: on true costs")
    axes.set_xscale("log", base=2)
    links = values.studies[0].links
    axes.set_xticks(links, [f"×{speed}" for speed in links])
    axes.set(xlabel="speed of the links (×1: the paper's)", ylabel="Algorithm 1 above\nthe optimum (%)")
    axes.set_ylim(-4, 1.7 * max(1.0, *(one.most for one in values.studies)))
    axes.legend(loc="upper left", fontsize=6.5, ncols=2)


def reading(values: Models) -> str:
    """What to see."""
    worst = max(values.studies, key=lambda one: one.most)
    at = worst.links[worst.lost.index(worst.most)]
    return (
        "The curves were made for EfficientNetV2. ResNet-50 sends least after its stem, then four times as "
        "much; a transformer sends the same after every block, and its embedding holds weights that no "
        f"parabola expects. {worst.label} loses most: with links {at} times as fast as the paper's, "
        f"Algorithm 1 is {worst.most:.0f} % above the optimum on the curves and "
        f"{worst.lost_on_true_costs[worst.links.index(at)]:.0f} % on true costs."
    )


def claims(values: Models) -> list[Claim]:
    """What the paper says of other models."""
    others = [one for one in values.studies if one.label != EFFICIENTNET.label]
    return [
        Claim(
            claim="The method also applies to other models with different structures",
            paper="applicable",
            ours="; ".join(
                f"{one.label}: R = {one.r2_model:.3f}, {one.r2_compute:.3f}, {one.r2_smashed:.3f}, up to "
                f"{one.most:.0f} % above the optimum ({one.most_on_true_costs:.0f} % on true costs)"
                for one in others
            ),
            holds=not any(one.wrong for one in others),
            why="Splitting applies; the forms of two of the three curves do not. The exact planner needs no "
            "curves.",
        )
    ]


ITEM = Item(
    name="models",
    source="beyond the paper",
    title="Other models",
    about="The three curves fitted to other models (a bold R is below the 0.9 that the paper calls "
    "accurate), and what planning on them costs the ten clients, from the paper's links to links 64 times as "
    "fast.",
    basis="Models of the zoo at their usual input (ResNet-50 and ViT-Tiny: 3×224×224; text: 128 tokens, 12 "
    "blocks), counted exactly; clients, server and session are those of clients (Fig. 8).",
    normal=Settings(),
    run=run,
    draw=draw,
    reading=reading,
    claims=claims,
    expected=(
        Expected("studies.0.r2_smashed", 0.90, 0.92),
        Expected("studies.1.r2_smashed", 0.3, 0.6),
        Expected("studies.2.r2_smashed", 0.0, 0.3),
        Expected("studies.3.r2_model", -5.0, 0.9),
        Expected("studies.1.most", 100, 200),
        Expected("studies.0.most", 10, 30),
    ),
)
