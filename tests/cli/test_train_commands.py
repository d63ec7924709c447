"""`cutwater train`, `verify`, `runs` and `data`, as people and programs see them."""

import json
import re
import sys
from pathlib import Path

import pytest

from cutwater.base.schema import schema_of
from cutwater.cli.main import main
from cutwater.federate.record import Record
from cutwater.runs import metrics

SCENARIO = """
[model]
name = "mlp"
input = "1x8x8"
classes = 10
{model}

[server]
compute = "1 GFLOPS"

[session]
steps = 2
batch_size = 8
{session}

[fleet]
clients = 5
compute = ["0.5 MFLOPS", "40 MFLOPS"]
rate = ["50 kB/s", "400 kB/s"]
samples = [40, 90]
seed = 3
{fleet}

[data]
{data}

[train]
rounds = 3
clients_per_round = 3
seed = 7
{train}

[conditions]
{conditions}
"""
PARTS = {
    "model": "",
    "session": "",
    "fleet": "",
    "data": 'partition = "iid"',
    "train": "",
    "conditions": "",
}


@pytest.fixture
def cutwater(monkeypatch, capsys):
    """Run the command; exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["cutwater", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def scenario(folder: Path, **parts: str) -> Path:
    path = folder / "scenario.toml"
    text = SCENARIO.format(**{**PARTS, **parts})
    for line in (line for part in parts.values() for line in part.splitlines()):
        key = line.partition("=")[0].strip()
        # What a case sets replaces what the scenario has, since TOML allows a key once.
        lines = [one for one in text.splitlines() if one == line or one.partition("=")[0].strip() != key]
        text = "\n".join(lines)
    path.write_text(text)
    return path


def refused(result) -> str:
    """The one sentence of a mistake."""
    code, out, err = result
    assert code == 2, err
    assert out == ""
    lines = [line for line in err.splitlines() if line.startswith("cutwater: ")]
    assert len(lines) == 1
    assert err.splitlines()[-1] == lines[0]
    assert "Traceback" not in err
    return lines[0]


def test_train_shows_the_rounds_and_what_fedavg_would_have_taken(cutwater, tmp_path):
    code, out, err = cutwater("train", scenario(tmp_path), "--run", tmp_path / "run")
    assert code == 0
    assert [line.split(" · ")[0] for line in err.splitlines() if line.startswith("round")] == [
        "round 1/3",
        "round 2/3",
        "round 3/3",
    ]
    assert "waited for c" in err
    for words in ("accuracy", "FedAvg's clock", "for the same rounds", "plan against truth", "off by 0.0 %"):
        assert words in out
    assert str(tmp_path / "run") in out.replace("\n", "")
    assert (tmp_path / "run" / "scenario.toml").read_text() == (tmp_path / "scenario.toml").read_text()


def test_train_as_json_is_json_alone(cutwater, tmp_path):
    path = scenario(tmp_path, conditions='change = "jitter"')
    code, out, _ = cutwater("train", path, "--run", tmp_path / "run", "--json", "--workers", "1")
    found = json.loads(out)
    assert code == 0
    assert (found["rounds"], found["planner"], found["failed"]) == (3, "exact", 0)
    rows = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert found["weights_sha256"] == rows[-1].weights_sha256
    written = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    fields = {each.key for each in schema_of(Record)}
    assert all(json.loads(line).keys() == fields for line in written)
    assert found["fedavg"]["virtual_seconds"] / found["virtual_seconds"] == pytest.approx(
        found["fedavg"]["speed_up"]
    )
    assert found["fedavg"]["speed_up"] > 1
    assert 0 < found["plan_error"]["mean"] <= found["plan_error"]["worst"]


def test_fedavgs_clock_beside_a_run_is_that_of_a_fedavg_run(cutwater, tmp_path):
    path = scenario(tmp_path, conditions='change = "jitter"\nestimate = "average"\ndropout = 0.2')
    _, ours, _ = cutwater("train", path, "--run", tmp_path / "a", "--json")
    _, theirs, _ = cutwater("train", path, "--run", tmp_path / "b", "--json", "--planner", "fedavg")
    assert json.loads(ours)["fedavg"]["virtual_seconds"] == json.loads(theirs)["virtual_seconds"]
    assert json.loads(ours)["weights_sha256"] == json.loads(theirs)["weights_sha256"]


def test_where_fedavg_is_impossible_its_clock_says_why(cutwater, tmp_path):
    path = scenario(tmp_path)
    layers = json.loads(cutwater("plan", path, "--json")[1])["layers"]
    text = path.read_text().replace("clients_per_round = 3", "")
    listed = f'[[client]]\ncompute = "1 MFLOPS"\nrate = "1 MB/s"\nsamples = 50\nforbidden = [{layers}]\n\n'
    path.write_text(text[: text.index("[fleet]")] + listed + text[text.index("[data]") :])
    code, out, _ = cutwater("train", path, "--run", tmp_path / "run", "--rounds", "1")
    assert code == 0
    assert "none: FedAvg needs cut" in out


def test_resume_goes_on_and_more_rounds_may_be_asked_for(cutwater, tmp_path):
    path = scenario(tmp_path)
    cutwater("train", path, "--run", tmp_path / "whole", "--rounds", "4")
    cutwater("train", path, "--run", tmp_path / "run", "--rounds", "1")
    assert "holds a run already" in refused(cutwater("train", path, "--run", tmp_path / "run"))
    code, _, err = cutwater("train", path, "--run", tmp_path / "run", "--rounds", "4", "--resume")
    assert code == 0
    assert "round 2/4" in err
    assert "round 1/4" not in err
    whole, pieces = (metrics.read(tmp_path / name / "metrics.jsonl") for name in ("whole", "run"))
    assert [row.weights_sha256 for row in whole] == [row.weights_sha256 for row in pieces]


def test_lines_that_are_missing_from_the_metrics_change_no_clock_and_are_told_of(cutwater, tmp_path):
    path = scenario(tmp_path)
    _, whole, _ = cutwater("train", path, "--run", tmp_path / "whole", "--rounds", "4", "--json")
    cutwater("train", path, "--run", tmp_path / "run", "--rounds", "3")
    file = tmp_path / "run" / "metrics.jsonl"
    file.write_text(file.read_text().splitlines(keepends=True)[2])
    code, pieces, err = cutwater(
        "train", path, "--run", tmp_path / "run", "--rounds", "4", "--resume", "--json"
    )
    assert code == 0
    assert json.loads(pieces)["fedavg"] == json.loads(whole)["fedavg"]
    assert "has 2 lines for the 4 rounds so far" in err
    _, out, err = cutwater("runs", tmp_path / "whole", tmp_path / "run", "--json")
    assert [run["rounds_with_the_bits_of_base"] for run in json.loads(out)["runs"]] == [4, 2]
    assert "has 2 lines for the 4 rounds so far" in err
    assert "2 of 2" in cutwater("runs", tmp_path / "whole", tmp_path / "run")[1]


def test_planner_options_reach_the_planner(cutwater, tmp_path):
    arguments = ("--planner", "splitfed", "--option", "cut=2", "--rounds", "1")
    assert cutwater("train", scenario(tmp_path), "--run", tmp_path / "run", *arguments)[0] == 0
    clients = json.loads((tmp_path / "run" / "rounds" / "00001.json").read_text())["clients"]
    assert {client["cut"] for client in clients} == {2}


def test_tensorboard_files_are_written_beside_the_run(cutwater, tmp_path):
    pytest.importorskip("tensorboard")
    cutwater("train", scenario(tmp_path), "--run", tmp_path / "run", "--tensorboard", "--rounds", "1")
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.*"))


def test_a_run_in_which_every_round_fails_exits_with_1(cutwater, tmp_path):
    path = scenario(tmp_path, train="deadline = 1e-6\nquorum = 2")
    code, out, err = cutwater("train", path, "--run", tmp_path / "run")
    assert code == 1
    assert "failed: 0 of 3 clients were done, but the quorum is 2" in err
    assert "3 of them below quorum" in out


def test_verify_says_that_the_bits_agree(cutwater, tmp_path):
    code, out, _ = cutwater("verify", scenario(tmp_path), "--rounds", "2", "--workers", "2")
    assert code == 0
    assert "all 2 rounds agree bit for bit" in out
    code, out, _ = cutwater("verify", scenario(tmp_path), "--rounds", "1", "--json")
    found = json.loads(out)
    assert found["agrees"] is True
    assert len(set(found["rounds"][0]["weights_sha256"].values())) == 1


def test_verify_exits_with_1_where_bits_differ(cutwater, tmp_path, monkeypatch):
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    path = scenario(tmp_path, model='name = "forgetful:build"')
    code, out, _ = cutwater("verify", path, "--rounds", "1", "--workers", "1")
    assert code == 1
    assert "DIFFER" in out
    assert "than fedavg" in out


FORGETFUL = '''
from torch import nn

class Forgetful(nn.Module):
    """Not a function of its input, so that no promise can hold."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x.flatten(1)) * (1 + 0.01 * self.calls)

