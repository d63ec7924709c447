"""`cutwater examples`: the examples that come with the package, as files to run and change."""

import shutil
from pathlib import Path
from typing import Annotated

import typer

import cutwater
from cutwater.base.errors import RunError
from cutwater.cli.common import out as console
from cutwater.cli.common import print_json

KINDS = (".toml", ".py", ".sh", ".csv", ".ipynb")


def examples(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder to copy them into.")] = Path(
        "examples"
    ),
    *,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy the examples that come with Cutwater into a folder: scenarios, programs, a notebook and the demo.

    The commands in the documentation name them as examples/digits.toml and so on, so that they work as they
    stand below the folder that holds this one.

    Example: cutwater examples && cutwater plan examples/digits.toml
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is there already and not empty: name a folder that is new or empty")
    files = sorted(path for path in _home().iterdir() if path.suffix in KINDS)
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        shutil.copy(path, folder / path.name)
    if json_:
        print_json({"folder": str(folder), "files": [path.name for path in files]})
        return
    console.print(f"{folder} holds {', '.join(path.name for path in files)}", markup=False, soft_wrap=True)


def _home() -> Path:
    """Within the package where it was installed from a wheel, beside it in a checkout."""
    package = Path(cutwater.__file__).parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parents[1] / "examples"
