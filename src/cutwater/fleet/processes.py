"""Processes of ours and of theirs: started with a token in their environment, ended by it to the last one.

Flower's daemons start processes of their own, some of them detached, which outlive them for a while. All of
them inherit the environment, so whoever carries the token belongs to this fleet and nobody else does.
"""

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cutwater.base.errors import EngineError

TOKEN = "CUTWATER_FLEET"
_PR_SET_PDEATHSIG = 1
_end_with_parent = (
    partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGTERM) if sys.platform == "linux" else None
)
"""Should we be killed without a chance to end our children, the kernel asks them to."""
_GRACE = 3.0
"""Seconds that processes have to end on their own."""


class Processes:
    """A set of processes that ends as a whole; use it in a ``with`` block."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self.token = folder, secrets.token_hex(16)
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        scripts = str(Path(sys.executable).parent)
        path = os.pathsep.join([scripts, os.environ.get("PATH", "")])
        self.environment = {**os.environ, **environment, "PATH": path, TOKEN: self.token}
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, name: str, command: Sequence[str], extra: Mapping[str, str] | None = None) -> int:
        """Start a process whose output goes to a log of its name; its pid."""
        try:
            with (self.logs / f"{name}.log").open("ab") as log, _signals_wait():
                self._children[name] = child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**self.environment, **(extra or {})},
                    # Ctrl-C is for us to hear: we end the others in order.
                    start_new_session=True,
                    preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call
                )
        except OSError as error:
            raise EngineError(f"{command[0]} can't be started: {error.strerror or error}") from error
        return child.pid

    def wait(self, name: str, timeout: float | None = None) -> int:
        """The exit code of a process, when it has ended."""
        try:
            return self._children[name].wait(timeout)
        except subprocess.TimeoutExpired:
            raise EngineError(f"{name} did not end within {timeout:g} s; {self.said(name)}") from None

    def running(self, name: str) -> bool:
        """Whether a process has not ended."""
        return self._children[name].poll() is None

    def running_programs(self, programs: Collection[str]) -> list[int]:
        """Those of our processes, or started by them, that run one of these programs."""
        return [pid for pid in carriers(self.token) if _program(pid) in programs]

    def stop(self, name: str) -> None:
        """End one process: politely, then by force."""
        child = self._children[name]
        child.terminate()
        try:
            child.wait(_GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def check(self, name: str) -> None:
        """Complain if a process that must run has ended."""
        code = self._children[name].poll()
        if code is not None:
            raise EngineError(f"{name} ended with exit code {code}; {self.said(name)}")

    def log(self, name: str) -> str:
        """All that processes of this name have said."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def said(self, name: str, about: str = "") -> str:
        """The last line of a process's log that has something in it, or names an error; else its last."""
        with contextlib.suppress(OSError):
            lines = self.log(name).strip().splitlines()
            wanted = [line for line in lines if about and about in line]
            wanted = wanted or [line for line in lines if "Error" in line] or lines
            return f"it said last: {wanted[-1].strip()[:300]}" if wanted else "it said nothing"
        return "it left no log"

    def end(self) -> None:
        """End everything that carries the token: politely, then by force."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + _GRACE
        while self._alive() and time.monotonic() < until:
            time.sleep(0.05)
        while self._alive():
            self._signal(signal.SIGKILL)
            time.sleep(0.05)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                # One that is stopped hears nothing else.
                os.kill(pid, signal.SIGCONT)

    def _alive(self) -> set[int]:
        ours = {child.pid for child in self._children.values() if child.poll() is None}
        return ours | set(carriers(self.token))


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Within, what would end us waits: Python drops whatever a handler raises in the midst of a fork."""
    heard: list[int] = []
    own: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers, nor runs them
        own = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    own = {each: handler for each, handler in own.items() if callable(handler)}
    for each in own:
        signal.signal(each, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        for each, handler in own.items():
            signal.signal(each, handler)
        for number in heard:
            signal.raise_signal(number)


def carriers(token: str) -> list[int]:
    """The processes of this machine that carry a token, zombies aside (Linux; elsewhere none is found)."""
    wanted = f"{TOKEN}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _program(pid: int) -> str:
    """The name of what a process runs; of the script, where that is Python's."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        names = [Path(word).name for word in words[:2]]
        return names[-1] if names[0].startswith("python") else names[0]
    return ""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def wait_for_port(
    port: int, seconds: float, processes: Processes, name: str, host: str = "127.0.0.1"
) -> None:
    """Wait until a process listens."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        processes.check(name)
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.1)
    raise EngineError(f"{name} did not listen on port {port} within {seconds:g} s; {processes.said(name)}")
