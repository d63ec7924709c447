"""`cutwater sweep`: round latency against server compute, links, clients, micro-batches or codecs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.errors import CutwaterError, PlanError, ScenarioError, UnitError
from cutwater.base.kinds import Whole
from cutwater.base.units import (
    parse_compute,
    parse_quantity,
    parse_rate,
    show_compute,
    show_rate,
    show_seconds,
)
from cutwater.cli.common import Json, ScenarioFile, print_json, progress, results_table, say
from cutwater.cli.common import out as console
from cutwater.cli.plan import about_knee

if TYPE_CHECKING:
    from cutwater.plan.problem import Problem
    from cutwater.scenario.file import Scenario

PLANNERS = ("exact", "alternating", "fedavg")


@dataclass(frozen=True)
class Axis:
    """One thing that can be swept."""

    name: str
    read: Callable[[str, str], float]
    show: Callable[[float], str]
    label: str
    unit: float
    """What the figure divides by."""
    problem: "Callable[[Scenario, Problem, float], Problem]"
    names: tuple[str, ...] = ()
    """What its values stand for, where they are places in a list."""


def _with_server(scenario: "Scenario", problem: "Problem", value: float) -> "Problem":
    return problem.at_compute(value)


def _with_rate(scenario: "Scenario", problem: "Problem", value: float) -> "Problem":
    return problem.replace(clients=problem.fleet.replace(up=value, down=value))


def _with_clients(scenario: "Scenario", problem: "Problem", value: float) -> "Problem":
    return problem.replace(clients=scenario.with_clients(round(value)).fleet)


def _count(text: str, what: str) -> float:
    return float(Whole(1, quoted=True).read(text, what, ScenarioError))


def _with_rtt(scenario: "Scenario", problem: "Problem", value: float) -> "Problem":
    return problem.replace(clients=problem.fleet.replace(rtt=value))


def _with_parts(scenario: "Scenario", problem: "Problem", value: float) -> "Problem":
    return problem.replace(session=replace(problem.session, micro_batches=round(value)))


def _time(text: str, what: str) -> float:
    return parse_quantity("time", text, what, or_zero=True)


AXES = (
    Axis("server", parse_compute, show_compute, "Server compute (GFLOPS)", 1e9, _with_server),
    Axis("rate", parse_rate, show_rate, "Rate of every client (MB/s)", 8e6, _with_rate),
    Axis("rtt", _time, show_seconds, "Round trip of every client (ms)", 1e-3, _with_rtt),
    Axis("clients", _count, lambda value: f"{value:.0f}", "Clients", 1.0, _with_clients),
    Axis("micro-batches", _count, lambda value: f"{value:.0f}", "Micro-batches", 1.0, _with_parts),
)
_AXES = {axis.name: axis for axis in AXES}


def sweep(
    scenario: ScenarioFile,
    *,
    server: Annotated[str | None, typer.Option(help='Server compute, "LOW:HIGH".')] = None,
    rate: Annotated[str | None, typer.Option(help='The rate of every client, "LOW:HIGH".')] = None,
    rtt: Annotated[str | None, typer.Option(help='The round trip of every client, "LOW:HIGH".')] = None,
    clients: Annotated[str | None, typer.Option(help='Number of clients, "LOW:HIGH".')] = None,
    micro_batches: Annotated[str | None, typer.Option(help='Parts of a mini-batch, "LOW:HIGH".')] = None,
    codecs: Annotated[
        str | None, typer.Option(help='Codecs with commas between them, such as "fp32,int8": of both ways.')
    ] = None,
    points: Annotated[int, typer.Option(help="How many values to try.", min=2, max=10_000)] = 30,
    logarithmic: Annotated[bool, typer.Option("--log", help="Equal ratios instead of equal steps.")] = False,
    planner: Annotated[
        list[str] | None,
        typer.Option(help="Of these planners; may be repeated.", show_default=", ".join(PLANNERS)),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it here: .png, .svg or .pdf.")] = None,
    json_: Json = False,
) -> None:
    """Round latency against server compute, the clients' rate, round trip or number, micro-batches or codecs.

    Where does more stop helping?

    Clients are newly drawn for every number if the scenario has a fleet table, or the first of its list.

    Example: cutwater sweep examples/paper-ten.toml --server "100 GFLOPS:9000 GFLOPS" --plot sweep.png
    """
    from cutwater.plan.knee import knee, with_knee
    from cutwater.report.figures import check_figure_path
    from cutwater.scenario.file import load_scenario

    asked = {"server": server, "rate": rate, "rtt": rtt, "clients": clients}
    axis, text = _chosen({**asked, "micro-batches": micro_batches, "codecs": codecs})
    values = _values(axis, text, points, logarithmic)
    if plot is not None:
        check_figure_path(plot)
    names = list(planner or PLANNERS)
    given = load_scenario(scenario)
    latencies = run_sweep(given, axis, values, names)
    bend = knee(given.problem()) if axis.name == "server" else None
    if plot is not None:
        from cutwater.report.drawings import draw_sweep
        from cutwater.report.figures import save_figure

        scaled = [value / axis.unit for value in values]
        figure = draw_sweep(scaled, latencies, label=axis.label, logarithmic=logarithmic, names=axis.names)
        save_figure(figure, plot)
    if json_:
        rows = [
            {
                "value": axis.show(value) if axis.names else value,
                "latency": {name: latencies[name][i] for name in names},
            }
            for i, value in enumerate(values)
        ]
        more = with_knee(bend) if axis.name == "server" else {}
        print_json({"scenario": str(scenario), "swept": axis.name, "points": rows, **more})
    else:
        console.print(_table(axis, values, latencies))
        if bend is not None:
            say(about_knee(bend))


def _chosen(given: dict[str, str | None]) -> tuple[Axis, str]:
    chosen = [(name, text) for name, text in given.items() if text is not None]
    if len(chosen) != 1:
        *most, last = (f"--{name}" for name in given)
        raise CutwaterError(
            f"{len(chosen)} things are given to sweep, but it must be one of {', '.join(most)} and {last}, "
            'such as --server "100 GFLOPS:9000 GFLOPS"'
        )
    name, text = chosen[0]
    return (_codecs(text) if name == "codecs" else _AXES[name]), text


def _codecs(text: str) -> Axis:
    """An axis whose values are places in a list of codecs."""
    names = [name.strip() for name in text.split(",")]

    def with_codec(scenario: "Scenario", problem: "Problem", value: float) -> "Problem":
        from cutwater.plan.worth import with_wire

        return with_wire(problem, names[round(value)], problem.session.micro_batches)

    def show(value: float) -> str:
        return names[round(value)]

    return Axis("codecs", _count, show, "Codec, both ways", 1.0, with_codec, tuple(names))


def _values(axis: Axis, text: str, points: int, logarithmic: bool) -> list[float]:
    if axis.names:
        return [float(place) for place in range(len(axis.names))]
    low_text, colon, high_text = text.partition(":")
    if not colon:
        raise UnitError(f'--{axis.name} is {text!r}, but must be a range "LOW:HIGH"')
    low, high = axis.read(low_text, f"--{axis.name}"), axis.read(high_text, f"--{axis.name}")
    if not low < high:
        raise UnitError(f"--{axis.name} is {text!r}, but its low end must be below its high end")
    values = np.geomspace(low, high, points) if logarithmic else np.linspace(low, high, points)
    values[0], values[-1] = low, high
    if axis.read is _count:
        values = np.unique(np.rint(values))
    return [float(value) for value in values]


def run_sweep(
    scenario: "Scenario", axis: Axis, values: list[float], names: list[str]
) -> dict[str, list[float | None]]:
    """The round latency of each planner at each value; None where a planner has no plan."""
    from cutwater.plan.planners import planner, run

    for name in names:
        planner(name)  # an unknown name is refused before any work
    problem = scenario.problem()
    axis.problem(scenario, problem, values[-1])  # so is a value that goes too far
    latencies: dict[str, list[float | None]] = {name: [] for name in names}
    with progress() as bar:
        task = bar.add_task("planning", total=len(values) * len(names))
        for value in values:
            changed = axis.problem(scenario, problem, value)
            for name in names:
                try:
                    latencies[name].append(run(changed, name).latency)
                except PlanError:
                    if name == "exact":
                        raise
                    latencies[name].append(None)
                bar.advance(task)
    return latencies


def _table(axis: Axis, values: list[float], latencies: dict[str, list[float | None]]) -> Table:
    table = results_table((), (axis.name.capitalize(), *map(escape, latencies)))
    for i, value in enumerate(values):
        row = ("-" if (one := seconds[i]) is None else show_seconds(one) for seconds in latencies.values())
        table.add_row(axis.show(value), *row)
    return table
