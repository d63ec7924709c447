"""The example of an executor of one's own, as a user would run and check it."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from collecting import run

from cutwater.extend import start, train

PATH = Path(__file__).parents[2] / "examples" / "own_executor.py"
SPEC = importlib.util.spec_from_file_location("own_executor", PATH)
own_executor = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(own_executor)


def test_it_runs_as_it_stands():
    done = subprocess.run([sys.executable, str(PATH)], capture_output=True, text=True, check=True)
    assert done.stdout.count("round ") == 5
    assert "lost {'phone-6': 'it is on holiday'}" in done.stdout


def test_its_weights_are_those_of_the_virtual_clock(monkeypatch):
    monkeypatch.setattr(own_executor.OnThisWall, "absent", lambda self, clients: {})
    study = own_executor.study()
    executor = own_executor.OnThisWall(study)
    trained = train(study, executor, start(study))
    assert [record.weights_sha256 for record in trained.records] == [
        each.record.weights_sha256 for each in run(study)
    ]
    assert all(0 < record.actual_seconds < 60 for record in trained.records)


def test_a_deadline_loses_those_whose_turn_never_comes_and_the_round_fails_below_its_quorum():
    study = own_executor.study()
    study = replace(study, train=replace(study.train, rounds=1, deadline=1e-9, quorum=3))
    (record,) = train(study, own_executor.OnThisWall(study), start(study)).records
    assert record.failed == "0 of 6 clients were done, but the quorum is 3"
    assert set(record.lost.values()) == {"it is on holiday", "its turn never came"}
