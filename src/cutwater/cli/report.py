"""`cutwater report`: runs as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer

from cutwater.base.errors import RunError
from cutwater.base.text import shown
from cutwater.cli.common import print_json, say


def report(
    run: Annotated[list[Path], typer.Argument(help="Run folders, as cutwater train leaves them.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the page.", show_default="report.html in the first run"),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print what the page shows as JSON instead.")] = False,
) -> None:
    """One run, or several compared, as one HTML file that opens anywhere, without a network.

    Accuracy and loss, every round client by client, the server's shares, the plan against what was measured,
    bytes, dropouts, scenario and versions. It works while a run goes on: run it again for the newest rounds.

    Example: cutwater report runs/sfl runs/fedavg --out report.html
    """
    from cutwater.base.jsonfile import write_atomically
    from cutwater.report.html import report_html
    from cutwater.report.run_report import report_data
    from cutwater.runs.confined import Folder

    for folder in run:
        if not folder.is_dir():
            raise RunError(f"{folder} is no folder: name a run folder, as cutwater train --run DIR leaves it")
    folders = [(name, Folder(folder)) for name, folder in zip(_names(run), run, strict=True)]
    if json_:
        print_json(report_data(folders))
        return
    target = out or run[0] / "report.html"
    write_atomically(target, report_html(folders).encode())
    say(f"The report is {target}: open it in a browser.")


def _names(runs: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell the runs apart."""
    parts = [run.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = [shown("/".join(one[-length:])) for one in parts]
        if len(set(names)) == len(names):
            return names
    raise RunError(f"{runs[0]} is named twice: compare runs that differ")
