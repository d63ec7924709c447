"""`cutwater plan`: each client's cut and share of the server, and how good that is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.units import show_compute, show_rate, show_seconds
from cutwater.cli.common import (
    MOST,
    Json,
    PlannerOptions,
    ScenarioFile,
    planner_options,
    print_pieces,
    results_table,
    say,
)
from cutwater.cli.common import out as console
from cutwater.plan.session import Wire

if TYPE_CHECKING:
    from cutwater.plan.knee import Knee
    from cutwater.plan.value import ClientPlan, Plan


def plan(
    scenario: ScenarioFile,
    *,
    planner: Annotated[
        str,
        typer.Option(
            help="exact, alternating, fedavg, splitfed, splitfed-best, greedy, random, exhaustive, or your "
            "own as package.module:function."
        ),
    ] = "exact",
    option: PlannerOptions = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the plan here: .json, .csv or .parquet (with pyarrow).")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show every client, however many there are.")] = False,
    json_: Json = False,
) -> None:
    """Choose every client's cut and share of the server so that the slowest is done as early as possible.

    The exact planner's answer is the optimum, and a lower bound proves it.

    Example: cutwater plan examples/paper-ten.toml --planner alternating --out plan.json
    """
    from cutwater.plan.knee import knee, with_knee
    from cutwater.plan.planners import solve_by
    from cutwater.plan.table import json_pieces, write_plan
    from cutwater.scenario.file import load_scenario

    options = planner_options(option)
    problem = load_scenario(scenario).problem()
    result = solve_by(problem, planner, options)
    bend = knee(problem)
    more = with_knee(bend)
    if out is not None:
        write_plan(out, result, more)
    if json_:
        print_pieces(piece.decode() for piece in json_pieces(result, more))
        return
    _show(result, len(result) if all_ else MOST)
    if bend is not None:
        say(about_knee(bend))


def about_knee(bend: "Knee") -> str:
    """The knee in words."""
    return (
        f"The knee: a server of {show_compute(bend.compute)} ({show_seconds(bend.latency)}) saves 90 % of "
        f"what any could, from {show_seconds(bend.without)} without one down to {show_seconds(bend.floor)}."
    )


def _show(plan: "Plan", most: int) -> None:
    rows = [plan[int(k)] for k in (-plan.latencies).argsort(kind="stable")[:most]]
    if len(plan) <= most:
        rows = list(plan.clients)
    console.print(_table(plan, rows))
    if len(rows) < len(plan):
        console.print(f"… and {len(plan) - len(rows):,} faster clients", style="dim")
    for line in plan.explain().splitlines():
        say(line)
    if lossy := plan.lossy:
        text = f"Lossy codecs are used ({', '.join(lossy)}): what is learned is not FedAvg's, bit for bit."
        say(text)


def _table(plan: "Plan", rows: "list[ClientPlan]") -> Table:
    """What each client does, how long it, the server and its link are busy, and what it waits for."""
    from cutwater.plan.busy import Busy
    from cutwater.plan.marginal import finish_last
    from cutwater.plan.places import cut_text

    last = finish_last(plan.latencies)
    table = results_table(("Client", "Mode"), ("Cut", "Share", "Latency", "Client", "Up", "Server", "Down"))
    table.add_column("Waits for", no_wrap=True)
    if plan.rates is not None:
        table.add_column("Rate up", justify="right", no_wrap=True)
        table.add_column("Rate down", justify="right", no_wrap=True)
    crossing = len(plan.options) > 1 or plan.options[0] != Wire()
    if crossing:
        table.add_column("Wire", no_wrap=True)
    for row in rows:
        split, busy = row.mode == "split", Busy.of(row.phases)
        table.add_row(
            escape(row.name),
            row.mode,
            cut_text(row.cut, row.second_cut),
            show_compute(row.share) if row.share else "-",
            show_seconds(row.latency),
            show_seconds(busy.client),
            show_seconds(busy.link_up),
            show_seconds(busy.server) if split else "-",
            show_seconds(busy.link_down),
            busy.waits_for,
            *([show_rate(rate) for rate in (row.rate_up, row.rate_down) if rate is not None]),
            *([_wire(row)] if crossing else []),
            style="" if last[plan.place(row.name)] else "dim",
        )
    return table


def _wire(row: "ClientPlan") -> str:
    """How a split client's steps cross the cut."""
    if row.mode != "split":
        return "-"
    codecs = row.up if row.up == row.down else f"{row.up} up, {row.down} down"
    return escape(f"{row.schedule}, {codecs}")
