"""The clock on the wall is set an hour ahead and back while rounds go on: deadlines are monotonic."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from collecting import run
from flower_cases import settings, write_four
from schedules import schedule
from stepping_clock import SteppingClock

from cutwater.flower.shared_study import study_for

ROUNDS = """
import json, sys, time
from pathlib import Path
from flower_cases import served, settings
from memory_grid import MemoryGrid
from test_leases import nodes_of
given = settings(Path(sys.argv[1]), lease=True)
print(time.time(), flush=True)
print("go", flush=True)
for one in served(MemoryGrid(nodes_of(given)), "r1", given):
    print(json.dumps([one.record.weights_sha256, one.record.lost]), flush=True)
"""


def test_a_clock_that_is_set_back_and_ahead_in_mid_round_changes_nothing(tmp_path, record_property):
    try:
        clock = SteppingClock(tmp_path)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"the clock of a process can't be set here: {error}")
    path = write_four(tmp_path, rounds=3, more="deadline = 120.0")
    clock.set(3600)
    places = [str(each) for each in (*map(Path, sys.path), Path(__file__).parent) if str(each)]
    rounds = subprocess.Popen(
        [sys.executable, "-c", ROUNDS, str(path)],
        env={**clock.environment, "PYTHONPATH": ":".join(places)},
        stdout=subprocess.PIPE,
        text=True,
    )
    ahead = float(rounds.stdout.readline()) - time.time()
    assert 3000 < ahead < 4000, "its clock is an hour ahead"
    assert rounds.stdout.readline() == "go\n"
    moments, steps = schedule("clock"), 0
    while rounds.poll() is None:
        clock.set(moments.choice([-3600, -7200, 0, 3600, -86_400 * 365]))
        steps += 1
        time.sleep(moments.uniform(0.01, 0.2))
    seen = [json.loads(line) for line in rounds.stdout]
    assert rounds.returncode == 0
    assert seen == [[one.record.weights_sha256, {}] for one in run(study_for(settings(path)))]
    assert steps > 10
    record_property("times that the clock was set", steps)
