"""Fig. 6: the size of the smashed data against the cut."""

from typing import TYPE_CHECKING

import numpy as np

from cutwater.reproduce.curves import COUNTED, Curve, CurveSettings, counted, draw_curve, numbers
from cutwater.reproduce.item import Context, Expected, Item
from cutwater.reproduce.sheet import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(settings: CurveSettings, _: Context) -> Curve:
    """Λ(l) and γ1/(l + γ2) (eq. (26))."""
    profile, fit = counted(settings)
    return Curve(
        model=profile.model,
        unit="kB a sample",
        parameters={"gamma1_bits": fit.gamma1, "gamma2": fit.gamma2},
        r2=fit.r2_smashed,
        true=numbers(profile.column("smashed_bits"), 8e3),
        fitted=numbers(fit.smashed_bits(np.arange(1, len(profile) + 1)), 8e3),
    )


@styled
def draw(curve: Curve) -> "Figure":
    """The figure."""
    figure, axes = draw_curve(curve, r"$\gamma_1/(l+\gamma_2)$", "smashed data (kB a sample)")
    axes.legend(loc="upper right")
    return figure


def reading(curve: Curve) -> str:
    """What to see."""
    return (
        f"Smashed data falls in steps, one for each stage of the model, from {curve.true[0]:.1f} kB to "
        f"{min(curve.true[:-1]):.1f} kB. The hyperbola (R = {curve.r2:.4f}) has no steps: it does not know "
        f"that cut 10 sends {curve.true[9] / curve.true[8]:.0%} of what cut 9 sends, which is why the true "
        f"best cut differs from the fitted one."
    )


ITEM = Item(
    name="smashed",
    source="Fig. 6",
    title="Size of the smashed data",
    about="What one sample sends up (and gets back as gradients) for every cut, and the fitted hyperbola.",
    basis=COUNTED,
    normal=CurveSettings(),
    quick=CurveSettings(),
    full=CurveSettings(),
    run=run,
    draw=draw,
    reading=reading,
    expected=(Expected("r2", 0.9062, 0.9067), Expected("parameters.gamma2", 2.79, 2.81)),
)
