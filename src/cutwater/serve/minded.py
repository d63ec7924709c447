"""A process that is asked things in lines of JSON, and started again whenever it dies.

Whoever asks something of it while it is gone waits, and is answered by the next one: what it is asked must be
such that it can be asked twice.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from cutwater.base.errors import EngineError
from cutwater.base.speech import Say

_TRIES: Final = 5
"""Starts in a row that come to nothing, after which it is given up."""
_PAUSE: Final = 1.0
"""Seconds between two of them."""
_LEAVES: Final = 10.0
"""Seconds that the process has to end."""


@dataclass(frozen=True)
class _Asked:
    """What was asked and not answered yet."""

    line: bytes
    answer: "Future[Any]"


class MindedProcess:
    """One process after the other, started by a command whose last argument is the socket to talk over.

    It is told ``hello`` first and says that it is ``ready``, or why it has ``refused``. What it says then and
    unasked later, goes to ``told``. Called from any thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        hello: Callable[[], Mapping[str, Any]],
        told: Callable[[Mapping[str, Any]], None],
        say: Say,
    ) -> None:
        self._name, self._command, self._hello = name, tuple(command), hello
        self._told, self._say = told, say
        self._lock = threading.Condition()
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._line: socket.socket | None = None
        self._ready, self._closed = False, threading.Event()
        self._broken: EngineError | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._mind, name=f"cutwater-{name}", daemon=True)
        self.restarts = 0
        """How often it was started again."""

    @property
    def pid(self) -> int:
        """Of the process that there is now."""
        assert self._process is not None, "it was started"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._thread.start()
        with self._lock:
            self._lock.wait_for(lambda: self._ready or self._broken is not None)
        if self._broken is not None:
            raise self._broken

    def close(self) -> None:
        """Hang up: it ends, and is not started again."""
        with self._lock:
            self._closed.set()
            if self._line is not None:
                _hang_up(self._line)
        if self._thread.is_alive():
            self._thread.join()

    def ask(self, what: str, **about: Any) -> Any:
        """What it answers; an EngineError if it says so, or can't be started any more."""
        with self._lock:
            if self._broken is not None or self._closed.is_set():
                raise self._gone()
            self._number += 1
            told = {"number": self._number, "ask": what, "about": about}
            asked = _Asked(json.dumps(told).encode() + b"\n", Future())
            self._asked[self._number] = asked
            if self._line is not None and self._ready:
                _send(self._line, asked.line)
        return asked.answer.result()

    def _gone(self) -> EngineError:
        return self._broken or EngineError(f"the process of {self._name} is not running any more")

    def _mind(self) -> None:
        """Start it, hear it out and start it again, until it is not needed or can't be started."""
        failed, why = 0, "whoever minds it has failed"
        try:
            while not self._closed.is_set() and failed < _TRIES:
                try:
                    was_ready, why = self._run()
                except OSError as error:  # no memory, or no descriptor, for another
                    was_ready, why = False, error.strerror or str(error)
                if self._closed.is_set():
                    break
                if was_ready:
                    failed, self.restarts = 0, self.restarts + 1
                    self._say(f"the process of {self._name} ended ({why}): it is started again")
                elif not self.restarts:  # it never ran, and what is wrong now will be wrong then
                    break
                else:
                    failed += 1
                    self._closed.wait(_PAUSE)
        finally:  # or whoever waits would do so for ever
            with self._lock:
                if not self._closed.is_set():
                    self._broken = EngineError(f"the process of {self._name} can't be started: {why}")
                for asked in self._asked.values():
                    asked.answer.set_exception(self._gone())
                self._asked.clear()
                self._lock.notify_all()

    def _run(self) -> tuple[bool, str]:
        """One process from start to end: whether it was ready, and how it ended."""
        line, theirs = socket.socketpair()
        with line, theirs:
            with self._lock:
                if self._closed.is_set():
                    return False, ""
                self._line = line
            self._process = process = subprocess.Popen(
                (*self._command, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            theirs.close()
            _send(line, json.dumps(self._hello()).encode() + b"\n")
            refused = self._hear(line)
            with self._lock:
                was_ready, self._ready, self._line = self._ready, False, None
            _hang_up(line)
        try:
            status = process.wait(_LEAVES)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return was_ready, refused or (f"signal {-status}" if status < 0 else f"exit status {status}")

    def _hear(self, line: socket.socket) -> str:
        """All that it says; why it refuses to start, if it does."""
        with suppress(OSError, ValueError), line.makefile("rb") as heard:  # it may die in the middle of one
            for said in heard:
                told = json.loads(said)
                if "refused" in told:
                    return str(told["refused"])
                self._note(line, told)
        return ""

    def _note(self, line: socket.socket, told: Mapping[str, Any]) -> None:
        if "number" not in told:
            self._told(told)
        with self._lock:
            if "ready" in told:
                self._ready = True
                for asked in self._asked.values():
                    _send(line, asked.line)
            elif "number" in told:
                answer = self._asked.pop(told["number"]).answer
                if "error" in told:
                    answer.set_exception(EngineError(told["error"]))
                else:
                    answer.set_result(told["answer"])
            self._lock.notify_all()


def _send(line: socket.socket, data: bytes) -> None:
    """To a process that may be gone, which shows when it is heard."""
    with suppress(OSError):
        line.sendall(data)


def _hang_up(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
