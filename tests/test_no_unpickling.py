"""Sessions, rounds, leases, run folders and checkpoints, all again with every way to unpickle taken away."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
AGAIN = (
    *("stream/test_stream_sessions.py", "stream/test_stream_resume.py", "stream/test_stream_lease.py"),
    *("serve/test_hosting.py", "serve/test_device.py", "federate/test_loop.py"),
    *("flower/test_rounds.py", "flower/test_leases.py", "flower/test_wires_over_a_grid.py"),
    *("runs/test_checkpoint.py", "runs/test_folder.py", "runs/test_reader.py", "runs/test_best.py"),
)


def under(folder, *names):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no_unpickling", "-p", "no:cacheprovider", *names]
    places = os.pathsep.join([str(TESTS / "helpers"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": places}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.chaos
def test_everything_holds_with_unpickling_forbidden(record_property):
    done = under(TESTS.parent, *(f"tests/{file}" for file in AGAIN))
    assert done.returncode == 0, done.stdout[-4000:]
    record_property("tests without unpickling", int(re.search(r"(\d+) passed", done.stdout)[1]))


def test_who_unpickles_is_found(tmp_path):
    """What the test above stands on."""
    (tmp_path / "test_it.py").write_text("import pickle\ndef test_it(): pickle.loads(pickle.dumps(1))\n")
    done = under(tmp_path, "test_it.py")
    assert done.returncode == 1
    assert "test_it has unpickled something" in done.stdout
