"""The examples of fine-tuning, of tokens and of a segmentation do what they say."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutwater.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def call(monkeypatch, capsys, *arguments) -> str:
    monkeypatch.setattr(sys, "argv", ["cutwater", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        main()
    printed = capsys.readouterr()
    assert not exit_.value.code, printed.err
    return printed.out + printed.err


def test_a_script_of_a_hugging_face_user_learns(capsys):
    pytest.importorskip("transformers")
    trained = load("huggingface").main(rounds=2, samples=96)
    losses = [record.test_loss for record in trained.records]
    assert losses[1] < losses[0]
    assert "f1" in capsys.readouterr().out


@pytest.mark.parametrize("ffa", [False, True])
def test_adapters_alone_travel_and_peft_reads_them(capsys, ffa):
    pytest.importorskip("peft")
    trained = load("lora").main(rounds=2, ffa=ffa)
    first, second = trained.records
    assert second.test_loss < first.test_loss
    assert second.bytes_down <= first.bytes_down
    assert "peft reads it: PeftModel" in capsys.readouterr().out


def test_a_large_model_is_planned_without_its_memory(capsys):
    pytest.importorskip("peft")
    plan = load("llama").main(tokens=16, layers=3, width=256, inner=512, heads=4, words=1000)
    assert len(plan.names) == 3
    said = capsys.readouterr().out
    assert "can hold" in said
    assert said.index("the first round") < said.index("a later round")


@pytest.mark.long
def test_seven_billion_parameters_are_planned_within_two_gibibytes():
    """It takes most of a minute of one core, so that it is tried where that is no matter."""
    pytest.importorskip("peft")
    code = (
        "import resource, runpy\n"
        f"runpy.run_path({str(EXAMPLES / 'llama.py')!r}, run_name='__main__')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "6,742,609,920 parameters" in done.stdout
    assert "a later round:" in done.stdout
    assert int(done.stdout.split()[-1]) * 1024 < 2 * 2**30


@pytest.mark.parametrize(("name", "metric"), [("tokens", "F1"), ("segmentation", "overlap")])
def test_from_data_to_report(name, metric, monkeypatch, capsys, tmp_path):
    if name == "tokens":
        pytest.importorskip("transformers")
    run, scenario = tmp_path / "run", EXAMPLES / f"{name}.toml"
    said = call(monkeypatch, capsys, "train", scenario, "--run", run)
    said += call(monkeypatch, capsys, "report", run)
    data = json.loads(call(monkeypatch, capsys, "report", run, "--json"))
    keys = [one["key"] for one in data["measures"]]
    # Of words that are classes there is an accuracy; of a mask there is none.
    assert ("accuracy" in keys) == (name == "tokens")
    assert metric in keys
    assert name == "tokens" or "accuracy" not in said.lower()
    lines = data["runs"][0]["lines"]
    assert lines[-1]["test_loss"] < lines[0]["test_loss"]
