"""Figures that can be printed: column width, 8-point text, the same bytes for the same numbers."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.base.errors import CutwaterError
from cutwater.report.figures import GROUP_COLOURS, NO_MATPLOTLIB, blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.5
"""Inches: one column of a journal."""
DOTS = 220
"""Per inch of a PNG."""
INK, TRUE, CURVE, QUIET = "#222222", "#555555", "#D55E00", "#999999"
"""Text and marks; true values; what is fitted to them; what stands back."""

_LOOK: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.borderaxespad": 0.3,
    "lines.linewidth": 1.4,
    "axes.linewidth": 0.7,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "svg.hashsalt": "cutwater",
    "svg.fonttype": "path",
}


@contextmanager
def look() -> Iterator[None]:
    """The one look of all figures, for a while."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise CutwaterError(NO_MATPLOTLIB) from error
    with rc_context(_LOOK):
        yield


def panels(height: float, rows: int = 1, columns: int = 1, **options: Any) -> "tuple[Figure, list[Axes]]":
    """A figure of column width without any window, and its axes in reading order."""
    figure = blank_figure(COLUMN, height)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.flat)


def stacked_bars(
    axes: "Axes", places: Sequence[int] | Ints, groups: Mapping[str, Sequence[float]], width: float
) -> Floats:
    """A bar at each place, stacked by kind of time; how high each is."""
    floor = np.zeros(len(places))
    for group, colour in GROUP_COLOURS.items():
        seconds = np.array(groups[group])
        axes.bar(places, seconds, bottom=floor, width=width, color=colour, label=group, linewidth=0)
        floor += seconds
    return floor


def letters(axes: "list[Axes]", titles: "list[str]") -> None:
    """(a), (b) … and what each panel shows, at its upper left."""
    for letter, one, title in zip("abcdefgh", axes, titles, strict=False):
        one.set_title(f"({letter}) {title}", loc="left")


def note(axes: "Axes", text: str, at: tuple[float, float], away: tuple[float, float], **options: Any) -> None:
    """Words so many points away from a place."""
    axes.annotate(text, at, away, textcoords="offset points", **{"fontsize": 7, **options})


def as_png(figure: "Figure") -> bytes:
    """The figure in dots."""
    return _saved(figure, "png", dpi=DOTS, metadata={"Software": None})


def as_svg(figure: "Figure") -> bytes:
    """The figure in curves; text too, so that it looks the same everywhere."""
    return _saved(figure, "svg", metadata={"Date": None, "Creator": None})


def _saved(figure: "Figure", kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    with look():
        figure.savefig(target, format=kind, **options)
    return target.getvalue()
