"""`cutwater compare`: all planners on one scenario."""

import time
from functools import partial
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from cutwater.base.units import show_seconds
from cutwater.cli.common import Json, ScenarioFile, print_json, progress, results_table, say
from cutwater.cli.common import out as console

if TYPE_CHECKING:
    from cutwater.plan.planners import PlannerResult
    from cutwater.plan.problem import Problem
    from cutwater.plan.worth import Worth

FAR = 0.1
"""Seconds there and back: the round trip of a distant server, or of a mobile link."""
FAR_CODECS = ("fp32", "int8")
"""Codecs that the table shows with that round trip."""
SLOW = 100_000
"""Above so many clients, planners that are written for people rather than for speed are left out."""


def compare(
    scenario: ScenarioFile,
    *,
    planner: Annotated[
        list[str] | None, typer.Option(help="Only these; may be repeated.", show_default="all")
    ] = None,
    json_: Json = False,
) -> None:
    """Plan with every planner: round latency, gap to the optimum, time to plan.

    Below it, what overlapped micro-batches, codecs and a round trip of 100 ms would make of the optimum, each
    planned anew for all clients alike: what clients limit codecs and schedules to is left out there.

    Example: cutwater compare examples/paper-ten.toml
    """
    from cutwater.plan.planners import planners
    from cutwater.scenario.file import load_scenario

    problem = load_scenario(scenario).problem()
    names = planner or [name for name in planners() if name != "greedy" or len(problem) <= SLOW]
    entries = compare_planners(problem, names)
    grid = _worth(problem) if planner is None and len(problem) <= SLOW else []
    if json_:
        rows, cells = [vars(entry) for entry in entries], [_cell(cell) for cell in grid]
        print_json({"scenario": str(scenario), "planners": rows, "worth": cells})
    else:
        _show(entries, len(problem))
        _show_worth(grid)


def compare_planners(problem: "Problem", names: list[str]) -> "list[PlannerResult]":
    """Run planners side by side, fastest round first."""
    from cutwater.plan.exact import certified_bound
    from cutwater.plan.planners import planner, standing

    for name in names:
        planner(name)  # an unknown name is refused before any work
    with progress() as bar:
        task = bar.add_task("planning", total=len(names) + 1)
        bound = certified_bound(problem)
        bar.advance(task)
        entries = []
        for name in names:
            entries.append(_result(problem, name, bound))
            bar.advance(task)
    return sorted(entries, key=standing)


def _result(problem: "Problem", name: str, bound: float) -> "PlannerResult":
    from cutwater.plan.planners import judged

    # Compiled code is loaded before the clock starts, by planning for the first client alone.
    first = judged(problem.replace(clients=problem.fleet.take(1)), name, bound, time.perf_counter)
    return judged(problem, name, bound, time.perf_counter) if first.error is None else first


def _show(entries: "list[PlannerResult]", clients: int) -> None:
    table = results_table(["Planner"], ("Round", "Above optimum", "Sharing", "Planned in"))
    table.add_column("")
    for entry in entries:
        if entry.latency is not None and entry.planning_seconds is not None:
            cells = (show_seconds(entry.latency), _percent(entry.gap), f"{entry.sharing} of {clients}")
            outcome = escape(entry.outcome)
            table.add_row(escape(entry.planner), *cells, show_seconds(entry.planning_seconds), outcome)
    console.print(table)
    for entry in entries:
        if entry.error is not None:
            console.print(f"no plan by {entry.planner}: {entry.error}", style="dim", markup=False)


def _worth(problem: "Problem") -> "list[Worth]":
    from cutwater.plan.worth import CODECS, PARTS, worth

    with progress() as bar:
        task = bar.add_task("planning", total=(len(CODECS) + len(FAR_CODECS)) * len(PARTS))
        advance = partial(bar.advance, task)
        return [*worth(problem, advance), *worth(problem, advance, codecs=FAR_CODECS, rtt=FAR)]


def _cell(cell: "Worth") -> dict[str, Any]:
    return {**vars(cell), "gap": cell.gap if isfinite(cell.gap) else None}


def _show_worth(grid: "list[Worth]") -> None:
    """A row for each codec and round trip, a column for each number of parts."""
    if not grid:
        return
    parts = sorted({cell.micro_batches for cell in grid})
    rows = {key: list(cells) for key, cells in groupby(grid, lambda cell: (cell.codec, cell.rtt, cell.lossy))}
    console.print("\nThe optimum by codec (both ways) and overlapped micro-batches:")
    table = results_table(["Codec"], [f"{count} part{'s' * (count > 1)}" for count in parts])
    table.add_column("")
    for (codec, rtt, lossy), cells in rows.items():
        far = "" if rtt is None else f", rtt {show_seconds(rtt)}"
        seconds = [show_seconds(cell.latency) for cell in cells]
        table.add_row(f"{codec}{far}", *seconds, "lossy" if lossy else "")
    console.print(table)
    say(
        "for all clients alike: what clients limit codecs and schedules to is left out, and rtt rows replace "
        "clients' own",
        style="dim",
    )


def _percent(gap: float | None) -> str:
    """How far above the optimum.

    >>> _percent(1e-12), _percent(0.0764), _percent(59.81), _percent(None)
    ('0 %', '7.6 %', '5,981 %', '-')
    """
    from cutwater.plan.root import AT_OPTIMUM

    if gap is None:
        return "-"
    if gap <= AT_OPTIMUM:
        return "0 %"
    return f"{gap * 100:.1f} %" if gap < 1 else f"{gap * 100:,.0f} %"
