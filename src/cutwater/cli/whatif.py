"""`cutwater whatif`: what more server compute, faster links and faster devices are worth."""

from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape

from cutwater.base.errors import PlanError, suggest
from cutwater.base.units import parse_compute, parse_rate, show_compute, show_rate, show_seconds
from cutwater.cli.common import out as console
from cutwater.cli.common import print_json, progress, results_table
from cutwater.cli.plan import Json, ScenarioFile

if TYPE_CHECKING:
    from cutwater.plan.value import Plan
    from cutwater.plan.whatif import Change, Method

MOST = 15
"""Rows of the table."""


def whatif(
    scenario: ScenarioFile,
    *,
    compute: Annotated[
        str, typer.Option(help="How much more compute, at the server or a device.")
    ] = "1 GFLOPS",
    rate: Annotated[str, typer.Option(help="How much faster a link, up and down.")] = "1 MB/s",
    method: Annotated[
        str | None,
        typer.Option(
            help="re-solved (the optimum of every changed fleet) or analytic (first order).",
            show_default="re-solved up to 500 clients",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """The value of one more GFLOPS at the server, of one more MB/s for each client, in seconds off the round.

    Example: cutwater whatif examples/paper-ten.toml --rate "1 MB/s"
    """
    from cutwater.plan import whatif as values
    from cutwater.scenario.file import load_scenario

    if method is not None and method not in ("analytic", "re-solved"):
        raise PlanError(f"there is no method {method!r}: {suggest(method, ('analytic', 're-solved'))}")
    step = values.Increment(parse_compute(compute, "--compute"), parse_rate(rate, "--rate"))
    problem = load_scenario(scenario).problem()
    with progress() as bar:
        task = bar.add_task("solving", total=1 + 2 * len(problem))
        plan, changes = values.whatif(
            problem,
            step,
            method=cast("Method | None", method),
            progress=lambda done: bar.update(task, completed=done),
        )
    if json_:
        print_json({"latency": plan.latency, "changes": [vars(change) for change in changes]})
    else:
        _show(plan, changes)


def _show(plan: "Plan", changes: "list[Change]") -> None:
    console.print(f"A round takes {show_seconds(plan.latency)} at the optimum. What would be worth how much:")
    helpful = [change for change in changes if change.saved > 1e-9 * plan.latency]
    table = results_table(["Change"], ("Saves", "Round"))
    for change in helpful[:MOST]:
        table.add_row(escape(_name(change)), show_seconds(change.saved), show_seconds(change.latency))
    console.print(table)
    how = "each is the optimum of the changed fleet" if changes[0].method == "re-solved" else "to first order"
    rest = len(changes) - len(helpful[:MOST])
    zero = "of no value" if len(helpful) <= MOST else "of less or no value"
    console.print(f"{changes[0].method}: {how}; {rest} other changes are {zero}", style="dim")


def _name(change: "Change") -> str:
    if change.kind == "server compute":
        return f"+{show_compute(change.amount)} at the server"
    if change.kind == "link":
        return f"+{show_rate(change.amount)} for {change.client}"
    return f"+{show_compute(change.amount)} on {change.client}"
