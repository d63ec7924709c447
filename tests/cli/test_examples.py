"""`cutwater examples`: what it copies, and what it refuses."""

import json
from pathlib import Path

from typer.testing import CliRunner

from cutwater.base.errors import RunError
from cutwater.cli.main import app

ROOT = Path(__file__).parents[2]


def test_the_examples_are_those_of_the_repository(tmp_path):
    result = CliRunner().invoke(app, ["examples", str(tmp_path / "here"), "--json"])
    assert result.exit_code == 0
    files = json.loads(result.output)["files"]
    assert {"demo.sh", "digits.toml", "naive.py", "notebook.ipynb"} <= set(files)
    for name in files:
        assert (tmp_path / "here" / name).read_bytes() == (ROOT / "examples" / name).read_bytes()


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "mine.toml").write_text("mine")
    result = CliRunner().invoke(app, ["examples", str(tmp_path)])
    assert isinstance(result.exception, RunError)
    assert "is there already and not empty" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
