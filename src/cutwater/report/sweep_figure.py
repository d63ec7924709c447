"""Round latency against what was swept: the paper's Fig. 11, for any planner, rates and clients too."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cutwater.report.figures import OTHER, PLANNER_COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = {"exact": "o", "alternating": "s", "fedavg": "^"}


def draw_sweep(
    values: Sequence[float],
    latencies: Mapping[str, Sequence[float | None]],
    *,
    label: str,
    logarithmic: bool = False,
) -> "Figure":
    """One line for each planner; where a planner has no plan, its line has a gap."""
    figure, axes = new_figure()
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
    if logarithmic:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("Round latency (s)")
    axes.legend(frameon=False)
    return figure
