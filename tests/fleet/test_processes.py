"""Everything that a fleet starts ends with it: detached, stopped, deaf or orphaned."""

import os
import subprocess
import sys
import time

import pytest

from cutwater.base.errors import EngineError
from cutwater.fleet.processes import Processes, carriers, free_ports, wait_for_port

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc"), reason="NO /proc: processes can't be found here")

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
else:
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(600)
"""


def wait_until(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_detached_stopped_and_deaf_processes_end_and_others_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr("cutwater.fleet.processes._GRACE", 0.3)
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with Processes(tmp_path, {}) as processes:
            processes.start("stubborn", [sys.executable, str(script)])
            wait_until(lambda: len(carriers(processes.token)) == 2)
        assert carriers(processes.token) == []
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_program_is_found_by_its_name_and_one_that_will_not_listen_is_stopped_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("cutwater.fleet.processes._GRACE", 0.3)
    tool = tmp_path / "some-tool"
    tool.write_text(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('deaf', flush=True); time.sleep(600)"
    )
    with Processes(tmp_path, {}) as processes:
        pid = processes.start("tool", [sys.executable, str(tool), "other-tool"])
        sleep = processes.start("sleep", ["sleep", "600"])
        assert processes.running_programs(["some-tool"]) == [pid]
        assert processes.running_programs(["sleep", "none"]) == [sleep]
        assert processes.running_programs(["other-tool"]) == []
        wait_until(lambda: "deaf" in processes.log("tool"))
        processes.stop("tool")
        assert processes.running_programs(["some-tool", "sleep"]) == [sleep]


def test_an_error_inside_ends_them_too(tmp_path):
    processes = Processes(tmp_path, {})

    def interrupted():
        with processes:
            processes.start("sleep", [sys.executable, "-c", "import time; time.sleep(600)"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert carriers(processes.token) == []


INTERRUPTED_WHILE_STARTING = """
import os, signal, sys
from pathlib import Path
from cutwater.fleet.processes import Processes, carriers

def stop(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGTERM, stop)
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGTERM))
processes = Processes(Path(sys.argv[1]), {})
try:
    with processes:
        processes.start("sleep", [sys.executable, "-c", "import time; time.sleep(600)"])
        print("went on")
except KeyboardInterrupt:
    print("stopped", carriers(processes.token))
"""


def test_a_signal_in_the_midst_of_starting_a_process_is_heard(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED_WHILE_STARTING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "stopped []\n", done.stderr


def test_of_a_log_the_line_is_told_that_names_an_error(tmp_path):
    """Flower ends its complaints with a link to a page of its own."""
    said = "print('ValueError: no room'); print('see <https://flower.ai/700>')"
    with Processes(tmp_path, {}) as processes:
        processes.start("app", [sys.executable, "-c", said])
        processes.wait("app")
        assert processes.said("app") == "it said last: ValueError: no room"
        assert processes.said("app", "see") == "it said last: see <https://flower.ai/700>"


def test_a_process_that_can_not_start_or_ends_early_is_named_with_its_last_words(tmp_path):
    with Processes(tmp_path, {}) as processes:
        with pytest.raises(EngineError, match="can't be started"):
            processes.start("none", ["/no/such/program"])
        processes.start("early", [sys.executable, "-c", "print('port taken'); raise SystemExit(3)"])
        (port,) = free_ports(1)
        with pytest.raises(EngineError, match="exit code 3; it said last: port taken"):
            wait_for_port(port, 30, processes, "early")


def test_when_we_are_killed_outright_the_kernel_ends_our_children(tmp_path):
    code = """
import sys, time
from pathlib import Path
from cutwater.fleet.processes import Processes
processes = Processes(Path(sys.argv[1]), {})
processes.start("sleep", [sys.executable, "-c", "import time; time.sleep(600)"])
print(processes.token, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    token = parent.stdout.readline().strip()
    wait_until(lambda: carriers(token))
    parent.kill()
    parent.wait()
    wait_until(lambda: not carriers(token))
