"""What Figs. 3, 5 and 6 share: an amount for every cut, and the curve that the paper fits to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from cutwater.base.arrays import Floats
from cutwater.profile.count import PAPER_KAPPA
from cutwater.profile.fit import Fit, fit
from cutwater.profile.values import Profile
from cutwater.reproduce.item import Context
from cutwater.reproduce.paper_setup import MODEL, paper_profile
from cutwater.reproduce.sheet import CURVE, TRUE, panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTED = "Counted on EfficientNetV2-M with one-channel 28×28 input and 10 classes; nothing is calibrated."


@dataclass(frozen=True, kw_only=True)
class Form:
    """An amount of every cut, and the curve that the paper fits to it."""

    name: str
    text: str
    """The curve in letters."""
    tex: str
    """The curve in a figure."""
    unit: str
    scale: float
    """A unit in bits or FLOPs."""
    amount: Callable[[Profile], Floats]
    curve: Callable[[Fit, ArrayLike], Floats]
    parameters: dict[str, str]
    """The curve's parameters in a fit, by what they are called in an item's values."""
    r2: str
    """What the determination coefficient is called in a fit."""
    paper: float
    """The paper's coefficient (Table II)."""
    legend: Literal["upper left", "upper right"]
    """Where the curve leaves room for one."""

    def run(self, settings: "CurveSettings", _: Context) -> "Curve":
        """How an item counts the amount and fits the curve."""
        profile, found = counted(settings)
        return Curve(
            model=profile.model,
            unit=self.unit,
            parameters={name: getattr(found, key) for name, key in self.parameters.items()},
            r2=getattr(found, self.r2),
            true=numbers(self.amount(profile), self.scale),
            fitted=numbers(self.curve(found, np.arange(1, len(profile) + 1)), self.scale),
        )

    def draw(self, curve: "Curve") -> "Figure":
        """How an item draws it: true values as dots, the fitted curve as a line."""
        figure, (axes,) = panels(2.35)
        cuts = np.arange(1, len(curve.true) + 1)
        axes.plot(cuts, curve.true, "o", color=TRUE, markersize=2.8, label="counted at each cut")
        axes.plot(cuts, curve.fitted, color=CURVE, label=f"{self.tex},  $R$ = {curve.r2:.4f}")
        axes.set(xlabel="cut layer $l$", ylabel=f"{self.name} ({self.unit})", xlim=(0, len(cuts) + 1))
        axes.set_ylim(bottom=0)
        axes.legend(loc=self.legend)
        return figure


SIZE = Form(
    name="client-side model",
    text="α·l²",
    tex=r"$\alpha\,l^2$",
    unit="MB",
    scale=8e6,
    amount=lambda profile: profile.column("client_bits"),
    curve=Fit.client_bits,
    parameters={"alpha_bits": "alpha"},
    r2="r2_model",
    paper=0.9482,
    legend="upper left",
)
"""|w^C(l)| and eq. (23)."""
LOAD = Form(
    name="client's load",
    text="β·l·(1+κ)",
    tex=r"$\beta\,l\,(1+\kappa)$",
    unit="GFLOPs a sample",
    scale=1e9,
    amount=lambda profile: profile.client_flops,
    curve=Fit.client_flops,
    parameters={"beta_flops": "beta", "kappa": "kappa"},
    r2="r2_compute",
    paper=0.9659,
    legend="upper left",
)
"""F^C(l) + B^C(l) and eq. (25)."""
SMASHED = Form(
    name="smashed data",
    text="γ1/(l+γ2)",
    tex=r"$\gamma_1/(l+\gamma_2)$",
    unit="kB a sample",
    scale=8e3,
    amount=lambda profile: profile.column("smashed_bits"),
    curve=Fit.smashed_bits,
    parameters={"gamma1_bits": "gamma1", "gamma2": "gamma2"},
    r2="r2_smashed",
    paper=0.9065,
    legend="upper right",
)
"""Λ(l) and eq. (26)."""
FORMS = (SIZE, LOAD, SMASHED)


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


def numbers(values: Floats, scale: float = 1.0) -> tuple[float, ...]:
    """An array in another unit, as frozen numbers."""
    return tuple(float(value) / scale for value in values)
