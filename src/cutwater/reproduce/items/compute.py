"""Fig. 5: the client's computing load against the cut."""

from typing import TYPE_CHECKING

import numpy as np

from cutwater.reproduce.curves import COUNTED, Curve, CurveSettings, counted, draw_curve, numbers
from cutwater.reproduce.item import Context, Expected, Item
from cutwater.reproduce.sheet import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def run(settings: CurveSettings, _: Context) -> Curve:
    """F^C(l) + B^C(l) and β·l·(1 + κ) (eq. (25))."""
    profile, fit = counted(settings)
    flops = profile.client_flops
    return Curve(
        model=profile.model,
        unit="GFLOPs a sample",
        parameters={"beta_flops": fit.beta, "kappa": fit.kappa},
        r2=fit.r2_compute,
        true=numbers(flops, 1e9),
        fitted=numbers(fit.client_flops(np.arange(1, len(profile) + 1)), 1e9),
    )


@styled
def draw(curve: Curve) -> "Figure":
    """The figure."""
    figure, axes = draw_curve(curve, r"$\beta\,l\,(1+\kappa)$", "client's load (GFLOPs a sample)")
    axes.legend(loc="upper left")
    return figure


def reading(curve: Curve) -> str:
    """What to see."""
    early = curve.true[13] / curve.true[-1]
    return (
        f"A sample takes {curve.true[-1]:.2f} GFLOPs forward and backward. The straight line follows with "
        f"R = {curve.r2:.4f}, but the first 14 layers already do {early:.0%} of the work: the line is "
        f"{1 - curve.fitted[9] / curve.true[9]:.0%} too low at cut 10 and "
        f"{1 - curve.fitted[13] / curve.true[13]:.0%} at cut 14."
    )


ITEM = Item(
    name="compute",
    source="Fig. 5",
    title="Computing load of the client",
    about="What a client computes for one sample, forward and backward, for every cut, and the fitted line.",
    basis=f"{COUNTED} The backward pass is taken as κ = 4.7 forward passes (see kappa).",
    normal=CurveSettings(),
    quick=CurveSettings(),
    full=CurveSettings(),
    run=run,
    draw=draw,
    reading=reading,
    expected=(Expected("r2", 0.9657, 0.9661), Expected("true.-1", 1.27, 1.29)),
)
