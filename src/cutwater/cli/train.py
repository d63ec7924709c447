"""`cutwater train`: split-federated training of a scenario, kept in a folder that can be resumed."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.errors import PlanError, RunError
from cutwater.base.units import show_seconds, show_size
from cutwater.cli.common import (
    BUILDING,
    Json,
    PlannerOptions,
    ScenarioFile,
    err,
    planner_options,
    print_json,
    say,
)
from cutwater.cli.common import out as console
from cutwater.cli.rounds import Display, percent, plan_error_text, say_notes

if TYPE_CHECKING:
    from cutwater.federate.study import Study
    from cutwater.runs.summary import Summary

Workers = Annotated[
    int | None, typer.Option(help="Processes that train side by side.", show_default="one for each core")
]

NO_ROUND = 1
"""Exit code where no round reached its quorum."""
INTERRUPTED = 130


def train(
    scenario: ScenarioFile,
    *,
    run: Annotated[Path, typer.Option(help="The folder that keeps the run; new, or empty.")],
    rounds: Annotated[int | None, typer.Option(help="Instead of the scenario's number.", min=1)] = None,
    planner: Annotated[str, typer.Option(help="As of `cutwater plan`; fedavg cuts nothing.")] = "exact",
    option: PlannerOptions = None,
    workers: Workers = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write scalars to DIR/tensorboard.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train a scenario's model on its clients, each at its own cut, and keep every round in a folder.

    Time is virtual: what the round would have taken on the scenario's devices and links. Beside it stands
    what FedAvg would have taken for the same rounds. A run that was stopped, or killed at any moment, goes on
    with --resume to the same bits. More rounds may be asked for then.

    Exit codes: 0 done, 1 no round reached its quorum, 2 a mistake in what was asked, 130 interrupted.

    Example: cutwater train examples/digits.toml --run runs/digits
    """
    from cutwater.execute.local import run as run_locally
    from cutwater.runs.reader import read_run
    from cutwater.runs.summary import summary

    _check_name(run)
    options = planner_options(option)
    text, study = load_study(scenario, planner=planner, options=options, rounds=rounds)
    board = None
    if tensorboard:
        from cutwater.runs.tensorboard import TensorBoard

        board = TensorBoard(run / "tensorboard")
    display = Display(study.train.rounds)
    try:
        with display:
            run_locally(
                study,
                run,
                workers=workers,
                resume=resume,
                scenario=text,
                callbacks=[display.round, *([board] if board else [])],
                say=display.say,
                watch=display.session,
            )
    except KeyboardInterrupt:
        _say_how_to_resume(scenario, run, rounds, planner, option or [])
        raise typer.Exit(INTERRUPTED) from None
    finally:
        if board is not None:
            board.close()
    kept = read_run(run)
    say_notes(kept.notes)
    result = summary(kept.lines)
    # Virtual time runs from the first round to the last, whatever lines are missing: so does FedAvg's.
    rival = _fedavg(study, result.rounds)
    if json_:
        print_json(_json(run, study, result, rival))
    else:
        _show(run, study, result, rival)
    if kept.lines and all(line.failed for line in kept.lines):
        raise typer.Exit(NO_ROUND)


def _check_name(run: Path) -> None:
    """Refuse a folder that can't even be asked for (its name is too long, say) before anything is built."""
    try:
        (run / "run.json").exists()
    except OSError as error:
        raise RunError(
            f"--run {run} can't be used: {error.strerror or error}; name another folder"
        ) from error


def load_study(
    path: Path, *, planner: str = "exact", options: dict[str, Any] | None = None, rounds: int | None = None
) -> "tuple[str, Study]":
    """A scenario's text and its study; an unknown planner is refused before anything is built."""
    from cutwater.base.usercode import look_beside
    from cutwater.federate.from_scenario import study_of
    from cutwater.plan.planners import planner as find_planner
    from cutwater.scenario.file import load_scenario

    look_beside(path.parent)
    find_planner(planner)
    scenario = load_scenario(path)
    with err.status(BUILDING):
        study = study_of(scenario, planner=planner, planner_options=options, rounds=rounds, say=err.print)
    return path.read_text(encoding="utf-8"), study


