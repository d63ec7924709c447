"""`cutwater examples`: the examples that come with the package, as files to run and change."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

from cutwater.base.errors import RunError
from cutwater.base.folders import examples_folder
from cutwater.cli.common import Json, print_json, say

KINDS = (".toml", ".py", ".sh", ".csv", ".ipynb")


def examples(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder to copy them into.")] = Path(
        "examples"
    ),
    *,
    json_: Json = False,
) -> None:
    """Copy the examples that come with Cutwater into a folder: scenarios, programs, a notebook and the demo.

    The commands in the documentation name them as examples/digits.toml and so on, so that they work as they
    stand below the folder that holds this one.

    Example: cutwater examples && cutwater plan examples/digits.toml
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is there already and not empty: name a folder that is new or empty")
    files = sorted(path for path in examples_folder().iterdir() if path.suffix in KINDS)
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy(path, folder / path.name)
    if json_:
        print_json({"folder": str(folder), "files": [path.name for path in files]})
        return
    say(f"{folder} holds {', '.join(path.name for path in files)}")
