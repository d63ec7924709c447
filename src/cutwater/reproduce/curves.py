"""What Figs. 3, 5 and 6 share: an amount for every cut, and the curve that the paper fits to it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cutwater.profile.count import PAPER_KAPPA
from cutwater.profile.fit import Fit, fit
from cutwater.profile.values import Profile
from cutwater.reproduce.paper_setup import MODEL, paper_profile
from cutwater.reproduce.sheet import CURVE, TRUE, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COUNTED = "Counted on EfficientNetV2-M with one-channel 28×28 input and 10 classes; nothing is calibrated."


@dataclass(frozen=True)
class CurveSettings:
    """Which model's cuts are counted."""

    model: str = MODEL
    input: str = "1x28x28"
    classes: int = 10
    kappa: float = PAPER_KAPPA


@dataclass(frozen=True)
class Curve:
    """An amount for each cut 1..L, the fitted curve at the same cuts, and how well it follows."""

    model: str
    unit: str
    parameters: dict[str, float]
    r2: float
    """The determination coefficient R of Sec. VI-A."""
    true: tuple[float, ...]
    fitted: tuple[float, ...]


def counted(settings: CurveSettings) -> tuple[Profile, Fit]:
    """The profile as the paper counts it, and the paper's three curves."""
    profile = paper_profile(settings.model, settings.input, settings.classes, settings.kappa)
    return profile, fit(profile)


def numbers(values: NDArray[np.float64], scale: float = 1.0) -> tuple[float, ...]:
    """An array in another unit, as frozen numbers."""
    return tuple(float(value) / scale for value in values)


def draw_curve(curve: Curve, formula: str, label: str) -> tuple["Figure", "Axes"]:
    """True values as dots, the fitted curve as a line."""
    figure, (axes,) = panels(2.35)
    cuts = np.arange(1, len(curve.true) + 1)
    axes.plot(cuts, curve.true, "o", color=TRUE, markersize=2.8, label="counted at each cut")
    axes.plot(cuts, curve.fitted, color=CURVE, label=f"{formula},  $R$ = {curve.r2:.4f}")
    axes.set(xlabel="cut layer $l$", ylabel=label, xlim=(0, len(cuts) + 1))
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure, axes
