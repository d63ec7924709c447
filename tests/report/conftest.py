"""One real run for all tests of reports: five clients learn digits, links waver, some drop out."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutwater.cli.main import app

SCENARIO = """\
[model]
name = "mlp"
input = "1x8x8"
classes = 10

[server]
compute = "2 GFLOPS"

[session]
steps = 4
batch_size = 16

[fleet]
clients = 6
compute = ["0.001 GFLOPS", "0.02 GFLOPS"]
rate = ["0.5 MB/s", "4 MB/s"]
samples = [60, 90]
seed = 5

[data]
source = "digits"
partition = "iid"

[train]
rounds = 4
lr = 0.1
quorum = 3
seed = 2

[conditions]
change = "jitter"
dropout = 0.25
"""


@pytest.fixture(scope="session")
def real_run(tmp_path_factory) -> Path:
    """A run folder as `cutwater train` leaves it."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "scenario.toml").write_text(SCENARIO)
    arguments = ["train", str(folder / "scenario.toml"), "--run", str(folder / "run"), "--workers", "1"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return folder / "run"
