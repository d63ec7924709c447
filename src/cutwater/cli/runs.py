"""`cutwater runs`: runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cutwater.base.text import shown
from cutwater.base.units import show_seconds, show_size
from cutwater.cli.common import out as console
from cutwater.cli.common import print_json, results_table
from cutwater.cli.plan import Json
from cutwater.cli.rounds import percent, say_notes

if TYPE_CHECKING:
    from cutwater.runs.summary import Comparison


def runs(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold some.")],
    *,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Time to this.", show_default="the most that all runs reach", min=0.0, max=1.0),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves here: .png, .svg or .pdf.")] = None,
    json_: Json = False,
) -> None:
    """Compare runs: rounds, accuracy, virtual and wall time, traffic, time to an accuracy.

    The speed-up is against the FedAvg run, if one is among them, else against the first.

    Example: cutwater runs runs/fedavg runs/split --accuracy 0.95 --plot curves.png
    """
    from cutwater.report.figures import check_figure_path

    if plot is not None:
        check_figure_path(plot)
    from cutwater.runs.reader import read_run
    from cutwater.runs.summary import compare

    paths = [path for folder in folders for path in _runs_in(folder)]
    found = compare([read_run(path) for path in paths], accuracy)
    labels = _labels(paths)
    for label, row in zip(labels, found.runs, strict=True):
        say_notes([f"{label}: {note}" for note in row.run.notes])
    if plot is not None:
        from cutwater.report.drawings import draw_runs
        from cutwater.report.figures import save_figure

        named = zip(labels, (row.run for row in found.runs), strict=True)
        save_figure(draw_runs([(label, run.info.planner, run.lines) for label, run in named]), plot)
    if json_:
        rows = [
            {"run": str(path), "planner": row.run.info.planner, **row.to_json()}
            for path, row in zip(paths, found.runs, strict=True)
        ]
        print_json({"accuracy": found.accuracy, "base": str(paths[found.base]), "runs": rows})
    else:
        _show(labels, found)


def _runs_in(folder: Path) -> list[Path]:
    """The runs in a folder; where there is none, reading the folder itself says why."""
    from cutwater.runs.confined import Folder, find_runs

    return [folder / name for name in find_runs(Folder(folder))] or [folder]


def _labels(paths: list[Path]) -> list[str]:
    """Each folder's name, or as much of its path as tells it from the others."""
    names = [path.resolve().name for path in paths]
    pairs = zip(paths, names, strict=True)
    return [shown(name if names.count(name) == 1 else str(path)) for path, name in pairs]


def _show(labels: list[str], found: "Comparison") -> None:
    to = f"To {percent(found.accuracy)}" if found.accuracy is not None else "To accuracy"
    table = results_table(
        ("Run", "Planner"), ("Rounds", "Accuracy", "Virtual", "Wall", "Traffic", to, "Speed-up", "Same bits")
    )
    for place, row in enumerate(found.runs):
        result = row.summary
        table.add_row(
            escape(labels[place]),
            escape(row.run.info.planner),
            str(result.rounds),
            "-" if result.accuracy is None else percent(result.accuracy),
            show_seconds(result.virtual_seconds),
            show_seconds(result.wall_seconds),
            show_size((result.bytes_up + result.bytes_down) * 8),
            "-" if row.reached is None else show_seconds(row.reached.virtual_seconds),
            "-" if row.speed_up is None else f"{row.speed_up:.2f} ×",
            "base" if place == found.base else f"{row.same_rounds} of {row.common_rounds}",
        )
    console.print(table)
