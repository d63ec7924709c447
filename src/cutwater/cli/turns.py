"""`cutwater turns`: keeps the turns of runs that compute on one machine."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cutwater.base.units import show_compute
from cutwater.cli.common import Json, err, print_json, results_table, say
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.serve.turns import Turned


def turns(
    path: Annotated[Path, typer.Argument(help="Where the socket is, or is to be.")],
    *,
    report: Annotated[
        bool, typer.Option(help="Say what every run was promised and got, and keep nothing.")
    ] = False,
    json_: Json = False,
) -> None:
    """Have several runs compute on this machine by turns, each as often as its part of the server says.

    Runs join by turns = PATH in their run config, and leave when they are over; cutwater jobs --out-dir
    writes scenarios with the part that each should have. Keeps turns, and the accounts of runs that are over,
    until it is interrupted.

    Example: cutwater turns /tmp/cutwater.sock

    Example: cutwater turns /tmp/cutwater.sock --report
    """
    from dataclasses import asdict

    from cutwater.serve.turns import TurnKeeper, turned

    if report:
        found = turned(path)
        if json_:
            print_json([asdict(each) for each in found])
        else:
            _show(found)
        return
    with TurnKeeper(path):
        say(f"turns are kept at {path}; interrupt to end", to=err)
        threading.Event().wait()


def _show(runs: "list[Turned]") -> None:
    table = results_table(["Run"], ("Part", "Promised", "Delivered", "Of the promised"))
    for run in runs:
        kept = f"{run.delivered / run.promised:.1%}" if run.promised else "-"
        work = (f"{flops / 1e9:,.1f} GFLOP" for flops in (run.promised, run.delivered))
        name = f"{escape(run.run)} (over)" if run.over else escape(run.run)
        table.add_row(name, show_compute(run.part), *work, kept)
    console.print(table)
