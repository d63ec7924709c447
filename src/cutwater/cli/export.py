"""`cutwater export`: a finished run's model as a file."""

from pathlib import Path
from typing import Annotated

import typer

from cutwater.base.errors import RunError, suggest
from cutwater.cli.common import Json, print_json, say
from cutwater.cli.finished_run import BestOption, RunFolder, kept_model, kept_study, which


def export(
    run: RunFolder,
    *,
    out: Annotated[Path, typer.Option(help="Where to write it.")],
    best: BestOption = False,
    format_: Annotated[
        str,
        typer.Option("--format", help="safetensors (weights), torch-export (a program) or adapter (peft's)."),
    ] = "safetensors",
    json_: Json = False,
) -> None:
    """Write the model that a run has kept to a file.

    safetensors holds the weights by the model's own names, as load_state_dict takes them. torch-export is a
    program of torch.export (torch.export.load), which needs neither the model's code nor this package; it is
    built from the run's scenario. adapter is a folder that PeftModel.from_pretrained reads, of a model that
    peft has put an adapter around (LoRA, say).

    Example: cutwater export runs/digits --out model.safetensors --best
    """
    from cutwater.execute.finished import FORMATS
    from cutwater.execute.finished import export as write

    if format_ not in FORMATS:
        raise RunError(f"format {format_!r} can't be written: {suggest(format_, FORMATS)}")
    model = kept_model(run, best)
    study = None if format_ == "safetensors" else kept_study(run)
    adapter = format_ == "adapter"
    write(model.weights, out, study=study, adapter=adapter, about={"cutwater.round": str(model.round)})
    if json_:
        print_json({"run": str(run), "round": model.round, "best": best, "out": str(out), "format": format_})
    else:
        say(f"The model {which(model)}, is {out} ({format_}).")
