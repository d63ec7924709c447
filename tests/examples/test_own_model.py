"""The example that brings its own model, data and loss does what it says."""

import importlib.util
import re
from pathlib import Path

import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_model_learns_with_different_cuts_in_a_round(capsys):
    example = load("own_model")
    assert not isinstance(example.Net(), torch.nn.Sequential)
    example.main()
    layers, *rounds = capsys.readouterr().out.splitlines()
    assert int(layers.split()[0]) >= 3
    assert len(rounds) == 8
    accuracies = [int(re.search(r"(\d+)%", line)[1]) for line in rounds]
    assert accuracies[-1] >= 90
    assert len(set(re.findall(r"phone-\d (\d+)", "\n".join(rounds)))) > 1
