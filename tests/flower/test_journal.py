"""A run whose sessions have a process of their own: killed in a round, the round is finished all the same."""

import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest
from collecting import run
from fleet_faults import descendants, wait_until
from flower_cases import grid_of, served, settings, write_four
from small_study import small_study

from cutwater.base.errors import RunError
from cutwater.flower.server_app import serve
from cutwater.flower.shared_study import study_for
from cutwater.serve import device
from cutwater.stream.client import StreamClient

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc"), reason="NO /proc: processes can't be found here")
EVERYBODY = ["watch", "phone", "tablet", "laptop"]


def hosts() -> list[int]:
    """The processes of sessions that this one has started."""
    return [pid for pid in descendants(os.getpid()) if b"cutwater.flower.session_process" in _words(pid)]


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


class Killer:
    """Kills the process of sessions: in the first round when two clients are in the middle of their sessions,
    in the second when one is through with its own, as it is told."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self.busy: set[int] = set()
        self.finished = 0
        self.lock = threading.Lock()

    def kill(self) -> None:
        (pid,) = hosts()
        os.kill(pid, signal.SIGKILL)
        self.killed.append(pid)

    def client(self):
        killer = self

        class Killed(StreamClient):
            def receive(self):
                reply = super().receive()
                with killer.lock:
                    killer.busy.add(id(self))
                    if not killer.killed and len(killer.busy) == 2:
                        killer.kill()
                return reply

            def finish(self):
                count = super().finish()
                with killer.lock:
                    killer.finished += 1
                    if killer.finished == 3:
                        killer.kill()
                return count

        return Killed


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """What this process keeps in the system's folder for temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def test_killed_in_a_round_and_at_the_end_of_a_session_every_round_has_the_bits_of_training_in_process(
    tmp_path, folders, monkeypatch
):
    killer, said = Killer(), []
    monkeypatch.setattr(device, "StreamClient", killer.client())
    given = settings(write_four(tmp_path, dropout=0.25, more="deadline = 300.0"), journal=True, lease=True)
    rounds = served(grid_of(given), "r1", given, say=said.append)
    assert len(set(killer.killed)) == 2
    assert [list(step.record.clients) for step in rounds] == [EVERYBODY, EVERYBODY]
    whole = run(study_for(settings(tmp_path / "four.toml")))
    assert [step.record.weights_sha256 for step in rounds] == [step.record.weights_sha256 for step in whole]
    assert sum("signal 9" in line for line in said) == 2
    assert "2 sessions go on from their journals" in said
    assert list(folders.glob("cutwater-*")) == []
    wait_until(lambda: hosts() == [])


def test_it_is_not_for_a_study_that_only_this_process_knows(tmp_path):
    given = settings(write_four(tmp_path), journal=True)
    with pytest.raises(RunError, match="journal is true, but"):
        serve(grid_of(given), "r1", given, study=small_study())
