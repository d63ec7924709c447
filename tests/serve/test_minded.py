"""A process that is minded: what it is asked it answers in the end, however often it dies."""

import os
import signal
import sys
import threading
import time

import pytest

from cutwater.base.errors import EngineError
from cutwater.serve import minded
from cutwater.serve.minded import MindedProcess

SCRIPT = """
import json, os, socket, sys
line = socket.socket(fileno=int(sys.argv[-1]))
heard = line.makefile("rb")

def say(told):
    line.sendall(json.dumps(told).encode() + b"\\n")

hello = json.loads(heard.readline())
if hello["starts"] in hello["refuse"]:
    say({"refused": "not today"})
    raise SystemExit
if hello["starts"] in hello["die"]:
    os._exit(3)
say({"ready": hello["starts"]})
for request in heard:
    told = json.loads(request)
    about = told["about"]
    if told["ask"] == "once" and hello["starts"] == 1:
        say({"over": "so far"})
        os._exit(7)
    if told["ask"] == "wrong":
        say({"number": told["number"], "error": "that is wrong"})
    else:
        say({"number": told["number"], "answer": [hello["starts"], about]})
"""


@pytest.fixture
def made(monkeypatch):
    """Makes processes, and ends them."""
    monkeypatch.setattr(minded, "_PAUSE", 0.01)
    every = []

    def make(**hello):
        starts, told, said = [], [], []

        def greet():
            starts.append(None)
            return {"refuse": [], "die": [], **hello, "starts": len(starts)}

        process = MindedProcess("tests", [sys.executable, "-c", SCRIPT], greet, told.append, said.append)
        process.heard, process.said = told, said
        every.append(process)
        return process

    yield make
    for process in every:
        process.close()


def test_what_was_asked_of_one_that_died_is_answered_by_the_next(made):
    process = made()
    process.start()
    assert process.ask("what", it="is") == [1, {"it": "is"}]
    assert process.ask("once", more=[1, 2]) == [2, {"more": [1, 2]}]
    assert process.restarts == 1
    assert process.heard == [{"ready": 1}, {"over": "so far"}, {"ready": 2}]
    assert process.said == ["the process of tests ended (exit status 7): it is started again"]


def test_what_is_asked_while_there_is_none_waits_for_the_next(made):
    process = made(die=[2, 3], refuse=[4])
    process.start()
    os.kill(process.pid, signal.SIGKILL)
    assert process.ask("what") in ([1, {}], [5, {}])  # it may have been quicker than the signal
    deadline = time.monotonic() + 60
    while process.ask("what") != [5, {}]:
        assert time.monotonic() < deadline
    assert "signal 9" in process.said[0]


def test_an_error_is_the_asker_s(made):
    process = made()
    process.start()
    with pytest.raises(EngineError, match="that is wrong"):
        process.ask("wrong")
    assert process.ask("what") == [1, {}]


@pytest.mark.parametrize(("hello", "why"), [({"refuse": [1]}, "not today"), ({"die": [1]}, "exit status 3")])
def test_one_that_can_t_be_started_says_so_at_once(made, hello, why):
    process = made(**hello)
    with pytest.raises(EngineError, match=f"the process of tests can't be started: {why}"):
        process.start()


def test_one_that_can_t_be_started_again_is_given_up_and_all_who_ask_are_told(made):
    process = made(die=[2, 3, 4, 5, 6])
    process.start()
    with pytest.raises(EngineError, match="can't be started: exit status 3"):
        process.ask("once")
    with pytest.raises(EngineError, match="can't be started: exit status 3"):
        process.ask("what")


def test_one_that_is_closed_ends_and_nobody_waits_for_it(made):
    process = made()
    process.start()
    pid = process.pid
    closing = threading.Thread(target=process.close)
    closing.start()
    closing.join(30)
    assert not closing.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(EngineError, match="not running any more"):
        process.ask("what")


def test_one_whose_command_can_t_be_run_says_so_and_nobody_waits(tmp_path):
    process = MindedProcess("tests", [str(tmp_path / "nothing")], dict, print, print)
    with pytest.raises(EngineError, match="the process of tests can't be started: No such file"):
        process.start()
    with pytest.raises(EngineError, match="can't be started"):
        process.ask("what")
    process.close()


def test_one_that_can_t_be_run_any_more_is_given_up_and_so_is_what_was_asked(made, tmp_path):
    command = tmp_path / "python"
    command.symlink_to(sys.executable)
    process = made()
    process._command = (str(command), *process._command[1:])
    process.start()
    command.unlink()
    with pytest.raises(EngineError, match="can't be started: No such file"):
        process.ask("once")
    with pytest.raises(EngineError, match="can't be started: No such file"):
        process.ask("what")
