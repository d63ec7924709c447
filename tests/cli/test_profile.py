"""`cutwater profile`, as people and programs see it."""

import json
import sys

import pytest

from cutwater.base.jsonfile import read_json
from cutwater.cli.main import main
from cutwater.profile.values import Profile

CUT_KEYS = {
    "cut",
    "name",
    "client_bits",
    "client_forward_flops",
    "client_backward_flops",
    "server_forward_flops",
    "server_backward_flops",
    "smashed_bits",
    "client_memory_bits",
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command; exit code, standard output, standard error."""

    def run(line, *more):
        monkeypatch.setattr(sys, "argv", ["cutwater", "profile", *line.split(), *more])
        monkeypatch.setenv("COLUMNS", "100")
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        return exit_.value.code or 0, printed.out, printed.err

    return run


def test_the_papers_model_as_json_with_its_determination_coefficients(run):
    code, out, _ = run("efficientnet_v2_m --input 1x28x28 --classes 10 --count paper --json")
    data = json.loads(out)
    assert (code, data["layers"], len(data["cuts"])) == (0, 59, 59)
    assert all(cut.keys() >= CUT_KEYS for cut in data["cuts"])
    assert set(data["fit"]) == {"alpha", "beta", "kappa", "gamma1", "gamma2", "r2"}
    assert {key: round(value, 3) for key, value in data["fit"]["r2"].items()} == {
        "model": 0.948,
        "compute": 0.966,
        "smashed": 0.906,
    }
    assert round(data["fit"]["r2"]["model"], 4) == 0.9482
    assert round(data["fit"]["r2"]["compute"], 4) == 0.9659
    assert data["fit"]["kappa"] == 4.7
    assert data["worth_choosing"] == [1, 5, 10, 15, 36, 59]


def test_the_saved_profile_is_the_printed_one(run, tmp_path):
    path = tmp_path / "deep" / "profile.json"
    code, out, _ = run("cnn --json --batch-size 8 --optimizer adam", "--out", str(path))
    assert code == 0
    saved = Profile.from_json(read_json(path))
    assert saved == Profile.from_json(json.loads(out))
    assert (saved.batch_size, saved.optimizer, saved.count, len(saved)) == (8, "adam", "exact", 6)


def test_people_see_a_table_with_marked_cuts_and_the_fit(run):
    code, out, _ = run("resnet18 --input 3x32x32")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("resnet18, input 3x32x32: 10 layers, 44.7 MB")
    marked = [line.split()[1:3] for line in lines if line.startswith("● ") and "fastest" not in line]
    assert marked == [["1", "stem"], ["4", "stage2_1"], ["6", "stage3_1"], ["8", "stage4_1"], ["10", "head"]]
    assert any(line.split()[:2] == ["2-3", "stage1"] for line in lines)
    assert sum("R² = " in line for line in lines) == 4
    assert max(map(len, lines)) <= 100


SEES_SMALLER = "BatchNorm sees the parts of a mini-batch: with micro_batches = m in [session]"
FROZEN = """
from torch import nn

class Net(nn.Sequential):
    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self

def net():
    return Net(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
"""


def test_people_are_told_that_micro_batches_make_batch_norm_see_smaller_batches(run, tmp_path, monkeypatch):
    (tmp_path / "frozen_norm.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)
    for model, told in (
        ("resnet18 --input 3x32x32", True),
        ("mlp --input 8", False),
        ("text_transformer --input 16", False),
        ("frozen_norm:net --input 1x4x4", False),  # it stays in eval mode, and uses no batch's statistics
    ):
        code, out, _ = run(model)
        lines = [line for line in out.splitlines() if line.startswith(SEES_SMALLER)]
        assert (code, len(lines)) == (0, told), model
        _, out, _ = run(f"{model} --json")
        assert Profile.from_json(json.loads(out)).batch_norm is told, model
    _, out, _ = run("--help")
    assert "BatchNorm" in out
    assert "micro_batches" in out


def test_a_model_without_products_takes_0_flops(run, tmp_path, monkeypatch):
    (tmp_path / "free_model.py").write_text(
        "from torch import nn\ndef net(): return nn.Sequential(nn.PReLU(), nn.Flatten())\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("free_model:net --input 1x4x4")
    assert code == 0
    assert "a sample takes 0 FLOPs forward, 0 FLOPs backward" in " ".join(out.split())


def test_the_largest_settings_are_counted_and_written(run, tmp_path):
    path = tmp_path / "k.json"
    code, out, _ = run("cnn --count paper --kappa 1e6 --batch-size 1000000000 --json", "--out", str(path))
    assert (code, json.loads(out)["kappa"]) == (0, 1e6)
    assert Profile.from_json(read_json(path)).batch_size == 10**9


def test_model_options_are_passed_on(run):
    options = "--option depth=2 --option width=32 --option vocabulary=100"
    code, out, _ = run(f"text_transformer --input 16 {options} --json")
    data = json.loads(out)
    assert (code, data["layers"]) == (0, 4)
    assert data["cuts"][0]["client_bits"] == 32 * (100 * 32 + 16 * 32)


def test_kappa_is_the_papers_unless_given(run):
    _, out, _ = run("cnn --count paper --kappa 3.4 --json")
    data = json.loads(out)
    assert data["kappa"] == data["fit"]["kappa"] == 3.4
    cut = data["cuts"][2]
    assert cut["client_backward_flops"] == pytest.approx(3.4 * cut["client_forward_flops"])


def test_measuring_adds_kappa_and_speed_with_their_spread(run):
    code, out, _ = run("mlp --input 8 --measure 3 --json")
    measured = json.loads(out)["measured"]
    assert (code, measured["repetitions"], measured["batch_size"]) == (0, 3, 32)
    for amount in ("kappa", "flops", "forward_seconds", "backward_seconds"):
        assert 0 < measured[amount]["low"] <= measured[amount]["median"] <= measured[amount]["high"]
    code, out, _ = run("mlp --input 8 --measure 2")
    assert code == 0
    assert "κ " in out
    assert "GFLOPS" in out or "MFLOPS" in out or "kFLOPS" in out


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_figure_is_written_as_its_ending_says(run, tmp_path, ending, start):
    path = tmp_path / "new" / f"figure.{ending}"
    code, _, _ = run("cnn", "--plot", str(path))
    assert code == 0
    assert path.read_bytes().startswith(start)


def test_a_users_model_comes_from_the_current_folder(run, tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text(
        "from torch import nn\n"
        "def net(input, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(input[1] * input[2], classes))\n"
        "def torn(): return nn.Sequential(nn.Flatten(), nn.Linear(3, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("own_model:net --input 1x4x4 --classes 3 --json")
    assert code == 0
    assert json.loads(out)["cuts"][-1]["client_bits"] == 32 * (16 * 3 + 3)
    code, out, err = run("own_model:torn --input 1x4x4")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "mat1 and mat2 shapes cannot be multiplied" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("resnet81", "did you mean 'resnet18'"),
        ("cnn --input 0x28", "size of zero"),
        ("cnn --input wide", "not a shape"),
        ("cnn --input 28", "takes images"),
        ("text_transformer --input 1x28x28", "takes token ids"),
        ("cnn --classes 0", "classes of cnn is 0, but must be a whole number of at least 1"),
        ("cnn --count fast", "no way of counting"),
        ("cnn --kappa 4.7", "exact count finds it itself"),
        ("cnn --batch-size 0", "batch size is 0, but must be a whole number"),
        ("cnn --batch-size 99999999999999999999999", "be a whole number from 1 to 1,000,000,000"),
        ("cnn --batch-size 9999999999", "be a whole number from 1 to 1,000,000,000"),
        (
            "mlp --batch-size 1000000000 --input 9999x9999x9999",
            "a batch of 1000000000 samples of 9999x9999x9999 can't be made: RuntimeError",
        ),
        ("cnn --count paper --kappa 1e308", "kappa is 1e+308, but must be a finite number above zero"),
        ("cnn --count paper --kappa 1e200", "1,000,000 at most"),
        ("cnn --optimizer lion", "no optimizer 'lion'"),
        ("cnn --option depth", "name=value"),
        ("cnn --option depth=3", "no option 'depth'"),
        (f"cnn --option depth={'9' * 5000}", "no option 'depth'"),
        (f"cnn --option depth={'[' * 100_000}", "no option 'depth'"),
        ("cnn --option classes=3", "use --classes"),
        ("cnn --option device=cpu", "option 'device=cpu' is no option of a model"),
        ("cnn --option batch=3", "option 'batch=3' is no option of a model"),
        ("cnn --option batch_size=3", "use --batch-size"),
        ("cnn --measure 0", "repetitions"),
        ("cnn --plot figure.txt", "end it in .pdf, .png, .svg"),
        ("no_such_package:model", "can't be imported"),
        ("efficientnet_v2_s --batch-size 1", "Expected more than 1 value per channel"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(run, arguments, words):
    code, out, err = run(arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert err.startswith("cutwater: ")


def test_a_file_that_can_not_be_written_is_one_sentence(run, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--plot"):
        code, _, err = run("mlp", option, str(tmp_path / "file" / "inside.png"))
        assert (code, err.count("\n")) == (2, 1)
        assert "can't be written" in err
