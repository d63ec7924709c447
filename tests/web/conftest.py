"""A real server with real runs in its folder, for all tests of the pages."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from running import SCENARIO, Running, start
from typer.testing import CliRunner

from cutwater.cli.main import app


@pytest.fixture(scope="session")
def scenario_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("scenario") / "scenario.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture(scope="session")
def runs_folder(scenario_file, tmp_path_factory) -> Path:
    """A folder with two real runs."""
    folder = tmp_path_factory.mktemp("runs")
    for name, planner in (("sfl", "exact"), ("study/fedavg", "fedavg")):
        arguments = [
            "train",
            str(scenario_file),
            "--run",
            str(folder / name),
            "--workers",
            "1",
            "--planner",
            planner,
        ]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="session")
def server(scenario_file, runs_folder) -> Iterator[Running]:
    """The planner page on loopback."""
    yield from start(runs_folder, str(scenario_file), "--runs", str(runs_folder))
