"""What idle, slow and flooding strangers cost an honest user: p99 of the page and of the stream, and memory.

    python benchmarks/doors.py

The page: 300 sockets that say nothing, then 300 that dribble a header, against none; the p99 of a user's
requests may be 1.5 times that without them. The stream: the p99 of 20 clients' steps, beside 200 that have
opened a session and do nothing (at most 1.2 times), beside 300 sockets that say nothing, and beside
connections that are reset as soon as they are made (at most 1.5 times each); and four connections of HTTP/2
headers that never end, for 20 s: the server may grow by half a GiB, and an honest session must finish.
All is measured in short turns, so that a busy machine hits both alike. Exits with 1 if a limit is
missed.
"""

import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from floods import flood
from running import SCENARIO, start
from stream_rig import example, expected

from cutwater.stream.client import StreamClient
from cutwater.stream.ticket import Ticket

REQUESTS, CROWD, SECONDS = 400, 300, 20.0
ACTIVE, IDLE, STEPS = 20, 200, 50
RESETS = 200
"""Connections that are made and reset in a second."""
TURNS = 6
SETTLED = 1.5
"""Seconds after which a crowd is there: how they come in is not the question."""
MOST_P99, MOST_BESIDE_IDLE, MOST_GROWTH = 1.5, 1.2, 512.0
HELPERS = str(Path(__file__).parents[1] / "tests" / "helpers")
TICKETS = """
import sys
sys.path.insert(0, sys.argv[1])
from stream_rig import Echo, expected, issue
from cutwater.stream.server import StreamServer
with StreamServer(Echo()) as server:
    print(server.port, flush=True)
    for line in sys.stdin:
        name = line.strip()
        ticket = issue(server, expected(steps=10**6), client=name, open_seconds=600.0, session_seconds=600.0)
        print(ticket.to_text(), flush=True)
"""
SITTING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from stream_rig import expected
from cutwater.stream.client import StreamClient
from cutwater.stream.ticket import Ticket
held = []
for number, line in enumerate(sys.stdin):
    ticket = Ticket.from_text(line)
    held.append(StreamClient(ticket, expected(steps=10**6), client=ticket.claims.client).__enter__())
    print(number, flush=True)
"""
HOST = """
import sys, time
sys.path.insert(0, sys.argv[1])
from stream_rig import Echo, example, expected, issue
from cutwater.stream.client import StreamClient
from cutwater.stream.server import StreamServer
with StreamServer(Echo()) as server:
    print(server.port, flush=True)
    sys.stdin.readline()
    with StreamClient(issue(server, expected()), expected(), client="k1") as client:
        smashed, labels = example()
        for number in range(100):
            client.step(number, smashed, labels)
            time.sleep(0.1)
        print(client.finish(), flush=True)
    sys.stdin.readline()
"""


@contextmanager
def crowd(port: int, first: bytes):
    """Sockets that say this, and a byte more now and then if they said anything."""
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CROWD if first is not None else 0)]
    ended = threading.Event()

    def dribble() -> None:
        while not ended.wait(1.0):
            for each in held:
                try:
                    each.send(b"x")
                except OSError:
                    continue

    for each in held:
        if first:
            each.sendall(first)
    if first:
        threading.Thread(target=dribble, daemon=True).start()
    time.sleep(SETTLED)
    try:
        yield
    finally:
        ended.set()
        for each in held:
            each.close()


def requests(server) -> list[float]:
    """The seconds of a user's requests."""
    took = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        assert server.get("/api/start")[0] == 200
        took.append(time.perf_counter() - began)
    return took


def within(other: AbstractContextManager[None], measure: Callable[[], list[float]]) -> list[float]:
    """What is measured beside somebody else."""
    with other:
        return measure()


def ratio(crowded: Callable[[], list[float]], alone: Callable[[], list[float]]) -> float:
    """The p99 of the one over that of the other, of all that was measured in turns."""
    alone()  # warm
    ours: list[float] = []
    others: list[float] = []
    for _ in range(TURNS):
        others += alone()
        ours += crowded()
    return statistics.quantiles(ours, n=100)[98] / statistics.quantiles(others, n=100)[98]


