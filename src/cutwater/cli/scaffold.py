"""`cutwater scaffold`: a Flower app around a scenario."""

from pathlib import Path
from typing import Annotated

import typer

from cutwater.cli.common import say

_EXAMPLE = """\
# Three devices learn handwritten digits; needs no download. Change what you like.

[model]
name = "cnn"
input = "1x8x8"
classes = 10

[server]
compute = "20 GFLOPS"

[session]
steps = 10
batch_size = 16

[[client]]
name = "c1"
compute = "0.5 GFLOPS"
rate = "2 MB/s"
samples = 200

[[client]]
name = "c2"
compute = "2 GFLOPS"
rate = "1 MB/s"
samples = 300

[[client]]
name = "c3"
compute = "20 GFLOPS"
rate = "20 MB/s"
samples = 400

[data]
source = "digits"

[train]
rounds = 3
lr = 0.05
momentum = 0.9
seed = 1
"""


def scaffold(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder.")],
    scenario: Annotated[
        Path | None, typer.Option(help="The scenario of the app; a small example if not given.")
    ] = None,
) -> None:
    """Write a small Flower app that trains a scenario, to be run with Flower's own tools.

    Example: cutwater scaffold my-app --scenario examples/fleet.toml
    """
    from cutwater.flower import need_flower

    need_flower()
    from cutwater.flower.scaffold import PACKAGE
    from cutwater.flower.scaffold import scaffold as write
    from cutwater.scenario.file import load_scenario

    text, clients = _EXAMPLE, _EXAMPLE.count("[[client]]")
    if scenario is not None:
        # What can't be read is better refused here than on every node.
        clients = len(load_scenario(scenario).fleet)
        text = scenario.read_text(encoding="utf-8")
    root = write(folder, text, clients)
    say(f"{root} is ready: its scenario is in {PACKAGE}/scenario.toml")
    say(
        f"Simulate it on this machine with  "
        f"flwr run {root} --federation-config num-supernodes={clients} --stream"
    )
