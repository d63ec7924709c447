"""Half a minute without a network, in namespaces: sessions and leases go on soon after its end."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from partitions import places
from stream_rig import Echo, eventually, expected, issue

from cutwater.stream.lease import News
from cutwater.stream.server import StreamServer

DEVICE = """
import sys, threading, time
from stream_rig import example, expected
from cutwater.stream.client import StreamClient
from cutwater.stream.lease_holder import LeaseHolder
from cutwater.stream.ticket import Ticket
session, lease = (Ticket.from_text(sys.stdin.readline()) for _ in range(2))
name, steps = sys.argv[1], int(sys.argv[2])
def hold():
    with LeaseHolder(lease, client=name, most=1 << 20) as held:
        for letter in held.letters():
            held.post(letter)
threading.Thread(target=hold, daemon=True).start()
smashed, labels = example()
with StreamClient(session, expected(steps=steps), client=name) as client:
    for number in range(steps):
        client.step(number, smashed, labels)
        print(number, flush=True)
        time.sleep(0.1)
    print(client.finish(), flush=True)
time.sleep(3600)
"""
PARTITION, MOST = 30.0, 10.0
STEPS = 420


class Device:
    """A process in a namespace that takes part in a session and holds a lease."""

    def __init__(self, server, place, name):
        self.name, self.place, self.lines = name, place, []
        session = issue(server, expected(steps=STEPS), client=name, session_seconds=600.0, open_seconds=300.0)
        self.lease = server.lease(run="r", client=name, most=1 << 20, open_seconds=300.0)
        # Each reaches the server at the address of its own cable.
        tickets = [f"{ticket.to_text()}\n" for ticket in (session, self.lease)]
        self.process = place.run(
            *(sys.executable, "-c", DEVICE, name, str(STEPS)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                "PYTHONPATH": f"{Path(__file__).parents[2] / 'src'}:{Path(__file__).parents[1] / 'helpers'}"
            },
        )
        self.process.stdin.write("".join(tickets))
        self.process.stdin.flush()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.strip()))

    def stepped_after(self, moment):
        return next((at for at, _ in self.lines if at > moment), None)


@pytest.mark.chaos
@pytest.mark.parametrize("who", ["one of two", "both of two"])
def test_half_a_minute_without_a_network_is_over_within_ten_seconds_of_its_end(who, record_property):
    half = Echo()
    try:
        context = places(2)
        cables = context.__enter__()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces need more rights than this test has: {error}")
    devices = []
    try:
        with StreamServer(half, host="0.0.0.0", advertise="0.0.0.0") as server:
            for number, place in enumerate(cables):
                server._office._advertise = place.here
                devices.append(Device(server, place, f"k{number}"))
            assert eventually(lambda: all(len(each.lines) > 5 for each in devices), seconds=120)
            out = devices if who == "both of two" else devices[:1]
            for each in out:
                each.place.cut_off()
            cut = time.monotonic()
            time.sleep(PARTITION)
            others = [each for each in devices if each not in out]
            assert all(each.stepped_after(cut + PARTITION / 2) for each in others), "nobody else is held up"
            for each in out:
                each.place.join()
            joined = time.monotonic()
            assert eventually(lambda: all(each.stepped_after(joined) for each in out), seconds=90)
            late = max(each.stepped_after(joined) - joined for each in out)
            back = _back(server, {each.name for each in out}, joined)
            assert eventually(
                lambda: all(each.lines[-1][1] == str(STEPS) and len(each.lines) > STEPS for each in devices),
                seconds=120,
            )
        for each in devices:
            assert [number for name, number in half.steps if name == each.name] == list(range(STEPS))
    finally:
        for each in devices:
            each.process.kill()
            each.process.wait()
        context.__exit__(None, None, None)
    record_property("session goes on after s", round(late, 2))
    record_property("lease goes on after s", round(back, 2))
    assert late <= MOST
    assert back <= MOST


def _back(server, names, joined):
    """Seconds until all of these were there again, as the server was told; they must have been away."""
    away, here = set(), set()
    while here != names:
        event = server.events.get(timeout=60)
        if event.client in names and event.news is News.AWAY:
            away.add(event.client)
        elif event.client in names & away and event.news is News.HERE:
            here.add(event.client)
    assert away == names
    return time.monotonic() - joined
