"""The names a user types: adding or losing one is a decision, not an accident."""

import ast
import importlib
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
    "Layered",
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
    "load_run",
    "load_scenario",
    "measure",
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
    "Task",
    "Traffic",
    "Trainer",
    "Update",
    "VirtualClock",
    "assemble",
    "latency",
    "load_newest",
    "register",
    "rounds",
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
