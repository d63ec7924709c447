"""`cutwater fleet`: a Flower fleet on this machine, from its certificates to its audit."""

import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cutwater.base.errors import EngineError, RunError
from cutwater.base.units import show_seconds
from cutwater.cli.audit import show
from cutwater.cli.common import err, print_json
from cutwater.cli.common import out as console
from cutwater.cli.plan import ScenarioFile
from cutwater.cli.rounds import percent

if TYPE_CHECKING:
    from cutwater.fleet.supernodes import LocalFleet
    from cutwater.runs.audit import RoundAudit


def fleet(
    scenario: ScenarioFile,
    *,
    rounds: Annotated[int | None, typer.Option(min=1, help="Instead of the scenario's own number.")] = None,
    planner: Annotated[
        list[str] | None,
        typer.Option(help="May be repeated, to compare planners on the same fleet.", show_default="exact"),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Keep the run here; by planner, if there are several.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="Emulate nothing: every node is as fast as this machine.")
    ] = False,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Flower's simulation instead of nodes of their own.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a scenario on a Flower fleet on this machine: a SuperLink, and a SuperNode for each client.

    TLS and node authentication are on. Every node is slowed down to the compute and rate that the scenario
    gives it, so that predicted and measured seconds can be compared; all processes end with the command.

    Example: cutwater fleet examples/fleet.toml --planner fedavg --planner exact
    """
    from cutwater.flower import need_flower

    need_flower()
    from cutwater.fleet.supernodes import LocalFleet
    from cutwater.plan.planners import planner as find_planner

    planners = planner or ["exact"]
    for name in planners:
        find_planner(name)  # a fleet takes a while to start: what is wrong is said before
    if len(set(planners)) != len(planners):
        raise RunError(f"planners are {', '.join(planners)}, but each can run once")
    found: dict[str, tuple[RoundAudit, ...]] = {}
    with (
        _ended_by_signals(),
        tempfile.TemporaryDirectory(prefix="cutwater-runs-") as spare,
        LocalFleet(scenario, simulation=simulation, say=_say) as nodes,
    ):
        for name in planners:
            folder = Path(spare) / name if run is None else run / name if len(planners) > 1 else run
            found[name] = _run(nodes, folder, name, rounds, emulate=not real)
        _say("ending all processes")
    _print(found, json_)
    if any(audits[-1].failed for audits in found.values()):
        sys.exit(1)


def _run(
    nodes: "LocalFleet", folder: Path, planner: str, rounds: int | None, *, emulate: bool
) -> "tuple[RoundAudit, ...]":
    from cutwater.runs.audit import audit
    from cutwater.runs.metrics import read

    metrics = folder / "metrics.jsonl"
    seen = len(read(metrics))

    def tell() -> None:
        nonlocal seen
        rows = read(metrics)
        for row in rows[seen:]:
            _say(f"{planner}, {news(row)}")
        seen = max(seen, len(rows))

    _say(f"training with planner {planner}")
    nodes.run(folder, planner=planner, rounds=rounds, emulate=emulate, name=planner, meanwhile=tell)
    tell()
    rows = read(metrics)
    if not rows or rows[-1]["round"] < (rounds or nodes.rounds):
        raise EngineError(f"the run ended after {len(rows)} rounds: {nodes.complaint(planner)}")
    return audit(folder)


def news(row: Mapping[str, Any]) -> str:
    """A line of metrics.jsonl for people; a round that was not tested has no accuracy."""
    if row["failed"]:
        return f"round {row['round']}: {row['failed']}"
    accuracy = "" if row["accuracy"] is None else f", accuracy {percent(row['accuracy'])}"
    return f"round {row['round']}: {show_seconds(row['actual_seconds'])}{accuracy}"


def _print(found: "dict[str, tuple[RoundAudit, ...]]", json_: bool) -> None:
    from cutwater.runs.audit import audit_json

    if json_:
        documents: dict[str, Any] = {name: audit_json(audits) for name, audits in found.items()}
        print_json(documents if len(documents) > 1 else next(iter(documents.values())))
        return
    for name, audits in found.items():
        if len(found) > 1:
            console.print(f"\n{name}", style="bold", markup=False)
        show(audits)
    means = {name: _means(audits) for name, audits in found.items()}
    slowest = max(means, key=lambda name: means[name][0])
    for name, (measured, wall) in means.items():
        if name != slowest:
            console.print(
                f"A round of {name} is measured {means[slowest][0] / measured:.2f} times as fast as one of "
                f"{slowest}: {show_seconds(measured)} against {show_seconds(means[slowest][0])} "
                f"({show_seconds(wall)} against {show_seconds(means[slowest][1])} on the wall).",
                markup=False,
                soft_wrap=True,
            )


def _means(audits: "tuple[RoundAudit, ...]") -> tuple[float, float]:
    measured = sum(each.measured_seconds for each in audits) / len(audits)
    wall = sum(each.wall_seconds or each.measured_seconds for each in audits) / len(audits)
    return measured, wall


def _say(text: str) -> None:
    err.print(text, style="dim", markup=False, soft_wrap=True)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within, a polite kill or a closed terminal unwinds like Ctrl-C, so that nothing is left behind."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
