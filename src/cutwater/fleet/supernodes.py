"""A fleet on one machine: a SuperLink and one SuperNode for each client, on loopback, by Flower's own tools.

TLS and node authentication are on, telemetry and update checks are off, Flower's home is a folder of the
fleet's own, and nothing is left running or lying about.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cutwater.base.errors import EngineError
from cutwater.base.speech import Say, quiet
from cutwater.base.toml import toml_value
from cutwater.federate.from_scenario import train_settings
from cutwater.fleet.credentials import make_certificate, make_node_key
from cutwater.fleet.processes import Processes, free_ports, wait_for_port
from cutwater.flower.scaffold import PACKAGE, scaffold
from cutwater.runs.layout import METRICS
from cutwater.runs.metrics import read
from cutwater.scenario.file import load_scenario

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "GRPC_VERBOSITY": "NONE",  # bad handshakes would fill the logs
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONWARNINGS": "ignore",
    # Every session runs in one thread; more would only get in each other's way.
    "OMP_NUM_THREADS": "1",
}
_CONNECTION = "fleet"
_COMPLAINT = "cutwater: "
"""How the ServerApp's own words begin in a log."""
_START = 180.0
"""Seconds that Flower's daemons have to come up, on a machine that is busy."""
_APPS = ("flwr-serverapp", "flwr-simulation")
"""The programs in which Flower runs the server's side of an app."""
_AFTERMATH = 15.0
"""Seconds that `flwr run` may go on after that program has ended; in good order it takes one or two."""


