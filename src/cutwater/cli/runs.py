"""`cutwater runs`: runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cutwater.base.text import shown
from cutwater.base.units import show_seconds, show_size
from cutwater.cli.common import Json, print_json, results_table
from cutwater.cli.common import out as console
from cutwater.cli.rounds import say_notes

if TYPE_CHECKING:
    from cutwater.runs.summary import Comparison


def runs(
    folders: Annotated[list[Path], typer.Argument(help="Run folders, or folders that hold some.")],
    *,
    target: Annotated[
        str | None,
        typer.Option(
            help="Time to this, such as 'accuracy>=0.97' or 'test_loss<=0.1'.",
            show_default="the most that all runs reach",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves here: .png, .svg or .pdf.")] = None,
    json_: Json = False,
) -> None:
    """Compare runs: rounds, scores, virtual and wall time, traffic, time to a target.

    The speed-up is against the FedAvg run, if one is among them, else against the first.

    Example: cutwater runs runs/fedavg runs/split --target 'accuracy>=0.95' --plot curves.png
    """
    from cutwater.report.figures import check_figure_path

    if plot is not None:
        check_figure_path(plot)
    from cutwater.runs.reader import read_run
    from cutwater.runs.summary import compare
    from cutwater.scenario.goal import Target

    wanted = None if target is None else Target.parse(target)
    paths = [path for folder in folders for path in _runs_in(folder)]
    found = compare([read_run(path) for path in paths], wanted)
    labels = _labels(paths)
    for label, row in zip(labels, found.runs, strict=True):
        say_notes([f"{label}: {note}" for note in row.run.notes])
    if plot is not None:
        from cutwater.report.drawings import draw_runs
        from cutwater.report.figures import save_figure

        named = zip(labels, (row.run for row in found.runs), strict=True)
        curves = [(label, run.info.planner, run.lines) for label, run in named]
        save_figure(draw_runs(curves, _metric(found)), plot)
    if json_:
        rows = [
            {"run": str(path), "planner": row.run.info.planner, **row.to_json()}
            for path, row in zip(paths, found.runs, strict=True)
        ]
        print_json(
            {"target": found.target and found.target.to_json(), "base": str(paths[found.base]), "runs": rows}
        )
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


def _metric(found: "Comparison") -> str:
    """What runs are compared by: what their target is about."""
    return found.target.goal.metric if found.target else "test_loss"


def _show(labels: list[str], found: "Comparison") -> None:
    from cutwater.federate.record import score_name, value_text
    from cutwater.runs.summary import last_value
    from cutwater.scenario.goal import TAKEN

    metric = _metric(found)
    to = f"To {value_text(metric, found.target.value)}" if found.target else "To target"
    title = score_name(metric).capitalize() if metric in TAKEN else metric
    table = results_table(
        ("Run", "Planner"), ("Rounds", title, "Virtual", "Wall", "Traffic", to, "Speed-up", "Same bits")
    )
    for place, row in enumerate(found.runs):
        result = row.summary
        table.add_row(
            escape(labels[place]),
            escape(row.run.info.planner),
            str(result.rounds),
            "-" if (last := last_value(row.run.lines, metric)) is None else value_text(metric, last),
            show_seconds(result.virtual_seconds),
            show_seconds(result.wall_seconds),
            show_size((result.bytes_up + result.bytes_down) * 8),
            "-" if row.reached is None else show_seconds(row.reached.virtual_seconds),
            "-" if row.speed_up is None else f"{row.speed_up:.2f} ×",
            "base" if place == found.base else f"{row.same_rounds} of {row.common_rounds}",
        )
    console.print(table)
