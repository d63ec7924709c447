"""The names a user types: adding or losing one is a decision, not an accident."""

import ast
import importlib
import re
import runpy
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from types import FunctionType

import pytest

import cutwater
import cutwater.extend

ROOT = Path(__file__).parents[1]
NAMES = [
    "Client",
    "ConditionSettings",
    "CutwaterError",
    "DataSettings",
    "Fleet",
    "Job",
    "JobsPlan",
    "Layered",
    "Pad",
    "Plan",
    "Problem",
    "Profile",
    "Round",
    "Scenario",
    "Server",
    "Session",
    "Study",
    "TrainSettings",
    "TrainedRun",
    "build",
    "evaluate",
    "export",
    "from_datasets",
    "join",
    "layered",
    "load_jobs",
    "load_run",
    "load_scenario",
    "measure",
    "plan_jobs",
    "predict",
    "profile_layered",
    "profile_model",
    "run",
    "solve",
    "study_of",
]
EXTENDING = [
    "Aggregator",
    "Arrival",
    "BadUpdate",
    "Codec",
    "CodecError",
    "Collection",
    "Condition",
    "Executor",
    "LocalTrainer",
    "Lost",
    "NOTHING",
    "Orders",
    "Partition",
    "Phases",
    "Progress",
    "Record",
    "Result",
    "Score",
    "Size",
    "Task",
    "Traffic",
    "Trainer",
    "Update",
    "VirtualClock",
    "Wires",
    "assemble",
    "latency",
    "load_newest",
    "register",
    "rounds",
    "server_work",
    "start",
    "train",
    "verify",
]


def test_the_names_are_these():
    assert cutwater.__all__ == NAMES
    assert cutwater.extend.__all__ == EXTENDING


@pytest.mark.parametrize("name", [*NAMES, *(f"extend.{name}" for name in EXTENDING)])
def test_every_name_is_there_and_documented(name):
    found = attrgetter(name)(cutwater)
    assert found.__doc__
    if isinstance(found, type | FunctionType):
        assert getattr(importlib.import_module(found.__module__), found.__name__) is found


@pytest.mark.parametrize("module", [cutwater, cutwater.extend], ids=lambda module: module.__name__)
def test_type_checkers_see_the_names_that_are_there(module):
    """The imports that only a type checker follows are those of the table that Python follows."""
    seen = {}
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("cutwater."):
            seen |= {alias.asname: node.module for alias in node.names if alias.asname}
    assert seen == module._HOME


def test_the_page_of_names_is_fresh():
    script = runpy.run_path(str(ROOT / "scripts" / "api_page.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](), "run make reference"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'solver'"):
        _ = cutwater.solver


def test_importing_cutwater_imports_neither_torch_nor_numpy():
    heavy = "{'torch', 'numpy', 'flwr', 'matplotlib'}"
    code = f"import sys, cutwater, cutwater.extend; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def imported(text):
    """Modules of the package that Python within a text imports."""
    return set(re.findall(r"^ *(?:from|import) (cutwater[\w.]*)", text, re.MULTILINE))


SHOWN = [
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*"))
    if path.suffix in (".md", ".py", ".ipynb")
]


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_examples_import_public_names_alone(path):
    text = path.read_text(encoding="utf-8").replace('"from cutwater', "from cutwater")
    assert imported(text) <= {"cutwater", "cutwater.extend"}
