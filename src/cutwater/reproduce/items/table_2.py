"""Table II: how well the three curves follow the model."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutwater.reproduce.curves import COUNTED, FORMS, CurveSettings, counted
from cutwater.reproduce.item import Claim, Context, Expected, Item
from cutwater.reproduce.sheet import CURVE, INK, note, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AS_PRINTED = 1.5e-4
"""A coefficient that differs by less is the same but for the last printed digit."""


@dataclass(frozen=True)
class FittedCurve:
    """One coefficient of the table."""

    name: str
    formula: str
    paper: float
    ours: float


@dataclass(frozen=True)
class CurveFits:
    """The table."""

    model: str
    rows: tuple[FittedCurve, ...]


def run(settings: CurveSettings, _: Context) -> CurveFits:
    """R of each curve (Sec. VI-A)."""
    profile, fit = counted(settings)
    return CurveFits(
        profile.model,
        tuple(FittedCurve(form.name, form.text, form.paper, getattr(fit, form.r2)) for form in FORMS),
    )


def draw(table: CurveFits) -> "Figure":
    """The table as dots on a scale."""
    figure, (axes,) = panels(1.65)
    for place, row in enumerate(table.rows):
        paper = axes.plot(row.paper, place, "o", markersize=8, markerfacecolor="none", color=INK)[0]
        ours = axes.plot(row.ours, place, "o", markersize=4, color=CURVE)[0]
        both = f"paper {row.paper:.4f}\nhere {row.ours:.5f}"
        note(axes, both, (row.ours, place), (-9, 0), va="center", ha="right", fontsize=6.5)
    axes.set_yticks(range(len(table.rows)), [f"{row.name}\n{row.formula}" for row in table.rows])
    axes.set(xlim=(0.86, 1.0), ylim=(len(table.rows) - 0.4, -0.6), xlabel="determination coefficient $R$")
    axes.grid(axis="y", visible=False)
    axes.legend([paper, ours], ["paper", "here"], loc="lower right", bbox_to_anchor=(1.0, 0.0))
    return figure


def reading(table: CurveFits) -> str:
    """What to see."""
    worst = max(abs(row.ours - row.paper) for row in table.rows)
    return f"All three coefficients are the paper's to within {worst:.5f}."


def claims(table: CurveFits) -> list[Claim]:
    """Each coefficient."""
    found = [
        Claim(
            claim=f"R of the {row.name} fitted by {row.formula}",
            paper=f"{row.paper:.4f}",
            ours=f"{row.ours:.5f}",
            holds=abs(row.ours - row.paper) < AS_PRINTED,
            why="Least squares over all 59 cuts of EfficientNetV2-M (one channel, 28×28, 10 classes).",
        )
        for row in table.rows
    ]
    within = all(0.9 < row.ours < 1 for row in table.rows)
    low = min(row.ours for row in table.rows)
    found.append(
        Claim(
            claim="All three coefficients are between 0.9 and 1",
            paper="0.9 < R < 1",
            ours=f"{low:.4f} or more",
            holds=within,
            why="True for this model; see models for others, where it is not.",
        )
    )
    return found


ITEM = Item(
    name="table-2",
    source="Table II",
    title="How well the curves follow",
    about="The determination coefficient R of the three fitted curves, the paper's and ours.",
    basis=COUNTED,
    normal=CurveSettings(),
    run=run,
    draw=draw,
    reading=reading,
    claims=claims,
    expected=tuple(
        Expected(f"rows.{place}.ours", form.paper - AS_PRINTED, form.paper + AS_PRINTED)
        for place, form in enumerate(FORMS)
    ),
)