def build(input=None, classes=10, **options):
    return nn.Sequential(Forgetful(), nn.ReLU(), nn.Linear(64, 10))
'''


def test_runs_are_compared_by_time_to_accuracy(cutwater, tmp_path):
    path = scenario(tmp_path)
    for name, planner in (("split", "exact"), ("whole", "fedavg")):
        cutwater("train", path, "--run", tmp_path / "runs" / name, "--planner", planner)
    code, out, _ = cutwater("runs", tmp_path / "runs", "--plot", tmp_path / "curves.png")
    assert code == 0
    assert "3 of 3" in out
    assert "base" in out
    assert (tmp_path / "curves.png").stat().st_size > 5_000
    _, out, _ = cutwater("runs", tmp_path / "runs" / "split", tmp_path / "runs" / "whole", "--json")
    found = json.loads(out)
    split, whole = found["runs"]
    assert found["base"] == whole["run"]
    assert split["speed_up"] == pytest.approx(
        whole["time_to_target"]["virtual_seconds"] / split["time_to_target"]["virtual_seconds"]
    )
    assert split["speed_up"] > 1
    assert split["rounds_with_the_bits_of_base"] == 3
    _, out, _ = cutwater("runs", tmp_path / "runs", "--target", "accuracy>=1.0", "--json")
    assert [run["time_to_target"] for run in json.loads(out)["runs"]] == [None, None]


def test_runs_refuses_what_is_no_run(cutwater, tmp_path):
    assert "holds no run" in refused(cutwater("runs", tmp_path))
    assert "end it in .pdf, .png, .svg" in refused(cutwater("runs", tmp_path, "--plot", "curves.docx"))


def test_data_shows_who_holds_what(cutwater, tmp_path):
    path = scenario(tmp_path, data='partition = "paper"\nscale = true')
    code, out, _ = cutwater("data", path, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["source"], found["partition"], len(found["clients"])) == ("digits", "paper", 5)
    for client in found["clients"]:
        assert client["train"] + client["test"] == sum(client["classes"])
    _, out, _ = cutwater("data", path)
    assert "training samples shared out (paper)" in out
    assert out.splitlines()[0].split() == ["Client", "Train", "Test", *map(str, range(10))]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": "max_grad_norm = 1.0"}, "clipping by the global norm is clip_norm"),
        ({"train": 'optimizer = "sdg"'}, "optimizer 'sdg' is unknown"),
        ({"train": 'optimizer = "lbfgs"'}, "optimizer 'lbfgs' can't be used: its line search"),
        ({"train": 'loss = "crossentropy"'}, "did you mean 'cross_entropy'"),
        ({"train": 'device = "cuda:77"'}, "device 'cuda:77' can't be used here"),
        ({"train": "clients_per_round = 9"}, "clients_per_round is 9, but the scenario has 5 clients"),
        ({"train": "learning_rate = 0.1"}, "[train] has an unknown key 'learning_rate'"),
        ({"train": 'rounds = "many"'}, "[train] rounds is 'many', but must be a whole number"),
        ({"session": "batch_size = 999"}, "batch_size is 999, but client 'c1' has"),
        ({"data": 'source = "cifar10"'}, "cifar10 needs the files data_batch_1.bin"),
        ({"data": 'source = "mnist"\nmirrors = []'}, "put train-images-idx3-ubyte.gz"),
        ({"data": 'source = "digist"'}, "did you mean 'digits'"),
        ({"model": "classes = 9"}, "the model tells 9 classes apart, but 'digits' has 10"),
        ({"model": 'input = "1x28x28"'}, "the model takes 1x28x28 inputs"),
        ({"fleet": "clients = 1500\nsamples = 1"}, "client 'c1443' would have no samples"),
        ({"fleet": "samples = 700"}, "the clients have 3,500 samples together, but the source has 1,442"),
        ({"data": 'partition = "shards"\nshards = 100000000000'}, "shards is 100,000,000,000, but must"),
        ({"data": 'partition = "dirichlet"\nalpha = 1e308'}, "[data] alpha is 1e+308"),
        ({"train": "seed = 9223372036854775808"}, "[train] seed is 9223372036854775808"),
        ({"conditions": 'change = "weather"'}, "[conditions] change is 'weather'"),
        ({"conditions": "dropout = 1.5"}, "[conditions] dropout is 1.5"),
        ({"conditions": 'change = "trace"\ntrace = "none.csv"'}, "none.csv can't be read"),
        (
            {"conditions": 'change = "trace"\ntrace = "~nosuchuser/x"'},
            "[conditions] trace is '~nosuchuser/x'",
        ),
        (
            {"conditions": 'change = "trace"\ntrace = "a\\u0000b"'},
            "but must be the name of a file without NUL in it",
        ),
        ({"data": 'folder = "~nosuchuser/x"'}, "[data] folder is '~nosuchuser/x', but that home folder"),
        ({"data": 'source = "mnist"\nmirrors = ["https://[bad"]'}, "Invalid IPv6 URL"),
        ({"train": 'device = "meta"'}, "device 'meta' can't be used here"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_input_is_one_sentence_and_exit_code_2(cutwater, tmp_path, monkeypatch, parts, message):
    monkeypatch.delenv("CUTWATER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ("--run", tmp_path / "run", "--workers", "1")
    assert message in refused(cutwater("train", scenario(tmp_path, **parts), *arguments))


def test_a_loss_that_is_not_a_number_stops_names_the_client_and_keeps_the_last_good_model(cutwater, tmp_path):
    # The learning rate rises so far that the second round explodes, but the first does not.
    path = scenario(tmp_path, train='lr = 1e-9\nschedule = "exponential"\ngamma = 1e19')
    for workers in ("1", "2"):
        folder = tmp_path / workers
        sentence = refused(cutwater("train", path, "--run", folder, "--workers", workers))
        assert "client 'c" in sentence
        assert "in round" in sentence or "has a value" in sentence or "at most" in sentence
        rows = metrics.read(folder / "metrics.jsonl")
        assert [row.round for row in rows] == [1]
        assert [path.name for path in (folder / "checkpoints").iterdir()] == ["round-000001.safetensors"]


OVERFLOWING = """
import torch

def loss(output, labels):
    value = torch.nn.functional.cross_entropy(output, labels)
    return value if torch.is_grad_enabled() else value * torch.inf
"""


FUSE = """
import os

import torch
from torch import nn


class Fuse(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("trained", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.trained += 1
        blown = self.trained > 2 and os.environ.get("BLOWN") in ("nan", "inf")
        return x * float(os.environ["BLOWN"]) if blown else x


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), Fuse(), nn.ReLU(), nn.Linear(16, 10))
"""
INT8 = '\n[wire]\nup = "int8"\ndown = "int8"\n'


@pytest.mark.parametrize("blown", ["nan", "inf"])
def test_what_int8_can_not_carry_names_client_and_round_and_loses_no_round_before(
    cutwater, tmp_path, monkeypatch, blown
):
    """Two steps a round: the third forward of a session's model is the first of round 2."""
    module = f"fuse_of_{blown}"  # a module of one name is imported once in a process
    (tmp_path / f"{module}.py").write_text(FUSE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("BLOWN", blown)
    path = scenario(tmp_path, model=f'name = "{module}:net"')
    path.write_text(path.read_text() + INT8)
    folder = tmp_path / "run"
    train = ("train", path, "--run", folder, "--workers", "1", "--planner", "splitfed", "--option", "cut=3")
    sentence = refused(cutwater(*train))
    assert re.match(
        r"cutwater: client 'c\d', round 2: a tensor of the smashed data of part 0 holds NaN or infinity, "
        r"which int8 can't carry: .*; the rounds before are kept$",
        sentence,
    )
    kept = (folder / "metrics.jsonl").read_bytes()
    assert [json.loads(line)["round"] for line in kept.splitlines()] == [1]
    assert refused(cutwater(*train, "--resume")) == sentence
    assert (folder / "metrics.jsonl").read_bytes() == kept
    monkeypatch.delenv("BLOWN")
    code, _, err = cutwater(*train, "--resume")
    assert code == 0, err
    lines = (folder / "metrics.jsonl").read_bytes()
    assert lines.startswith(kept)
    assert [json.loads(line)["round"] for line in lines.splitlines()] == [1, 2, 3]


def test_a_test_loss_that_overflows_is_null_and_the_run_goes_on(cutwater, tmp_path, monkeypatch):
    (tmp_path / "overflowing.py").write_text(OVERFLOWING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    path = scenario(tmp_path, train='loss = "overflowing:loss"')
    code, _, err = cutwater("train", path, "--run", tmp_path / "run", "--workers", "1")
    assert code == 0, err
    rows = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [row.test_loss for row in rows] == [None] * 3
    assert None not in [row.accuracy for row in rows]


def test_the_folder_of_another_scenario_is_refused(cutwater, tmp_path):
    cutwater("train", scenario(tmp_path), "--run", tmp_path / "run", "--rounds", "1")
    other = scenario(tmp_path, train="lr = 0.123")
    assert "holds a run of another scenario" in refused(
        cutwater("train", other, "--run", tmp_path / "run", "--resume")
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--planner", "exat"], "did you mean 'exact'"),
        (["--option", "nonsense"], "option 'nonsense' can't be read"),
        (["--option", "cut=2"], "planner 'exact' has no option 'cut'"),
        (["--workers", "0"], "workers is 0, but must be 1 or more"),
    ],
)
def test_wrong_arguments_are_one_sentence(cutwater, tmp_path, arguments, message):
    assert message in refused(cutwater("train", scenario(tmp_path), "--run", tmp_path / "run", *arguments))


def test_a_folder_whose_name_is_too_long_is_refused_at_once(cutwater, tmp_path):
    long = tmp_path / ("x" * 300)
    assert "can't be used: File name too long" in refused(
        cutwater("train", scenario(tmp_path), "--run", long, "--tensorboard")
    )
    assert "can't be read: File name too long" in refused(cutwater("runs", long))


def test_verify_refuses_no_workers_as_train_does(cutwater, tmp_path):
    sentence = refused(cutwater("verify", scenario(tmp_path), "--workers", "0"))
    assert "workers is 0, but must be 1 or more" in sentence


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1,c6,1 MFLOPS,1 MB/s", "has rows of client 'c6', but there is no client of that name"),
        ("1,c1,1 MFLOPS,1 MB/s,5", "line 2 has more cells than there are columns; remove ['5']"),
    ],
)
def test_a_trace_that_does_not_fit_is_refused(cutwater, tmp_path, row, message):
    (tmp_path / "trace.csv").write_text(f"round,client,compute,rate\n{row}\n")
    path = scenario(tmp_path, conditions='change = "trace"\ntrace = "trace.csv"')
    assert message in refused(cutwater("train", path, "--run", tmp_path / "run"))


def test_a_folder_in_which_no_round_was_ever_done_is_begun_anew(cutwater, tmp_path):
    path = scenario(tmp_path)
    refused(cutwater("train", path, "--run", tmp_path / "run", "--option", "cut=2"))
    assert cutwater("train", path, "--run", tmp_path / "run", "--rounds", "1")[0] == 0


@pytest.mark.parametrize("name", ["train", "verify", "runs", "data"])
def test_help_has_an_example(cutwater, name):
    code, out, _ = cutwater(name, "--help")
    assert code == 0
    assert f"Example: cutwater {name}" in " ".join(out.split())