def page() -> dict[str, float]:
    """The p99 of a user's requests beside crowds, as multiples of that without."""
    found = {}
    with TemporaryDirectory() as folder:
        scenario = Path(folder) / "scenario.toml"
        scenario.write_text(SCENARIO)
        for server in start(Path(folder), str(scenario)):
            ask = partial(requests, server)
            for name, first in (("idle", b""), ("slow", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")):
                found[name] = ratio(lambda: within(crowd(server.port, first), ask), ask)  # noqa: B023
    return found


class Host:
    """A stream's server in a process of its own, and clients here."""

    def __init__(self) -> None:
        self._process = python(TICKETS)
        self.port = int(self._process.stdout.readline())
        self._count = 0

    def ticket(self) -> str:
        """Another client's, as a line."""
        self._count += 1
        self._process.stdin.write(f"k{self._count}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def steps(self) -> list[float]:
        """Seconds of the steps of all active clients, each with a short rest after it."""
        took, tickets = [], [Ticket.from_text(self.ticket()) for _ in range(ACTIVE)]
        smashed, labels = example()

        def work(ticket: Ticket) -> None:
            expect = expected(steps=10**6)
            with StreamClient(ticket, expect, client=ticket.claims.client) as client:
                for number in range(STEPS):
                    began = time.perf_counter()
                    client.step(number, smashed, labels)
                    took.append(time.perf_counter() - began)
                    time.sleep(0.02)

        threads = [threading.Thread(target=work, args=(ticket,)) for ticket in tickets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(took) == ACTIVE * STEPS
        return took

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait()


@contextmanager
def sitting(host: Host):
    """Clients that have opened their sessions and do nothing, in another process."""
    process = python(SITTING)
    try:
        for _ in range(IDLE):
            process.stdin.write(host.ticket())
            process.stdin.flush()
            assert process.stdout.readline()
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def resetting(port: int):
    """Somebody who connects and resets the connection, so many times a second."""
    ended = threading.Event()

    def attack() -> None:
        while not ended.wait(1 / RESETS):
            try:
                with socket.create_connection(("127.0.0.1", port)) as made:
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                continue

    thread = threading.Thread(target=attack)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def stream() -> dict[str, float]:
    """The p99 of active clients' steps beside others, as multiples of that without.

    Idle clients have a server of their own, beside one that has none: what they cost is what that costs it,
    and not what the process that plays 200 devices takes from the machine.
    """
    host, crowded = Host(), Host()
    try:
        found = {}
        with sitting(crowded):
            found[f"{IDLE} idle clients"] = ratio(crowded.steps, host.steps)
        others = {
            f"{CROWD} silent sockets": lambda: crowd(host.port, b""),
            f"{RESETS} resets a second": lambda: resetting(host.port),
        }
        for name, other in others.items():
            found[name] = ratio(lambda: within(other(), host.steps), host.steps)  # noqa: B023
        return found
    finally:
        host.close()
        crowded.close()


def python(code: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, HELPERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def flooded() -> tuple[float, int]:
    """MiB that the server grows by under endless headers, and the steps of an honest session meanwhile."""
    host = python(HOST)
    assert host.stdin is not None
    assert host.stdout is not None
    port = int(host.stdout.readline())

    def resident() -> float:
        return int(Path(f"/proc/{host.pid}/statm").read_text().split()[1]) * 4096 / 2**20

    before, peak, ended = resident(), [resident()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    host.stdin.write("go\n")
    host.stdin.flush()
    flood(port, 4, SECONDS)
    ended.set()
    watcher.join()
    finished = int(host.stdout.readline())
    host.stdin.close()
    host.kill()
    host.wait()
    return peak[0] - before, finished


def main() -> int:
    good = True
    for name, ratio in page().items():
        good &= ratio <= MOST_P99
        print(f"page: p99 beside {CROWD} {name} sockets {ratio:.2f} x (at most {MOST_P99})")
    for name, ratio in stream().items():
        most = MOST_BESIDE_IDLE if "clients" in name else MOST_P99
        good &= ratio <= most
        print(f"stream: p99 of {ACTIVE} clients' steps beside {name} {ratio:.2f} x (at most {most})")
    growth, finished = flooded()
    print(
        f"stream: growth {growth:.0f} MiB (at most {MOST_GROWTH:.0f}); the honest session: {finished} steps"
    )
    return 0 if good and growth <= MOST_GROWTH and finished == 100 else 1


if __name__ == "__main__":
    sys.exit(main())
