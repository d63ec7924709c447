"""Fig. 5: the client's computing load against the cut."""

from cutwater.reproduce.curves import COUNTED, LOAD, Curve, CurveSettings
from cutwater.reproduce.item import Expected, Item


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
    run=LOAD.run,
    draw=LOAD.draw,
    reading=reading,
    expected=(Expected("r2", 0.9657, 0.9661), Expected("true.-1", 1.27, 1.29)),
)
