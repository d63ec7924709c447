"""The real thing: Flower's SuperLink, SuperNodes and simulation on loopback, as `cutwater fleet` runs it."""

import os
import signal
from pathlib import Path

import pytest
from collecting import run
from fleet_faults import connected, descendants
from flower_cases import settings, trained, write_four

from cutwater.base.errors import EngineError
from cutwater.fleet.processes import carriers, free_ports
from cutwater.fleet.supernodes import LocalFleet
from cutwater.flower.scaffold import PACKAGE
from cutwater.flower.shared_study import study_for
from cutwater.runs.audit import audit
from cutwater.runs.metrics import read
from cutwater.train.aggregate import weights_sha256

NOTHING = (
    "from flwr.serverapp import ServerApp\n\napp = ServerApp()\napp.main()(lambda grid, context: None)\n"
)
EVERYBODY = ["watch", "phone", "tablet", "laptop"]


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    """SHA-256 after each of two rounds, on this machine alone, with dropout and mixed cuts."""
    given = settings(write_four(tmp_path_factory.mktemp("local"), dropout=0.25))
    steps = run(study_for(given))
    return [step.record.weights_sha256 for step in steps], steps[-1].progress.weights


def test_flower_simulation_has_the_bits_of_training_in_process(tmp_path, in_process):
    path, folder = write_four(tmp_path, dropout=0.25), tmp_path / "run"
    with LocalFleet(path, simulation=True) as fleet:
        token, files = fleet.processes.token, fleet.folder
        fleet.run(folder, emulate=False, scenario="scenario.toml")  # the copy that Flower packed and unpacked
        # Flower says of an app which does nothing that all went well.
        (fleet.app / PACKAGE / "server.py").write_text(NOTHING)
        for kept, run_dir, rounds in (("0 of 2", tmp_path / "nothing", None), ("2 of 3", folder, 3)):
            with pytest.raises(EngineError, match=f"only {kept} rounds were kept"):
                fleet.run(run_dir, emulate=False, rounds=rounds, scenario="scenario.toml", name="nothing")
    assert [row.weights_sha256 for row in read(folder / "metrics.jsonl")] == in_process[0]
    assert carriers(token) == []
    assert not files.exists()


QUIET = {b"FLWR_TELEMETRY_ENABLED=0", b"FLWR_DISABLE_UPDATE_CHECK=1", b"RAY_USAGE_STATS_ENABLED=0"}


def _reports_home(pid: int) -> bool:
    """Whether a process that we started may tell anyone of itself, or ask for updates."""
    try:
        return not QUIET.issubset(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # it has ended
        return False


class _Killer:
    """Kills one client's app, with SIGKILL, while its session is under way in the third round."""

    def __init__(self, fleet: LocalFleet, name: str, metrics: Path, port: int) -> None:
        self.fleet, self.name, self.metrics, self.port, self.killed = fleet, name, metrics, port, 0
        self.seen: set[int] = set()
        self.loud: set[int] = set()

    def __call__(self) -> None:
        new = set(carriers(self.fleet.processes.token)) - self.seen
        self.seen |= new
        self.loud |= {pid for pid in new if _reports_home(pid)}
        if self.killed or len(read(self.metrics)) != 2:
            return
        for pid in descendants(self.fleet.nodes[self.name]):
            if connected(pid, self.port) == 2:  # its lease, and its session
                os.kill(pid, signal.SIGKILL)
                self.killed = pid


def test_a_deployment_has_the_same_bits_and_outlives_the_kill_of_a_node_in_its_session(tmp_path, in_process):
    path, folder = write_four(tmp_path, dropout=0.25, rounds=3, more="deadline = 300.0"), tmp_path / "run"
    with LocalFleet(path) as fleet:
        token, (port,) = fleet.processes.token, free_ports(1)
        killer = _Killer(fleet, "phone", folder / "metrics.jsonl", port)
        fleet.run(folder, emulate=True, stream_port=port, meanwhile=killer)
    first, second, third = read(folder / "metrics.jsonl")
    hashes, state = in_process
    assert [first.weights_sha256, second.weights_sha256] == hashes
    assert killer.killed, "the node's session was never seen"
    # The SuperLink, four nodes, the run's command, and the apps that these start.
    assert len(killer.seen) > 6
    assert killer.loud == set()
    assert list(third.lost) == ["phone"]
    assert "its node is gone" in third.lost["phone"]
    assert third.wall_seconds < 60, "it was known at once, not by the deadline"
    survivors = [name for name in EVERYBODY if name != "phone"]
    assert third.weights_sha256 == weights_sha256(trained(settings(path), survivors, state, 3))
    assert carriers(token) == []
    assert len({client.cut for client in audit(folder).rounds[0].clients}) >= 3
