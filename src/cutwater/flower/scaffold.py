"""A Flower app around a scenario: a few lines of one's own that Flower's tools run."""

import re
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path

from cutwater.base.errors import RunError
from cutwater.base.toml import toml_value
from cutwater.flower.run_config import RunConfig

PACKAGE = "cutwater_app"

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
description = "Split-federated learning of one scenario on Flower"
license = {{ file = "LICENSE" }}
# Cutwater is not among them: it is installed beside Flower, at the server and on every node, and Flower would
# otherwise fetch another copy of it, and of torch, for every run.
dependencies = ["flwr>=1.41"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]

[tool.flwr.app]
publisher = "{publisher}"
fab-format-version = 1
flwr-version-target = "{flwr}"

[tool.flwr.app.components]
serverapp = "{package}.server:app"
clientapp = "{package}.client:app"

# What  flwr run . --run-config "planner='fedavg' rounds=5"  may change.
[tool.flwr.app.config]
{config}
"""

_SERVER = '''\
"""The server of this app; see scenario.toml."""

from pathlib import Path

from cutwater.flower.server_app import server_app

app = server_app(Path(__file__).parent)
'''

_CLIENT = '''\
"""A device of this app; its node config says which: --node-config 'client="c1"'.

To train on the device's own data, write a function of the client's name that returns a dataset of
(input, label), and name it in the node config: --node-config 'client="c1" loader="my_package.data:load"'.
"""

from pathlib import Path

from cutwater.flower.client_app import client_app

app = client_app(Path(__file__).parent)
'''

_README = """\
# {name}

    flwr run . --federation-config num-supernodes={clients} --stream     # simulation, a node for each client
    flwr run . my-superlink --stream                             # deployment, see Flower's guide

Cutwater must be installed beside Flower, at the server and on every node.
The scenario is in `{package}/scenario.toml`; the run config is in `pyproject.toml`.
"""


def scaffold(folder: str | Path, scenario: str, clients: int) -> Path:
    """Write the app into a new or empty folder; ``scenario`` is the text of its scenario file."""
    root = Path(folder)
    if root.is_file() or (root.is_dir() and any(root.iterdir())):
        raise RunError(f"{root} is not empty: name a new folder for the app")
    title = re.sub(r"[^a-z0-9]+", "-", root.resolve().name.lower()).strip("-") or "cutwater-app"
    values = {
        "name": title,
        "clients": clients,
        "package": PACKAGE,
        "publisher": "cutwater",
        "flwr": version("flwr"),
        "config": _config(),
    }
    package = root / PACKAGE
    files = {
        root / "pyproject.toml": _PYPROJECT.format(**values),
        root / "README.md": _README.format(**values),
        root / "LICENSE": "All rights reserved, until you put your own license here.\n",
        package / "__init__.py": '"""A Flower app made by `cutwater scaffold`."""\n',
        package / "server.py": _SERVER,
        package / "client.py": _CLIENT,
        package / "scenario.toml": scenario,
    }
    try:
        package.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{root} can't be written: {error.strerror or error}") from error
    return root


def _config() -> str:
    return "\n".join(
        f"{each.name.replace('_', '-')} = {toml_value(getattr(RunConfig(), each.name))}"
        for each in fields(RunConfig)
    )
