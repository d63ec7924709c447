"""The names a user types: adding or losing one is a decision, not an accident."""

import importlib
import subprocess
import sys

import pytest

import cutwater

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
    "Scenario",
    "Server",
    "Session",
    "Step",
    "Study",
    "TrainSettings",
    "build",
    "from_datasets",
    "join",
    "layered",
    "load_scenario",
    "measure",
    "profile_layered",
    "profile_model",
    "run",
    "solve",
    "study_of",
]


def test_the_names_are_these():
    assert cutwater.__all__ == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_documented(name):
    found = getattr(cutwater, name)
    assert found.__doc__
    assert getattr(importlib.import_module(found.__module__), found.__name__) is found


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'solver'"):
        _ = cutwater.solver


def test_importing_cutwater_imports_neither_torch_nor_numpy():
    code = "import sys, cutwater; print(sorted({'torch', 'numpy', 'flwr', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
