"""`cutwater runs`: runs side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.errors import RunError
from cutwater.base.units import show_seconds, show_size
from cutwater.cli.common import err, print_json
from cutwater.cli.common import out as console
from cutwater.cli.plan import Json
from cutwater.cli.rounds import percent

if TYPE_CHECKING:
    from cutwater.runs.summary import Reached, Summary


@dataclass(frozen=True)
class Entry:
    """One run, as far as it came."""

    path: Path
    planner: str
    rows: "list[dict[str, Any]]"
    summary: "Summary"
    reached: "Reached | None"


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
    found = [run for folder in folders for run in _runs_in(folder)]
    target, entries = _compare(found, accuracy)
    base = next((entry for entry in entries if entry.planner == "fedavg"), entries[0])
    if plot is not None:
        from cutwater.report.figures import save_figure
        from cutwater.report.runs_figure import draw_runs

        save_figure(
            draw_runs([(_label(entry, entries), entry.planner, entry.rows) for entry in entries]), plot
        )
    if json_:
        print_json({"accuracy": target, "base": str(base.path), "runs": [_json(e, base) for e in entries]})
    else:
        _show(entries, base, target)


def _runs_in(folder: Path) -> list[Path]:
    try:
        if (folder / "run.json").is_file():
            return [folder]
        below = sorted(path.parent for path in folder.glob("*/run.json"))
    except OSError as error:  # a name that is too long, say
        raise RunError(f"{folder} can't be read: {error.strerror or error}; name another folder") from error
    if not below:
        raise RunError(f"{folder} holds no run: name a folder that `cutwater train --run` wrote")
    return below


def _compare(folders: list[Path], accuracy: float | None) -> tuple[float | None, list[Entry]]:
    from cutwater.base.jsonfile import check_document, read_json
    from cutwater.runs import metrics
    from cutwater.runs.summary import summary, time_to

    read = []
    for folder in folders:
        known = check_document(read_json(folder / "run.json"), "cutwater.run", 1, str(folder / "run.json"))
        rows = metrics.read(folder / "metrics.jsonl")
        note = metrics.gaps(folder / "metrics.jsonl", rows)
        if note is not None:
            err.print(note, style="yellow", markup=False, soft_wrap=True)
        read.append((folder, str(known.get("planner", "?")), rows, summary(rows)))
    best = [result.best_accuracy for *_, result in read if result.best_accuracy is not None]
    target = accuracy if accuracy is not None else min(best, default=None)
    return target, [
        Entry(*one, reached=time_to(one[2], target) if target is not None else None) for one in read
    ]


def _speed_up(entry: Entry, base: Entry) -> float | None:
    if entry.reached is None or base.reached is None or not entry.reached.virtual_seconds:
        return None
    return base.reached.virtual_seconds / entry.reached.virtual_seconds


def _common(entry: Entry, base: Entry) -> list[bool]:
    """For each round that both runs have, in order: whether the weights are the same, bit for bit."""
    others = {row["round"]: row["weights_sha256"] for row in base.rows}
    ours = {row["round"]: row["weights_sha256"] for row in entry.rows}
    return [ours[number] == others[number] for number in sorted(ours) if number in others]


def _same_rounds(entry: Entry, base: Entry) -> int:
    """For how many common rounds from the first on two runs have the same weights, bit for bit."""
    same = _common(entry, base)
    return same.index(False) if False in same else len(same)


def _json(entry: Entry, base: Entry) -> dict[str, Any]:
    reached = vars(entry.reached) if entry.reached else None
    return {
        "run": str(entry.path),
        "planner": entry.planner,
        **entry.summary.to_json(),
        "time_to_accuracy": reached,
        "speed_up": _speed_up(entry, base),
        "rounds_with_the_bits_of_base": _same_rounds(entry, base),
    }


def _label(entry: Entry, entries: list[Entry]) -> str:
    """The folder's name, or as much of its path as tells it from the others."""
    names = [other.path.resolve().name for other in entries]
    name = entry.path.resolve().name
    return name if names.count(name) == 1 else str(entry.path)


def _show(entries: list[Entry], base: Entry, target: float | None) -> None:
    to = f"To {percent(target)}" if target is not None else "To accuracy"
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for title in ("Run", "Planner"):
        table.add_column(title, no_wrap=True)
    for title in ("Rounds", "Accuracy", "Virtual", "Wall", "Traffic", to, "Speed-up", "Same bits"):
        table.add_column(title, justify="right", no_wrap=True)
    for entry in entries:
        result, ratio = entry.summary, _speed_up(entry, base)
        shared = len(_common(entry, base))
        table.add_row(
            escape(_label(entry, entries)),
            escape(entry.planner),
            str(result.rounds),
            "-" if result.accuracy is None else percent(result.accuracy),
            show_seconds(result.virtual_seconds),
            show_seconds(result.wall_seconds),
            show_size((result.bytes_up + result.bytes_down) * 8),
            "-" if entry.reached is None else show_seconds(entry.reached.virtual_seconds),
            "-" if ratio is None else f"{ratio:.2f} ×",
            "base" if entry is base else f"{_same_rounds(entry, base)} of {shared}",
        )
    console.print(table)
