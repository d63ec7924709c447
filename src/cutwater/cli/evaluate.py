"""`cutwater evaluate`: scores of a finished run's model."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cutwater.cli.common import Json, err, print_json, results_table, say
from cutwater.cli.common import out as console
from cutwater.cli.finished_run import BestOption, RunFolder, kept_model, kept_study, which

if TYPE_CHECKING:
    from cutwater.federate.tested import Tested
    from cutwater.runs.checkpoint import KeptModel


def evaluate(
    run: RunFolder,
    *,
    data: Annotated[
        str | None,
        typer.Option(
            help=r"Another source, as of \[data]: its test set is used.", show_default="the scenario's"
        ),
    ] = None,
    best: BestOption = False,
    json_: Json = False,
) -> None:
    """Score the model that a run has kept: test loss, accuracy where labels are classes, and its metrics.

    The scenario's own test set gives the numbers of the round that the model is of, bit for bit.

    Example: cutwater evaluate runs/digits --best
    """
    from dataclasses import asdict

    from cutwater.execute.finished import evaluate as score
    from cutwater.execute.finished import other_data

    model = kept_model(run, best)
    study = kept_study(run)
    found = score(study, model.weights, data=None if data is None else other_data(run, data, err.print))
    if json_:
        print_json(
            {
                "run": str(run),
                "round": model.round,
                "best": best,
                "data": data or study.data.name,
                "scores": found.values,
                "local_tests": {name: asdict(spread) for name, spread in found.spreads.items()},
            }
        )
    else:
        _show(model, data or study.data.name, found)


def _show(model: "KeptModel", source: str, found: "Tested") -> None:
    from cutwater.federate.record import score_name, value_text

    more = ("Clients' mean", "Least", "Most") if found.spreads else ()
    table = results_table(("Score",), ("Test set", *more))
    whole = found.values
    for name in dict.fromkeys((*whole, *found.spreads)):
        spread = found.spreads.get(name)
        over = [spread.mean, spread.least, spread.most] if spread else [None] * len(more)
        texts = ["-" if one is None else value_text(name, one) for one in (whole.get(name), *over)]
        table.add_row(escape(score_name(name)), *texts)
    console.print(table)
    say(f"The model {which(model)}, on {source}.", style="dim")
