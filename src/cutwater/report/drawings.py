"""What commands draw: a profile beside its fitted curves, the accuracy of runs, and what a sweep found."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.federate.record import Record
from cutwater.profile.fit import Fit
from cutwater.profile.values import Profile, worth_choosing
from cutwater.report.figures import OTHER, PLANNER_COLOURS, blank_figure, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, CURVE, MARKED = "#7a8794", "#d1495b", "#00798c"
_STYLES = ("-", "--", ":", "-.")
_MARKERS = {"exact": "o", "alternating": "s", "fedavg": "^"}

RunCurve = tuple[str, str, Sequence[Record]]
"""(label, planner, lines)."""


def draw_profile(profile: Profile, fit: Fit) -> "Figure":
    """Three panels, each with the true amounts and the paper's fitted curve (Sec. V-A)."""
    figure = blank_figure(12, 3.8)
    model, compute, smashed = figure.subplots(1, 3)
    cuts = np.linspace(1, len(profile), 400)
    flops = profile.client_flops
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
    data: Floats,
    curve: tuple[Floats, Floats],
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


def draw_runs(curves: Sequence[RunCurve], metric: str = "accuracy") -> "Figure":
    """A metric of each run by round, where cuts change nothing, and by virtual time, where they do."""
    scale = 100 if metric == "accuracy" else 1
    figure = blank_figure(7.2, 2.9)
    panels = figure.subplots(1, 2, sharey=True)
    for place, (label, planner, lines) in enumerate(curves):
        known = [(line, scale * value) for line in lines if (value := line.value(metric)) is not None]
        for axes, key in zip(panels, ("round", "virtual_seconds"), strict=True):
            axes.plot(
                [getattr(line, key) for line, _ in known],
                [value for _, value in known],
                _STYLES[place % len(_STYLES)],
                color=PLANNER_COLOURS.get(planner, OTHER),
                linewidth=1.6,
                label=label,
            )
    for axes, name in zip(panels, ("Round", "Virtual time (s)"), strict=True):
        dress(axes)
        axes.set_xlabel(name)
    named = "Test accuracy (%)" if metric == "accuracy" else metric.replace("_", " ")
    panels[0].set_ylabel(named[:1].upper() + named[1:] if metric.endswith("loss") else named)
    panels[1].legend(frameon=False, loc="best")
    return figure


def draw_sweep(
    values: Sequence[float],
    latencies: Mapping[str, Sequence[float | None]],
    *,
    label: str,
    logarithmic: bool = False,
    names: Sequence[str] = (),
) -> "Figure":
    """Round latency against what was swept, as in the paper's Fig. 11: one line for each planner.

    Where a planner has no plan, its line has a gap. ``names`` stand for the values, where they have any.
    """
    figure = blank_figure(6.4, 4.0)
    axes = figure.add_subplot()
    dress(axes)
    for planner, seconds in latencies.items():
        axes.plot(
            values,
            [float("nan") if one is None else one for one in seconds],
            color=PLANNER_COLOURS.get(planner, OTHER),
            marker=_MARKERS.get(planner, "."),
            markersize=4,
            linewidth=1.6,
            label=planner,
        )
    if names:
        axes.set_xticks(list(values), list(names))
    elif logarithmic:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("Round latency (s)")
    axes.legend(frameon=False)
    return figure
