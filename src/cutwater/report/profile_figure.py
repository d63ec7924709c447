"""A profile as a figure: three panels, each with the true amounts and the paper's fitted curve (Sec. V-A)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cutwater.profile.fit import Fit
from cutwater.profile.pareto import worth_choosing
from cutwater.profile.values import Profile
from cutwater.report.figures import blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, CURVE, MARKED = "#7a8794", "#d1495b", "#00798c"


def draw_profile(profile: Profile, fit: Fit) -> "Figure":
    """The three panels, without any window."""
    figure = blank_figure(12, 3.8)
    model, compute, smashed = figure.subplots(1, 3)
    cuts = np.linspace(1, len(profile), 400)
    flops = profile.column("client_forward_flops") + profile.column("client_backward_flops")
    marked = worth_choosing(profile)
    _panel(
        model,
        "Model on the client",
        "MB",
        profile.column("client_bits") / 8e6,
        (cuts, fit.client_bits(cuts) / 8e6),
        rf"$\alpha\,l^2$   $R^2$ = {fit.r2_model:.4f}",
        marked,
    )
    _panel(
        compute,
        "Client's compute for a sample",
        "MFLOPs, forward and backward",
        flops / 1e6,
        (cuts, fit.client_flops(cuts) / 1e6),
        rf"$\beta\,l\,(1+\kappa)$   $R^2$ = {fit.r2_compute:.4f}",
        marked,
    )
    _panel(
        smashed,
        "Smashed data of a sample",
        "kB",
        profile.column("smashed_bits") / 8e3,
        (cuts, fit.smashed_bits(cuts) / 8e3),
        rf"$\gamma_1/(l+\gamma_2)$   $R^2$ = {fit.r2_smashed:.4f}",
        marked,
    )
    model.legend(frameon=False, loc="upper left")
    for axes in (compute, smashed):
        axes.legend(handles=axes.get_lines()[1:2], frameon=False)
    figure.suptitle(f"{profile.model}, input {profile.input}: {len(profile)} layers, {profile.count} count")
    return figure


def _panel(
    axes: "Axes",
    title: str,
    unit: str,
    data: NDArray[np.float64],
    curve: tuple[NDArray[np.float64], NDArray[np.float64]],
    formula: str,
    marked: Sequence[int],
) -> None:
    cuts = np.arange(1, len(data) + 1)
    axes.plot(cuts, data, "o", color=DATA, markersize=3.5, label="each cut")
    axes.plot(*curve, color=CURVE, linewidth=1.8, label=formula)
    chosen = np.array(marked)
    axes.plot(chosen, data[chosen - 1], "o", color=MARKED, markersize=6, label="worth choosing")
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("cut layer $l$")
    axes.set_ylabel(unit)
    # A curve that does not describe the model must not squeeze the data into a corner.
    axes.set_ylim(0, 1.15 * max(float(data.max()), 1e-12))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
