"""The scaffolded app is one that Flower's own tools accept, and run configs are checked."""

import re
from pathlib import Path

import pytest
from flower_cases import write_four
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate

from cutwater.base.errors import CutwaterError, RunError
from cutwater.flower.client_app import client_name
from cutwater.flower.run_config import RunConfig
from cutwater.flower.scaffold import scaffold


def test_flower_accepts_and_packs_the_app(tmp_path):
    root = scaffold(tmp_path / "My_app 1", "# a scenario", 3)
    config, warnings = load_and_validate(root / "pyproject.toml")
    assert warnings == []
    assert config["project"]["name"] == "my-app-1"
    assert b"scenario.toml" in build_fab_from_disk(root)
    app = config["tool"]["flwr"]["app"]
    assert RunConfig.of(app["config"], root / "cutwater_app") == RunConfig(
        scenario=str(root / "cutwater_app" / "scenario.toml")
    )
    assert app["components"] == {
        "serverapp": "cutwater_app.server:app",
        "clientapp": "cutwater_app.client:app",
    }


def test_flower_need_fetch_nothing_for_the_app_but_what_runs_it_already(tmp_path):
    """Flower installs an app's dependencies anew for every run; one that no index has would end the run."""
    root = scaffold(tmp_path / "app", "# a scenario", 3)
    config, _ = load_and_validate(root / "pyproject.toml")
    assert [re.split(r"\W", each)[0] for each in config["project"]["dependencies"]] == ["flwr"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(RunError, match="not empty"):
        scaffold(tmp_path, "", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"plannner": "exact"}, "did you mean 'planner'"),
        ({"rounds": "2"}, "the run config rounds is '2', but must be a whole number"),
        ({"emulate": 1}, "the run config emulate is 1, but must be true or false"),
    ],
)
def test_a_run_config_that_makes_no_sense_is_refused_by_key(config, words):
    with pytest.raises(RunError, match=words):
        RunConfig.of(config, Path("/"))


def test_a_node_is_named_by_its_config_or_by_its_place_in_the_fleet(tmp_path):
    given = RunConfig(scenario=str(write_four(tmp_path)))
    assert client_name({"client": "x"}, given) == "x"
    assert client_name({"partition-id": 2, "num-partitions": 4}, given) == "tablet"
    for node in ({}, {"partition-id": 4}, {"partition-id": -1}, {"partition-id": "1"}):
        with pytest.raises(CutwaterError):
            client_name(node, given)
