"""The wheel has all that it needs, and works where the repository is not."""

import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling is not installed: pip install 'cutwater[dev]'"
)
def test_the_wheel_of_the_sdist_plans_without_extras_and_trains_verifies_and_reports_on_its_own():
    command = [sys.executable, ROOT / "scripts" / "wheel.py", "--reuse", "--short"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A round takes 391 s" in done.stdout
    assert re.search(r"^cutwater-.*\.tar\.gz$", done.stdout, re.MULTILINE)
    assert re.search(r"^without matplotlib, flwr, grpc, starlette, uvicorn$", done.stdout, re.MULTILINE)
    assert "a round of the demo was trained, verified and reported" in done.stdout


def test_the_version_is_the_same_wherever_it_is_written():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
