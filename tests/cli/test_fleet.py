"""`cutwater fleet`, `audit`, `probe` and `scaffold` as a user types them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cutwater.federate.measured import Measured, Moved, Replanned, RoundMeasured

pytest.importorskip(
    "flwr", reason="FLOWER IS MISSING, nothing of it is tested: pip install 'cutwater[flower]'"
)

from run_folders import a_line
from typer.testing import CliRunner

from cutwater.cli.fleet import news
from cutwater.cli.main import app
from cutwater.fleet.link_probe import EchoServer
from cutwater.fleet.processes import TOKEN
from cutwater.plan.latency import PHASES
from cutwater.runs.layout import MEASURED_FORMAT

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.toml"


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fleet_processes(home: Path) -> list[int]:
    """Processes of any fleet whose files are under a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = entry.read_bytes()
        except OSError:
            continue
        if TOKEN.encode() in environment and str(home).encode() in environment:
            found.append(int(entry.parent.name))
    return found


def test_a_planner_that_is_unknown_is_refused_before_anything_starts():
    code = "from cutwater.cli.main import main; main()"
    command = [sys.executable, "-c", code, "fleet", str(EXAMPLE), "--planner", "fedavg", "--planner", "foo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no planner 'foo'" in done.stderr
    assert "SuperLink" not in done.stderr


def test_a_run_folder_of_another_scenario_is_refused_in_one_sentence_and_left_alone(tmp_path):
    foreign = tmp_path / "foreign"
    assert invoke("train", EXAMPLE.with_name("digits.toml"), "--rounds", 1, "--run", foreign).exit_code == 0
    before = {path: path.read_bytes() for path in foreign.rglob("*") if path.is_file()}
    code = "from cutwater.cli.main import main; main()"
    command = [sys.executable, "-c", code, "fleet", str(EXAMPLE), "--rounds", "1", "--run", str(foreign)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "holds a run of another scenario" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in foreign.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_fleet_that_is_interrupted_leaves_no_process_and_no_file(tmp_path, how):
    code = "from cutwater.cli.main import main; main()"
    command = [sys.executable, "-c", code, "fleet", str(EXAMPLE)]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    child = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if "registering" in line:
            break
    until = time.monotonic() + 30
    while not fleet_processes(tmp_path):
        assert time.monotonic() < until, "no process of the fleet was seen"
        time.sleep(0.05)
    child.send_signal(how)
    child.stderr.read()
    assert child.wait(60) == 130
    assert fleet_processes(tmp_path) == []
    assert list(tmp_path.glob("cutwater-*")) == []


def test_a_round_is_told_with_the_accuracy_it_has():
    line = a_line(3, actual_seconds=2.5, accuracy=0.5)
    assert news(line) == "round 3: 2.5 s, accuracy 50.0 %"
    assert news(replace(line, accuracy=None)) == "round 3: 2.5 s"
    assert news(replace(line, failed="1 of 3 clients were done")) == "round 3: 1 of 3 clients were done"


def write_run(folder: Path) -> Path:
    phases = dict.fromkeys(PHASES, 1.0)
    client = {
        "name": "c1",
        "cut": 2,
        "share": 1e9,
        "delivered_share": 2e9,
        "mode": "split",
        "outcome": "done",
        "planned_seconds": 8.0,
        "actual_seconds": 8.8,
        "planned_bytes_up": 1000.0,
        "planned_bytes_down": 2000.0,
        "bytes_up": 1050,
        "bytes_down": 2050,
        "planned": phases,
        "actual": {**phases, "smashed_upload": 1.8},
    }
    lost = {**client, "name": "c2", "outcome": "late: no update after 9 s", "delivered_share": None}
    body = {
        "format": "cutwater.round",
        "version": 1,
        "round": 1,
        "planner": "exact",
        "planned_seconds": 8.0,
        "actual_seconds": 8.8,
        "failed": None,
        "clients": [client, lost],
    }
    (folder / "rounds").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "rounds" / "00001.json").write_text(json.dumps(body))
    return folder


def write_measured(
    run: Path, *, model_timed: bool, replanned: tuple[Replanned, ...] = (), moves: tuple[Moved, ...] = ()
) -> None:
    client = Measured(
        name="c1",
        wall_seconds=9.8,
        session_seconds=8.8,
        message_seconds=1.0,
        setup_seconds=0.5,
        bytes_up=3,
        bytes_down=4,
        promised_share=1e9,
        delivered_share=2e9,
        model_timed=model_timed,
        emulated=True,
        moves=moves,
    )
    (run / "measured").mkdir()
    (run / "measured" / "00001.json").write_text(
        json.dumps(MEASURED_FORMAT.document(RoundMeasured(1, 9.9, (client,), replanned=replanned)))
    )


def test_audit_shows_predicted_beside_measured_and_who_is_missing(tmp_path):
    run = write_run(tmp_path / "run")
    shown = invoke("audit", run)
    assert shown.exit_code == 0
    assert "8 s → 8.8 s" in shown.output
    assert "1 GFLOPS → 2 GFLOPS" in shown.output
    assert "+10.0%" in shown.output
    assert "without c2: late" in shown.output
    assert "3 kB → 3.1 kB" in shown.output
    document = json.loads(invoke("audit", run, "--json").output)
    assert document["format"] == "cutwater.audit"
    assert document["rounds"][0]["clients"][0]["planned_bytes_up"] == 1000.0
    assert document["rounds"][0]["clients"][0]["bytes_down"] == 2050
    assert document["rounds"][0]["clients"][0]["actual"]["smashed_upload"] == 1.8
    assert document["rounds"][0]["deviation"] == pytest.approx(0.1)


def test_every_phase_is_counted_in_a_column_of_the_audit(tmp_path):
    lines = invoke("audit", write_run(tmp_path / "run")).output.splitlines()
    (row,) = (line for line in lines if line.startswith("c1 "))
    pairs = re.findall(r"([\d.]+) s → ([\d.]+) s", row)[1:]  # the first is the session
    assert len(pairs) == 4
    assert sum(float(planned) for planned, _ in pairs) == len(PHASES)
    assert sum(float(actual) for _, actual in pairs) == pytest.approx(len(PHASES) + 0.8)


def test_audit_calls_measured_what_was_measured_and_nothing_else(tmp_path):
    run = write_run(tmp_path / "run")
    assert "predicted 8 s, 8.8 s by the virtual clock (+10.0%)" in invoke("audit", run).output
    write_measured(run, model_timed=True)
    shown = invoke("audit", run).output
    assert "predicted 8 s, measured 8.8 s (+10.0%); 9.9 s on the wall, 1.24 x the prediction" in shown
    assert "2 s → 2 s" in shown
    assert "*" not in shown


def test_audit_tells_of_shares_that_were_planned_anew(tmp_path):
    run = write_run(tmp_path / "run")
    change = Replanned(3.0, "client c2 is lost", 9.5, 8.5, {"c1": 2e9})
    write_measured(run, model_timed=True, replanned=(change,))
    told = "shares planned anew after 3 s, as client c2 is lost: done by 8.5 s instead of 9.5 s"
    assert told in invoke("audit", run).output
    (found,) = json.loads(invoke("audit", run, "--json").output)["rounds"][0]["replanned"]
    assert found["shares"] == {"c1": 2e9}


def test_audit_tells_of_cuts_that_moved(tmp_path):
    run = write_run(tmp_path / "run")
    write_measured(run, model_timed=True, moves=(Moved(1, 2, 4), Moved(7, 4, 3)))
    shown = invoke("audit", run).output
    assert "the cut of c1 moved from 2 to 4 after 1 mini-batch\n" in shown
    assert "the cut of c1 moved from 4 to 3 after 7 mini-batches" in shown
    first, _ = json.loads(invoke("audit", run, "--json").output)["rounds"][0]["clients"]
    assert first["measured"]["moves"][1] == {"step": 7, "cut": 4, "to": 3}


def test_audit_does_not_call_measured_what_was_lost_in_the_polling(tmp_path):
    run = write_run(tmp_path / "run")
    write_measured(run, model_timed=False)
    shown = invoke("audit", run).output
    assert "2 s → *" in shown
    assert "* too short to be told from Flower's polling, and counted as planned." in shown
    document = json.loads(invoke("audit", run, "--json").output)
    first, second = (client["measured"] for client in document["rounds"][0]["clients"])
    assert (first["model_timed"], first["emulated"], second) == (False, True, None)


def test_audit_of_something_else_is_one_sentence(tmp_path):
    result = invoke("audit", tmp_path)
    assert "holds no run" in str(result.exception)


def test_scaffold_writes_an_app_of_a_scenario(tmp_path):
    assert invoke("scaffold", tmp_path / "app", "--scenario", EXAMPLE).exit_code == 0
    assert (tmp_path / "app/cutwater_app/scenario.toml").read_text() == EXAMPLE.read_text()
    assert invoke("scaffold", tmp_path / "two").exit_code == 0
    assert "not empty" in str(invoke("scaffold", tmp_path / "two").exception)


def test_probe_measures_compute_and_link(tmp_path):
    with EchoServer() as server:
        result = invoke(
            *("probe", EXAMPLE, "--repetitions", 2, "--size", "100 kB", "--json"),
            *("--server", f"127.0.0.1:{server.port}", "--fingerprint", server.certificate.fingerprint),
        )
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["compute"]["flops"]["median"] > 0
    assert found["link"]["up"] > 0


def test_probe_measures_a_model_whose_inputs_have_names(tmp_path):
    (tmp_path / "model_of_two.py").write_text(
        "from torch import nn\n\n"
        "class Two(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 2)\n\n"
        "    def forward(self, left, right):\n"
        "        return self.second(self.first(left + right).relu())\n\n"
        "def two():\n"
        "    return Two()\n"
    )
    (tmp_path / "two.toml").write_text(
        '[model]\nname = "model_of_two:two"\ninput = "left=floats:6,right=floats:6"\n'
        '[server]\ncompute = "1 GFLOPS"\n[session]\nsteps = 1\n'
        '[[client]]\nname = "c"\ncompute = "1 GFLOPS"\nrate = "1 MB/s"\nsamples = 9\n'
    )
    result = invoke("probe", tmp_path / "two.toml", "--repetitions", 2, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    assert json.loads(result.output)["compute"]["flops"]["median"] > 0


@pytest.mark.parametrize("address", ["here", "host:", ":1", "host:99999"])
def test_an_address_that_is_none_is_refused(address):
    assert "HOST:PORT" in str(invoke("probe", "--listen", address).exception)


@pytest.mark.parametrize("command", [("fleet", EXAMPLE), ("scaffold", "somewhere")])
def test_without_flower_a_command_says_what_to_install(command, monkeypatch):
    monkeypatch.setattr("cutwater.base.extras.find_spec", lambda name: None)
    assert "pip install 'cutwater[flower]'" in str(invoke(*command).exception)


def test_the_same_planner_twice_is_refused_before_anything_starts():
    assert "each can run once" in str(
        invoke("fleet", EXAMPLE, "--planner", "exact", "--planner", "exact").exception
    )
