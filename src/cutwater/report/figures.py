"""What all figures share: one colour for each phase and each planner, one size, one way to save.

The colours are Okabe and Ito's, which stay apart for every kind of colour vision; the two halves of a group
(forward and backward, up and down) are a darker and a lighter tone of one hue.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cutwater.base.errors import CutwaterError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PHASE_COLOURS = {
    "model_download": "#CC79A7",
    "client_forward": "#0072B2",
    "smashed_upload": "#009E73",
    "server_forward": "#D55E00",
    "server_backward": "#E69F00",
    "gradient_download": "#7FCFB6",
    "client_backward": "#56B4E9",
    "model_upload": "#E5BCD3",
    "round_trips": "#8C8C8C",
}
"""One fixed colour for each phase and stage, wherever it is drawn."""

GROUPS = {
    "client-side training": ("client_forward", "client_backward"),
    "server-side training": ("server_forward", "server_backward"),
    "smashed data and gradients": ("smashed_upload", "gradient_download", "round_trips"),
    "model transfer": ("model_download", "model_upload"),
}
"""The four kinds of time that the paper's figures stack."""

GROUP_COLOURS = {group: PHASE_COLOURS[phases[0]] for group, phases in GROUPS.items()}

PLANNER_COLOURS = {
    "exact": "#000000",
    "alternating": "#0072B2",
    "fedavg": "#D55E00",
    "splitfed": "#CC79A7",
    "splitfed-best": "#CC79A7",
    "greedy": "#009E73",
    "random": "#999999",
}
OTHER = "#56B4E9"
"""For planners that users bring."""

NO_MATPLOTLIB = "figures need matplotlib: pip install 'cutwater[plot]'"
FORMATS = (".pdf", ".png", ".svg")


def blank_figure(width: float, height: float) -> "Figure":
    """A figure without any window and without any axes yet."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CutwaterError(NO_MATPLOTLIB) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: "Axes") -> None:
    """A light grid, and no frame where nothing is drawn."""
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def check_figure_path(path: str | Path) -> Path:
    """Refuse a file that no figure can be written to before any work is done."""
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise CutwaterError(f"a figure can't be written as {target.name!r}: end it in {', '.join(FORMATS)}")
    return target


def save_figure(figure: "Figure", path: str | Path) -> None:
    """Write a figure; the file's ending says how."""
    target = check_figure_path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=160)
    except OSError as error:
        raise CutwaterError(f"{path} can't be written: {error.strerror or error}") from error
