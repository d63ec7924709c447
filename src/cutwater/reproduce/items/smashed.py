"""Fig. 6: the size of the smashed data against the cut."""

from cutwater.reproduce.curves import COUNTED, SMASHED, Curve, CurveSettings
from cutwater.reproduce.item import Expected, Item


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
    run=SMASHED.run,
    draw=SMASHED.draw,
    reading=reading,
    expected=(Expected("r2", 0.9062, 0.9067), Expected("parameters.gamma2", 2.79, 2.81)),
)
