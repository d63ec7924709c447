"""`cutwater fleet`: a Flower fleet on this machine, from its certificates to its audit."""

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cutwater.base.errors import RunError
from cutwater.base.units import show_seconds
from cutwater.cli.audit import show
from cutwater.cli.common import Json, ScenarioFile, err, print_json, say
from cutwater.cli.rounds import scores_text

if TYPE_CHECKING:
    from cutwater.federate.record import Record
    from cutwater.fleet.supernodes import LocalFleet
    from cutwater.runs.audit import Audit


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
    json_: Json = False,
) -> None:
    """Run a scenario on a Flower fleet on this machine: a SuperLink, and a SuperNode for each client.

    TLS and node authentication are on. Every node is slowed down to the compute and rate that the scenario
    gives it, so that predicted and measured seconds can be compared; all processes end with the command.

    Example: cutwater fleet examples/fleet.toml --planner fedavg --planner exact
    """
    from cutwater.flower import need_flower

    need_flower()
    from cutwater.base.usercode import look_beside
    from cutwater.fleet.supernodes import LocalFleet
    from cutwater.plan.planners import planner as find_planner

    planners = planner or ["exact"]
    look_beside(scenario.parent)
    for name in planners:
        find_planner(name)  # a fleet takes a while to start: what is wrong is said before
    if len(set(planners)) != len(planners):
        raise RunError(f"planners are {', '.join(planners)}, but each can run once")
    found: dict[str, Audit] = {}
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
    if any(audit.rounds[-1].failed for audit in found.values()):
        sys.exit(1)


def _run(nodes: "LocalFleet", folder: Path, planner: str, rounds: int | None, *, emulate: bool) -> "Audit":
    from cutwater.runs.audit import audit
    from cutwater.runs.confined import Folder
    from cutwater.runs.reader import read_lines

    def told() -> "tuple[Record, ...]":
        return read_lines(Folder(folder))[0]

    seen = len(told())

    def tell() -> None:
        nonlocal seen
        lines = told()
        for line in lines[seen:]:
            _say(f"{planner}, {news(line)}")
        seen = max(seen, len(lines))

    _say(f"training with planner {planner}")
    try:
        nodes.run(folder, planner=planner, rounds=rounds, emulate=emulate, name=planner, meanwhile=tell)
    finally:
        tell()
    return audit(folder)


def news(line: "Record") -> str:
    """A round for people; one that was not tested has no scores."""
    if line.failed:
        return f"round {line.round}: {line.failed}"
    scores = "".join(f", {text}" for text in scores_text(line))
    return f"round {line.round}: {show_seconds(line.actual_seconds or 0.0)}{scores}"


def _print(found: "dict[str, Audit]", json_: bool) -> None:
    if json_:
        documents: dict[str, Any] = {name: audit.to_json() for name, audit in found.items()}
        print_json(documents if len(documents) > 1 else next(iter(documents.values())))
        return
    for name, audit in found.items():
        if len(found) > 1:
            say(f"\n{name}", style="bold")
        show(audit)
    means = {name: _means(audit) for name, audit in found.items()}
    slowest = max(means, key=lambda name: means[name][0])
    for name, (measured, wall) in means.items():
        if name != slowest:
            say(
                f"A round of {name} is measured {means[slowest][0] / measured:.2f} times as fast as one of "
                f"{slowest}: {show_seconds(measured)} against {show_seconds(means[slowest][0])} "
                f"({show_seconds(wall)} against {show_seconds(means[slowest][1])} on the wall, "
                f"{means[slowest][1] / wall:.2f} times as fast)."
            )


def _means(audit: "Audit") -> tuple[float, float]:
    rounds = audit.rounds
    measured = sum(each.actual_seconds for each in rounds) / len(rounds)
    wall = sum(each.wall_seconds or each.actual_seconds for each in rounds) / len(rounds)
    return measured, wall


def _say(text: str) -> None:
    say(text, to=err, style="dim")


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
