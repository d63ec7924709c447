"""A regression from data to report: its loss and its metrics, and not a word of accuracy."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cutwater.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def cutwater(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["cutwater", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        assert not exit_.value.code, printed.err
        return printed.out, printed.err

    return call


def test_a_regression_from_data_to_report(cutwater, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # its module is found beside the scenario
    run, said = tmp_path / "run", []

    def step(*arguments):
        said.extend(cutwater(*arguments))
        return said[-2]

    scenario = EXAMPLES / "regression.toml"
    step("data", scenario)
    step("train", scenario, "--run", run)
    step("runs", run, "--plot", "curves.svg")
    step("evaluate", run, "--best")
    step("export", run, "--best", "--out", "model.safetensors")
    step("report", run)
    assert not [text for text in said if "accuracy" in text.lower()]
    assert "accuracy" not in (tmp_path / "curves.svg").read_text().lower()
    data = json.loads(step("report", run, "--json"))
    assert [one["key"] for one in data["measures"]] == ["mae", "test_loss", "rmse", "within_a_tenth"]
    assert not [one for one in data["measures"] if "accuracy" in one["title"].lower() or one["percent"]]
    assert data["target"]["metric"] == "mae"

    summary = data["runs"][0]["summary"]
    lines = data["runs"][0]["lines"]
    best = min(lines, key=lambda line: line["metrics"]["mae"])
    assert (summary["best"]["metric"], summary["best"]["round"]) == ("mae", best["round"])
    assert best["metrics"]["mae"] < 0.3 * lines[0]["metrics"]["mae"]
    assert all(line["metrics"]["rmse"] ** 2 == pytest.approx(line["test_loss"], rel=1e-5) for line in lines)
    module = sys.modules["regression"]
    model = module.net()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    inputs, labels = module.concrete()[1].tensors
    with torch.inference_mode():
        error = float((model(inputs) - labels).abs().mean())
    assert error == pytest.approx(best["metrics"]["mae"], rel=1e-5)


def test_a_classification_speaks_of_accuracy_first():
    from run_folders import a_line

    from cutwater.report.run_report import measures

    runs = [[a_line(1, accuracy=0.5, test_loss=1.0, metrics={"f1": 0.4})]]
    assert [one["title"] for one in measures(runs)] == ["Test accuracy", "Test loss", "f1"]
    assert re.search("accuracy", str(measures(runs)))
