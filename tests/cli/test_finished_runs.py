"""`cutwater evaluate`, `predict`, `export` and `runs --target`, with the model that a run has kept."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from cutwater.cli.main import main
from cutwater.model import zoo
from cutwater.runs import metrics

SCENARIO = """
[model]
name = "mlp"
input = "1x8x8"
classes = 10

[server]
compute = "1 GFLOPS"

[session]
steps = 3
batch_size = 8

[fleet]
clients = 4
compute = ["0.5 MFLOPS", "40 MFLOPS"]
rate = ["50 kB/s", "400 kB/s"]
samples = [40, 90]
seed = 3

[train]
rounds = 3
lr = 0.1
seed = 7
metrics = ["own_metric:sureness"]
keep_best = "max sureness"
"""
METRIC = """
def sureness(outputs, labels):
    return outputs.softmax(dim=1).amax(dim=1).mean()
"""


@pytest.fixture
def cutwater(monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["cutwater", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose metric is a module beside the scenario, trained from another folder."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "scenario.toml").write_text(SCENARIO)
    (folder / "own_metric.py").write_text(METRIC)
    before = sys.argv
    sys.argv = ["cutwater", "train", str(folder / "scenario.toml"), "--run", str(folder / "run")]
    try:
        with pytest.raises(SystemExit) as exit_:
            main()
    finally:
        sys.argv = before
    assert not exit_.value.code
    return folder


def lines(folder):
    return metrics.read(folder / "run" / "metrics.jsonl")


def test_the_newest_model_has_the_scores_of_the_last_round(cutwater, made):
    code, out, _ = cutwater("evaluate", made / "run", "--json")
    found, last = json.loads(out), lines(made)[-1]
    assert code == 0
    assert found["scores"] == last.scores
    assert found["scores"].keys() == {"accuracy", "test_loss", "sureness"}
    assert found["local_tests"]["accuracy"]["mean"] == last.local_tests["accuracy"].mean
    _, shown, _ = cutwater("evaluate", made / "run")
    assert f"{last.accuracy:.1%}".replace("%", " %") in shown
    assert "The model of round 3, the newest, on digits." in shown


def test_the_best_model_has_the_scores_of_its_round(cutwater, made):
    _, out, _ = cutwater("evaluate", made / "run", "--best", "--json")
    found, best = json.loads(out), lines(made)[-1].best
    assert found["round"] == best.round
    assert found["scores"]["sureness"] == best.value
    assert found["scores"] == lines(made)[best.round - 1].scores


def test_other_data_is_scored_by_its_own_test_set(cutwater, made):
    _, out, _ = cutwater("evaluate", made / "run", "--data", "digits", "--json")
    assert json.loads(out)["scores"] == lines(made)[-1].scores
    code, _, err = cutwater("evaluate", made / "run", "--data", "digit")
    assert code == 2
    assert "did you mean 'digits'" in err


def test_exported_weights_load_strictly_into_the_users_own_model(cutwater, made, tmp_path):
    code, out, _ = cutwater("export", made / "run", "--out", tmp_path / "model.safetensors")
    assert code == 0
    assert "The model of round 3, the newest, is" in out
    model = zoo.build("mlp", input="1x8x8", classes=10)
    model.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=True)
    cutwater("predict", made / "run", "--out", tmp_path / "outputs.npy")
    images = digits()
    with torch.inference_mode():
        expected = model.eval()(images).numpy()
    assert np.allclose(np.load(tmp_path / "outputs.npy"), expected, atol=1e-6)


def digits():
    from cutwater.data.sources import load

    data = load("digits")
    return data.test.batch(np.arange(len(data.test))).inputs[0]


def test_an_exported_program_needs_no_code_and_takes_any_number_of_samples(cutwater, made, tmp_path):
    cutwater("export", made / "run", "--best", "--out", tmp_path / "model.pt2", "--format", "torch-export")
    program = torch.export.load(tmp_path / "model.pt2").module()
    cutwater("predict", made / "run", "--best", "--out", tmp_path / "outputs.csv")
    told = np.loadtxt(tmp_path / "outputs.csv", delimiter=",")
    for count in (1, 5, len(told)):
        assert np.allclose(program(digits()[:count]).detach().numpy(), told[:count], atol=1e-5)


def test_predictions_of_a_file_are_those_of_the_same_samples(cutwater, made, tmp_path):
    from cutwater.data.sources import load

    raw = load("digits").test.inputs[:7]
    np.save(tmp_path / "some.npy", raw)
    np.savez(tmp_path / "some.npz", raw)
    cutwater("predict", made / "run", "--out", tmp_path / "all.npy")
    for name in ("some.npy", "some.npz"):
        code, out, _ = cutwater(
            "predict", made / "run", "--input", tmp_path / name, "--out", tmp_path / "few.npy", "--json"
        )
        assert code == 0
        assert json.loads(out)["shape"] == [7, 10]
        assert np.allclose(np.load(tmp_path / "few.npy"), np.load(tmp_path / "all.npy")[:7], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("export", "--out", "x.bin", "--format", "onnx"), "format 'onnx' can't be written: known are"),
        (("predict", "--out", "x.txt"), "outputs can't be written as 'x.txt': end it in .npy or .csv"),
        (
            ("predict", "--out", "x.csv", "--input", "odd.npy"),
            "2 samples of 3, but must be one or more of 1x8x8",
        ),
        (("predict", "--out", "x.csv", "--input", "objects.npy"), "objects.npy holds no plain array"),
        (("predict", "--out", "x.csv", "--input", "none.npy"), "none.npy can't be read"),
    ],
)
def test_what_can_not_be_done_is_one_sentence(cutwater, made, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    np.save("odd.npy", np.zeros((2, 3)))
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    command, *more = arguments
    code, out, err = cutwater(command, made / "run", *more)
    assert (code, out) == (2, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_a_folder_without_a_run_is_refused_by_all(cutwater, tmp_path):
    for command in (("evaluate",), ("export", "--out", "x"), ("predict", "--out", "x.npy")):
        code, _, err = cutwater(command[0], tmp_path, *command[1:])
        assert code == 2
        assert "holds no checkpoint" in err


def test_runs_are_compared_at_any_metric_in_its_direction(cutwater, made):
    values = [line.test_loss for line in lines(made)]
    _, out, _ = cutwater("runs", made / "run", "--target", f"test_loss<={values[1]}", "--json")
    found = json.loads(out)
    assert found["target"] == {"metric": "test_loss", "better": "min", "value": values[1]}
    first = next(k for k, value in enumerate(values, 1) if value <= values[1])
    assert found["runs"][0]["time_to_target"]["round"] == first
    _, out, _ = cutwater("runs", made / "run", "--target", "sureness>=2")
    assert "To 2" in out
    assert "sureness" in out
    code, _, err = cutwater("runs", made / "run", "--target", "sureness")
    assert code == 2
    assert "target 'sureness' can't be read" in err


def test_going_on_with_a_misspelt_folder_is_refused(cutwater, made):
    code, _, err = cutwater("train", made / "scenario.toml", "--run", made / "rnu", "--resume")
    assert code == 2
    assert "rnu does not exist" in err.replace("\n", "")
    assert "leave --resume out to begin it" in err.replace("\n", " ")
    assert not (made / "rnu").exists()
