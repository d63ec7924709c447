"""`cutwater scenario`: the reference, the JSON Schema, and the check of a file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutwater.cli.main import app
from cutwater.scenario.sections import SECTIONS, json_schema

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(*words):
    return CliRunner().invoke(app, ["scenario", *map(str, words)], env={"COLUMNS": "160"})


def cutwater(*words):
    """As the command line runs it, with sentences instead of tracebacks."""
    command = [sys.executable, "-m", "cutwater", "scenario", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_all_sections_and_keys_are_shown():
    shown = run().output
    for section in SECTIONS.values():
        assert section.title in shown
        assert all(each.key in shown for each in section.schema)


def test_one_section_alone_is_shown_with_defaults_and_what_is_allowed():
    shown = run("session").output
    assert "a whole number from 1 to 1,000,000,000" in shown
    assert "32" in shown
    assert "[train]" not in shown


def test_the_reference_as_json():
    found = json.loads(run("--json").output)
    assert list(found) == ["top", *SECTIONS]
    assert found["train"][0] == {
        "key": "rounds",
        "default": "`60`",
        "allowed": "a whole number of at least 1",
        "meaning": "rounds of global training",
    }
    assert list(json.loads(run("data", "--json").output)) == ["data"]


def test_the_json_schema_is_printed():
    assert json.loads(run("--json-schema").output) == json_schema()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_an_example_is_without_mistakes(path):
    done = run("--check", path)
    assert done.exit_code == 0
    assert json.loads(run("--check", path, "--json").output)["mistakes"] == []


def test_every_mistake_is_one_sentence_and_the_exit_code_is_2(tmp_path):
    path = tmp_path / "bad.toml"
    text = (EXAMPLES / "digits.toml").read_text()
    path.write_text(text.replace("rounds = 15", "round = 15").replace("lr = 0.05", "lr = 0"))
    done = cutwater("--check", path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        line for line in done.stderr.splitlines() if line.startswith(f"cutwater: {path}: [train] ")
    ]
    assert len(done.stderr.splitlines()) == 2
    assert "has an unknown key 'round': did you mean 'rounds'?" in done.stderr
    assert "lr is 0, but must be a number above 0 and at most 1e+30" in done.stderr
    assert len(json.loads(run("--check", path, "--json").output)["mistakes"]) == 2


def test_a_file_that_is_not_there_and_a_section_that_is_not_are_one_sentence(tmp_path):
    for words in (("--check", tmp_path / "none.toml"), ("trian",)):
        done = cutwater(*words)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
    assert "did you mean 'train'?" in done.stderr


def test_the_reference_needs_no_torch():
    code = (
        "import sys; from cutwater.scenario.sections import json_schema; json_schema();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
