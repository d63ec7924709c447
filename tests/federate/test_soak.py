"""Five hundred rounds of fifty clients, a tenth of which drop out: nothing grows with the rounds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import linear_regression, mean

import pytest
from schedules import SEED

ROUNDS, CLIENTS, SETTLED = 500, 50, 100
MOST = 0.001
"""Of all memory, in a hundred rounds."""

SOAK = Path(__file__).parents[1] / "helpers" / "soak.py"


@pytest.mark.chaos
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="NO /proc: memory can't be read here")
def test_five_hundred_rounds_of_fifty_clients_leave_models_descriptors_threads_and_memory_flat(
    tmp_path, record_property
):
    done = subprocess.run(
        [sys.executable, str(SOAK), str(ROUNDS), str(CLIENTS), str(tmp_path / "run"), str(SEED % 2**31)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    settled = [each for each in seen if each[0] >= SETTLED]
    assert seen[-1][0] == ROUNDS
    sessions = ROUNDS * CLIENTS
    assert 0.07 * sessions < seen[-1][5] < 0.13 * sessions, "a tenth dropped out"
    for what, place in (("models", 1), ("descriptors", 2), ("threads", 3)):
        counts = {each[place] for each in settled}
        assert len(counts) == 1, f"{what} are not flat: {counts}"
        record_property(f"live {what}", float(counts.pop()))
    numbers, memory = [each[0] for each in settled], [each[4] for each in settled]
    slope = 100 * linear_regression(numbers, memory).slope / mean(memory)
    record_property("memory, % of all in 100 rounds", round(100 * slope, 4))
    record_property("sessions", sessions - seen[-1][5])
    assert slope <= MOST
    assert len(list(Path(tmp_path / "run" / "rounds").iterdir())) == ROUNDS
