"""The curves of runs: accuracy by round, where cuts change nothing, and by virtual time, where they do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cutwater.federate.record import Record
from cutwater.report.figures import OTHER, PLANNER_COLOURS, blank_figure, dress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLES = ("-", "--", ":", "-.")

Curve = tuple[str, str, Sequence[Record]]
"""(label, planner, lines)."""


def draw_runs(curves: Sequence[Curve]) -> "Figure":
    """Two panels with the test accuracy of each run."""
    figure = blank_figure(7.2, 2.9)
    panels = figure.subplots(1, 2, sharey=True)
    for place, (label, planner, lines) in enumerate(curves):
        known = [(line, 100 * line.accuracy) for line in lines if line.accuracy is not None]
        for axes, key in zip(panels, ("round", "virtual_seconds"), strict=True):
            axes.plot(
                [getattr(line, key) for line, _ in known],
                [accuracy for _, accuracy in known],
                _STYLES[place % len(_STYLES)],
                color=PLANNER_COLOURS.get(planner, OTHER),
                linewidth=1.6,
                label=label,
            )
    for axes, name in zip(panels, ("KeptRound", "Virtual time (s)"), strict=True):
        dress(axes)
        axes.set_xlabel(name)
    panels[0].set_ylabel("Test accuracy (%)")
    panels[1].legend(frameon=False, loc="lower right")
    return figure