class LocalFleet:
    """The processes of a fleet; a context manager that ends all of them."""

    def __init__(
        self,
        scenario: str | Path,
        *,
        simulation: bool = False,
        host: str = "127.0.0.1",
        say: Say = quiet,
    ) -> None:
        self.host = host
        """The address of this machine that nodes find the server at."""
        self.scenario = Path(scenario).resolve()
        self.names = tuple(load_scenario(self.scenario).fleet.names)
        self.simulation, self._say = simulation, say
        self.nodes: dict[str, int] = {}
        """The pid of every client's SuperNode."""

    def __enter__(self) -> "LocalFleet":
        self.folder = Path(tempfile.mkdtemp(prefix="cutwater-fleet-"))
        try:
            home = self.folder / "flwr"
            home.mkdir()
            self.processes = Processes(self.folder, {**QUIET, "FLWR_HOME": str(home)})
            self._port, *self._node_ports = free_ports(1 + len(self.names))
            self._start_superlink(home)
            if not self.simulation:
                self._start_nodes()
            self.app = scaffold(
                self.folder / "app", self.scenario.read_text(encoding="utf-8"), len(self.names)
            )
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and remove the fleet's folder."""
        if hasattr(self, "processes"):
            self.processes.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self,
        run_dir: str | Path,
        *,
        planner: str = "exact",
        rounds: int | None = None,
        emulate: bool = True,
        lease: bool = True,
        journal: bool = False,
        stream_port: int = 0,
        session_port: int = 0,
        scenario: str | None = None,
        name: str = "run",
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """`flwr run` until it is over; how it went is in the run folder.

        ``scenario`` may name the app's own copy instead of the file itself, which finds files beside it;
        ``meanwhile`` is called about twice a second.
        """
        played, kept = scenario or str(self.scenario), Path(run_dir) / METRICS
        config = {
            "scenario": played,
            "planner": planner,
            "rounds": rounds or 0,
            "run-dir": str(Path(run_dir).resolve()),
            "emulate": emulate,
            "lease": lease,
            "enrol-at-once": 2 * (os.cpu_count() or 1),
            "stream-host": self.host,
            "stream-port": stream_port,
            "journal": journal,
            "session-port": session_port,
            "wait": 2 * _START,
        }
        words = " ".join(f"{key}={toml_value(value)}" for key, value in config.items())
        command = ["flwr", "run", str(self.app), _CONNECTION, "--stream", "--run-config", words]
        if self.simulation:
            command += ["--federation-config", f"num-supernodes={len(self.names)}"]
        wanted = rounds or train_settings(load_scenario(self.app / PACKAGE / played)).rounds
        app, before = _Pulse(self.processes), self._complaints(name)
        self.processes.start(name, command)
        while self.processes.running(name):
            time.sleep(0.5)
            meanwhile()
            if app.stopped():
                self.processes.stop(name)
                if _done(kept, wanted):
                    return  # Flower takes long to tell that all is over, where many nodes end at once.
                raise EngineError(
                    "the run's ServerApp ended without a word, as if it was killed: run it again with the "
                    "same folder, and it goes on after the last round that was kept"
                )
        failed = self.processes.wait(name) != 0
        if failed or self._complaints(name) > before:
            raise EngineError(f"the run failed: {self.complaint(name)}")
        if not _done(kept, wanted):
            # So it is, too, where Flower gives a run up before its ServerApp begins.
            raise EngineError(
                f"flwr run ended, but only {len(read(kept))} of {wanted} rounds were kept: "
                f"{self.processes.said(name)}; run it again with the same folder"
            )

    def complaint(self, name: str) -> str:
        """What went wrong in a run, as far as its log says."""
        return self.processes.said(name, _COMPLAINT)

    def _complaints(self, name: str) -> int:
        """How many there are in the log of all runs of this name."""
        with suppress(FileNotFoundError):
            return self.processes.log(name).count(_COMPLAINT)
        return 0

    def superlink_of(self, name: str) -> str:
        """Where a client's node finds the SuperLink."""
        return f"{self.host}:{self._port}"

    def within(self, name: str) -> Sequence[str]:
        """What a client's SuperNode is started by, such as a command that enters a network of its own."""
        return ()

    def start_node(self, name: str) -> None:
        """Start the SuperNode of a client."""
        port = self._node_ports[self.names.index(name)]
        self.nodes[name] = self.processes.start(
            self._node(name),
            [
                *self.within(name),
                "flower-supernode",
                *("--superlink", self.superlink_of(name), "--root-certificates", str(self._certificate)),
                *("--auth-supernode-private-key", str(self.folder / self._node(name))),
                *("--host", "127.0.0.1", "--port", str(port)),
                *("--node-config", f"client={toml_value(name)}"),
            ],
        )

    def _start_superlink(self, home: Path) -> None:
        self._say("starting the SuperLink")
        self._certificate, key = make_certificate(self.folder, self.host)
        common = ["flower-superlink", "--host", self.host, "--port", str(self._port)]
        common.append("--disable-runtime-dependency-installation")
        secure = [
            *("--ssl-certfile", str(self._certificate), "--ssl-keyfile", str(key)),
            *("--ssl-ca-certfile", str(self._certificate), "--enable-supernode-auth"),
        ]
        trust = f"root-certificates = {toml_value(str(self._certificate))}"
        if self.simulation:
            secure, trust = ["--insecure", "--simulation"], "insecure = true"
        self.processes.start("superlink", [*common, *secure])
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{_CONNECTION}"\n\n[superlink.{_CONNECTION}]\n'
            f'address = "{self.host}:{self._port}"\n{trust}\n',
            encoding="utf-8",
        )
        wait_for_port(self._port, _START, self.processes, "superlink", self.host)

    def _start_nodes(self) -> None:
        self._say(f"registering {len(self.names)} nodes")
        self._register(self.names)
        self._say("starting them")
        for name in self.names:
            self.start_node(name)

    def _register(self, names: Sequence[str]) -> None:
        """Give the nodes of these clients keys, and let the SuperLink know them."""
        calls = {}
        for name in names:
            private, public = (self.folder / f"{self._node(name)}{end}" for end in ("", ".pub"))
            private.unlink(missing_ok=True)
            make_node_key(self.folder, private.name)
            command = ["flwr", "supernode", "register", str(public), _CONNECTION, "--name", name]
            calls[f"register-{private.name}"] = command
        self._all(calls)

    def _node(self, name: str) -> str:
        return f"node-{self.names.index(name)}"

    def _all(self, calls: Mapping[str, Sequence[str]]) -> None:
        for name, command in calls.items():
            self.processes.start(name, command)
        for name, command in calls.items():
            if self.processes.wait(name, _START):
                raise EngineError(f"{' '.join(command[:3])} failed: {self.processes.said(name)}")


def _done(kept: Path, wanted: int) -> bool:
    """Whether so many rounds of a run were kept, or as many as its patience allowed."""
    lines = read(kept)
    return bool(lines) and (lines[-1].stopped is not None or lines[-1].round >= wanted)


class _Pulse:
    """Whether the server's side of a run, once begun, has ended without those who wait for it being told.

    Flower takes a minute of silence to notice that, and `flwr run` then ends as if all had gone well.
    """

    def __init__(self, processes: Processes) -> None:
        self._processes, self._others = processes, set(processes.running_programs(_APPS))
        self._seen = False
        self._since: float | None = None

    def stopped(self) -> bool:
        """Asked again and again: whether it is over."""
        alive = set(self._processes.running_programs(_APPS)) - self._others
        if alive or not self._seen:
            self._seen, self._since = bool(alive), None
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since > _AFTERMATH
