"""`cutwater jobs`: several models on one server, planned together."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cutwater.base.jsonfile import write_atomically, write_json
from cutwater.base.units import show_compute, show_seconds
from cutwater.cli.common import Json, err, print_json, results_table, say
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.plan.jobs import JobsPlan


def jobs(
    file: Annotated[Path, typer.Argument(help="A TOML file: the server, and a job table for each model.")],
    *,
    objective: Annotated[
        str | None, typer.Option(help="slowest, slowdown or sum.", show_default="that of the file")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the plan here, as JSON.")] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(help="Write each job's scenario here, with its part of the server, to deploy it by."),
    ] = None,
    json_: Json = False,
) -> None:
    """Share one server out among several jobs, each with a model, clients and a session of its own.

    slowest and slowdown are optimal, and a lower bound proves it; of sum, an interval holds the optimum.

    Example: cutwater jobs examples/two-jobs.toml --objective sum

    Example: cutwater jobs examples/two-jobs.toml --out-dir deployed
    """
    from cutwater.plan.jobs import known_objective
    from cutwater.scenario.jobs import load_jobs

    if objective is not None:
        known_objective(objective)  # before any work
    given = load_jobs(file)
    result = given.plan(objective)
    if out is not None:
        write_json(out, result.to_json())
    for path, text in given.scenarios(result, out_dir).items() if out_dir is not None else ():
        write_atomically(path, text.encode())
        say(f"{path} is written", to=err)
    if json_:
        print_json(result.to_json())
    else:
        _show(result)


def _show(plan: "JobsPlan") -> None:
    from cutwater.plan.jobs import MORE

    saved = f"Saved by {MORE:.0%} more"
    table = results_table(
        ["Job"], ("Clients", "Split", "Weight", "Server", "Of it", "Round", "Alone", "Slowdown", saved)
    )
    for job in plan.jobs:
        table.add_row(
            escape(job.name),
            f"{len(job.plan):,}",
            f"{job.plan.split.sum():,}",
            f"{job.job.weight:g}",
            show_compute(job.part),
            f"{job.part / plan.server_compute:.1%}" if plan.server_compute else "-",
            show_seconds(job.latency),
            show_seconds(job.alone),
            f"{job.slowdown:.3f}",
            show_seconds(job.saved),
        )
    console.print(table)
    say(plan.explain())
    text = f"The last column is what {MORE:.0%} of the server, given to that job alone, takes off its round."
    say(text, style="dim")