def _say_how_to_resume(
    scenario: Path, run: Path, rounds: int | None, planner: str, options: list[str]
) -> None:
    import shlex

    from cutwater.runs.confined import Folder
    from cutwater.runs.reader import read_lines

    lines, _ = read_lines(Folder(run))
    done = lines[-1].round if lines else 0
    parts = ["cutwater", "train", str(scenario), "--run", str(run), "--resume"]
    parts += ["--rounds", str(rounds)] if rounds is not None else []
    parts += ["--planner", planner] if planner != "exact" else []
    for option in options:
        parts += ["--option", option]
    say(f"stopped; {done} rounds are kept. Go on with:", to=err)
    say(f"  {shlex.join(parts)}", to=err)


class _Rival(NamedTuple):
    """FedAvg's clock over the same rounds, or why it has none."""

    seconds: float | None
    failed: int = 0
    reason: str | None = None


def _fedavg(study: "Study", rounds: int) -> _Rival:
    from cutwater.federate.clock import clock_only

    try:
        outcomes = list(clock_only(study.with_planner("fedavg"), rounds))
    except PlanError as error:
        return _Rival(None, reason=str(error))
    return _Rival(
        sum(outcome.seconds for outcome in outcomes), sum(outcome.failed is not None for outcome in outcomes)
    )


def _json(run: Path, study: "Study", result: "Summary", rival: _Rival) -> dict[str, Any]:
    return {
        "run": str(run),
        "planner": study.planner_name,
        **asdict(result),
        "fedavg": {
            "virtual_seconds": rival.seconds,
            "failed": rival.failed,
            "speed_up": _speed_up(result, rival),
            "reason": rival.reason,
        },
    }


def _speed_up(result: "Summary", rival: _Rival) -> float | None:
    return rival.seconds / result.virtual_seconds if rival.seconds and result.virtual_seconds else None


def _show(run: Path, study: "Study", result: "Summary", rival: _Rival) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for label, value in _lines(study, result, rival):
        table.add_row(label, escape(value))
    table.add_row("kept in", escape(str(run)))
    console.print(table)


def _lines(study: "Study", result: "Summary", rival: _Rival) -> list[tuple[str, str]]:
    failed = f", {result.failed} of them below quorum" if result.failed else ""
    lines = [("rounds", f"{result.rounds}{failed}")]
    if result.stopped is not None:
        lines.append(("stopped", result.stopped))
    lines += score_lines(result)
    if result.loss is not None:
        lines.append(("training loss", f"{result.loss:.4g}"))
    lines.append(("virtual time", f"{show_seconds(result.virtual_seconds)} by planner {study.planner_name}"))
    if study.planner_name != "fedavg":
        lines.append(("FedAvg's clock", _rival_line(result, rival)))
    if result.plan_error is not None:
        lines.append(("plan against truth", plan_error_text(result.plan_error)))
    if result.lost:
        lines.append(("lost updates", f"{result.lost}, by dropout or too late"))
    lines.append(("traffic", f"{show_size(result.bytes_up * 8)} up, {show_size(result.bytes_down * 8)} down"))
    lines.append(("time here", show_seconds(result.wall_seconds)))
    return lines


def score_lines(result: "Summary") -> list[tuple[str, str]]:
    """What the model came to, for people, and which one was kept as the best."""
    from cutwater.federate.record import score_name, score_text, value_text

    lines = []
    if result.accuracy is not None and result.best_accuracy is not None:
        lines.append(("accuracy", f"{percent(result.accuracy)} (best {percent(result.best_accuracy)})"))
    elif result.test_loss is not None:
        lines.append(("test loss", f"{result.test_loss:.4g}"))
    lines += [(name, value_text(name, value)) for name, value in result.metrics.items()]
    shown = "accuracy" if "accuracy" in result.local_tests else "test_loss"
    if shown in result.local_tests:
        spread = result.local_tests[shown]
        least, most, mean = (value_text(shown, one) for one in (spread.least, spread.most, spread.mean))
        where = f"{score_name(shown)} {mean} on average, {least} to {most}"
        lines.append(("clients' own tests", f"{where} over {spread.clients} clients"))
    if result.best is not None:
        best = result.best
        lines.append(("best model kept", f"round {best.round}, {score_text(best.metric, best.value)}"))
    return lines


def _rival_line(result: "Summary", rival: _Rival) -> str:
    ratio = _speed_up(result, rival)
    if rival.seconds is None:
        return f"none: {rival.reason}"
    failed = f", with {rival.failed} rounds below quorum" if rival.failed else ""
    times = f", {ratio:.2f} × ours" if ratio else ""
    return f"{show_seconds(rival.seconds)} for the same rounds{times}{failed}"
