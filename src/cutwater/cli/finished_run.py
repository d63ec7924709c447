"""What the commands share that work with a finished run's model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cutwater.cli.common import BUILDING, err
from cutwater.cli.rounds import say_notes

if TYPE_CHECKING:
    from cutwater.federate.study import Study
    from cutwater.runs.checkpoint import KeptModel

RunFolder = Annotated[Path, typer.Argument(help="The folder of a run, as cutwater train leaves it.")]
BestOption = Annotated[
    bool, typer.Option("--best", help=r"The best model, which keep_best in \[train] keeps, not the newest.")
]


def kept_model(run: Path, best: bool) -> "KeptModel":
    """The model of a run; what is damaged is said."""
    from cutwater.runs.checkpoint import load_run

    found = load_run(run, best=best)
    say_notes(found.notes)
    return found


def kept_study(run: Path) -> "Study":
    """The study of a run, built anew from its scenario."""
    from cutwater.execute.finished import study_of_run

    with err.status(BUILDING):
        return study_of_run(run, say=err.print)


def which(model: "KeptModel") -> str:
    """A model of a run for people."""
    if model.best is None:
        return f"of round {model.round}, the newest"
    return f"of round {model.round}, the best by {model.best.metric}"
