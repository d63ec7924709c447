"""`cutwater verify`: are the weights the same bits wherever the model is cut?"""

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cutwater.base.errors import RunError
from cutwater.cli.common import Json, PlannerOptions, ScenarioFile, planner_options, print_json, progress, say
from cutwater.cli.common import out as console
from cutwater.cli.train import Workers, load_study

if TYPE_CHECKING:
    from cutwater.federate.study import Study
    from cutwater.federate.verify import Check
    from cutwater.serve.loopback import LoopbackTrainer


def verify(
    scenario: ScenarioFile,
    *,
    rounds: Annotated[int, typer.Option(help="How many rounds to train.", min=1)] = 3,
    planner: Annotated[str, typer.Option(help="Whose cuts to try.")] = "exact",
    option: PlannerOptions = None,
    workers: Workers = None,
    json_: Json = False,
) -> None:
    """Train the same rounds as FedAvg, with the plan's cuts and with random cuts: do the bits agree?

    Where labels stay on devices, cuts are pairs, and random ones are also trained over a real stream on this
    machine.

    Lossy codecs in [wire] give other bits than FedAvg's. There the plan's rounds are trained in process and
    over a real stream on this machine, and these two are compared.

    Exit codes: 0 they do, 1 they don't, 2 a mistake in what was asked.

    Example: cutwater verify examples/digits.toml --rounds 5
    """
    options = planner_options(option)
    _, study = load_study(scenario, planner=planner, options=options, rounds=rounds)
    checks = _run(study, rounds, workers)
    good = all(check.agrees for check in checks)
    if json_:
        print_json(
            {
                "scenario": str(scenario),
                "lossy": list(study.wires.lossy),
                "agrees": good,
                "rounds": [check.to_json() for check in checks],
            }
        )
    else:
        _show(checks, study)
    if not good:
        raise typer.Exit(1)


def _run(study: "Study", rounds: int, workers: int | None) -> "list[Check]":
    from cutwater.execute.local import LocalTrainer, sensible_workers
    from cutwater.federate.verify import verify as check_rounds
    from cutwater.federate.verify import verify_lossy

    count = sensible_workers(study) if workers is None else workers
    with ExitStack() as stack:
        trainer = stack.enter_context(closing(LocalTrainer(study.job(), study.test(), count)))
        if study.wires.lossy:
            found = verify_lossy(study, trainer, stack.enter_context(closing(_stream(study))), rounds)
        else:
            stream = stack.enter_context(closing(_stream(study))) if _labels_stay(study) else None
            found = check_rounds(study, trainer, rounds, stream=stream)
        bar = stack.enter_context(progress())
        ways = "two" if study.wires.lossy else "four" if _labels_stay(study) else "three"
        return list(bar.track(found, rounds, description=f"training each round in {ways} ways"))


def _labels_stay(study: "Study") -> bool:
    return any(study.session.of(client).labels == "stay" for client in study.fleet)


def _stream(study: "Study") -> "LoopbackTrainer":
    try:
        from cutwater.serve.loopback import LoopbackTrainer
    except ImportError as error:
        what = "labels that stay on devices"
        if study.wires.lossy:
            what = f"lossy codecs in [wire] ({', '.join(study.wires.lossy)})"
        raise RunError(f"{what} are verified over a stream: pip install 'cutwater[flower]'") from error
    return LoopbackTrainer(study)


def _show(checks: "list[Check]", study: "Study") -> None:
    from cutwater.plan.places import cut_text

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Round", justify="right")
    for name in checks[0].digests:
        table.add_column(escape(name), no_wrap=True)
    table.add_column("Bits")
    for check in checks:
        table.add_row(
            str(check.round),
            *(digest[:16] for digest in check.digests.values()),
            "agree" if check.agrees else "DIFFER",
        )
    console.print(table)
    if study.wires.lossy:
        codecs = ", ".join(study.wires.lossy)
        text = (
            f"lossy codecs ({codecs}) give other bits than FedAvg's: compared are the rounds of the plan in "
            "process and over a stream"
        )
        say(text)
    for name in list(checks[0].cuts)[1:]:
        used = {cut for check in checks for cut in check.cuts[name]}
        pairs = sorted(cut for cut in used if isinstance(cut, tuple))
        shown = [*map(str, sorted(used - {*pairs})), *(cut_text(*pair) for pair in pairs)]
        layers = len(study.model)
        console.print(f"{name}: cuts {', '.join(shown)} of {layers}", style="dim", markup=False)
    wrong = [check for check in checks if not check.agrees]
    if not wrong:
        console.print(f"all {len(checks)} rounds agree bit for bit")
    for check in wrong[:1]:
        for name, tensor in check.differs.items():
            text = f"round {check.round}: {name} gives another {tensor!r} than {check.reference}"
            say(text)
