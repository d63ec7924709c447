"""Fig. 3: the size of the client-side model against the cut."""

from cutwater.reproduce.curves import COUNTED, SIZE, Curve, CurveSettings
from cutwater.reproduce.item import Claim, Expected, Item

KNEE = 36
"""The layer after which, the paper says, the model grows sharply."""


def growth(curve: Curve) -> tuple[float, float]:
    """MB a layer up to the knee and after it."""
    at_knee, whole = curve.true[KNEE - 1], curve.true[-1]
    return at_knee / KNEE, (whole - at_knee) / (len(curve.true) - KNEE)


def reading(curve: Curve) -> str:
    """What to see."""
    return (
        f"The whole model is {curve.true[-1]:.0f} MB, and the last third of its layers holds most of it. "
        f"One parabola follows all {len(curve.true)} cuts with R = {curve.r2:.4f}."
    )


def claims(curve: Curve) -> list[Claim]:
    """What the paper says of the figure."""
    before, after = growth(curve)
    return [
        Claim(
            claim="The client-side model grows sharply after layer 36",
            paper="growth rate rises sharply when l > 36",
            ours=f"{before:.2f} MB a layer up to {KNEE}, {after:.2f} MB a layer after",
            holds=after > 3 * before,
            why="Stages 6 and 7 hold the widest blocks of EfficientNetV2-M.",
        )
    ]


ITEM = Item(
    name="model-size",
    source="Fig. 3",
    title="Size of the client-side model",
    about="How much of the model a client holds, for every cut, and the parabola that the paper fits to it.",
    basis=COUNTED,
    normal=CurveSettings(),
    run=SIZE.run,
    draw=SIZE.draw,
    reading=reading,
    claims=claims,
    expected=(Expected("r2", 0.9480, 0.9484), Expected("true.-1", 211.0, 212.0)),
)
