"""Doors of the stream's server, and the way to it: who shows no ticket may not stay, and partitions end."""

import socket
import threading
import time

import pytest
from floods import continuation_flood
from stream_rig import QUICK, Echo, eventually, example, expected, issue

from cutwater.stream import door as door_module
from cutwater.stream.client import StreamClient
from cutwater.stream.door import EVERY, Door, Peer
from cutwater.stream.lookout import Lookout
from cutwater.stream.server import StreamServer


def run_steps(client, count, first=0):
    smashed, labels = example()
    for number in range(first, first + count):
        client.step(number, smashed, labels)


def closed_by_server(connection) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_whoever_shows_no_ticket_is_closed_and_a_session_goes_on():
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        stranger = socket.create_connection(("127.0.0.1", server.port))
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            run_steps(client, 3)
            assert eventually(lambda: closed_by_server(stranger), seconds=30)
            run_steps(client, 3, first=3)
            assert client.openings == 1, "nobody hung up on the session"
        stranger.close()


def test_headers_that_never_end_are_cut_off():
    with StreamServer(Echo(), limits=QUICK) as server:
        began = time.monotonic()
        continuation_flood(server.port, began + 60)
        assert time.monotonic() - began < 50, "the server has hung up, not the attacker"


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("ipv4:127.0.0.1:5000", Peer("127.0.0.1", 5000)),
        ("ipv6:%5B::1%5D:5000", Peer("::1", 5000)),
        ("ipv6:%5B::ffff:10.0.0.1%5D:80", Peer("10.0.0.1", 80)),
        ("unix:/tmp/x", None),
        ("", None),
    ],
)
def test_peers_are_known_by_grpcs_names(text, peer):
    assert Peer.told(text) == peer


def test_strangers_are_closed_when_memory_grows_and_those_let_in_are_not():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    door = Door(port, seconds=600.0, growth=-(2**40))  # any change is too much
    ends = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
    accepted = [listener.accept()[0] for _ in ends]
    door.let_in(f"ipv4:127.0.0.1:{ends[1].getsockname()[1]}")
    door.start()
    try:
        assert eventually(lambda: closed_by_server(ends[0]), seconds=20)
        assert not closed_by_server(ends[1])
        time.sleep(5 * EVERY)  # the listener still holds its end, and the door looks again
        assert door.shed == 1
    finally:
        door.close()
        for each in (*ends, *accepted, listener):
            each.close()


def test_a_partition_that_is_over_is_noticed_and_a_quiet_server_is_left_alone():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    back = threading.Event()
    lookout = Lookout(f"127.0.0.1:{port}", lambda: 0.0, back.set, quiet=0.0, every=0.05)
    lookout.start()
    try:
        assert not back.wait(0.5), "it can be reached all the time: it takes its time"
        listener.close()
        assert not back.wait(0.5), "nobody is there yet"
        listener = socket.create_server(("127.0.0.1", port))
        assert back.wait(20)
    finally:
        lookout.close()
        listener.close()


def test_a_session_goes_on_over_a_new_connection_when_the_way_is_back():
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            run_steps(client, 2)
            client._connections._way_is_back()
            run_steps(client, 2, first=2)
            assert client.openings == 2
    assert [number for _, number in half.steps] == [0, 1, 2, 3]


def test_the_peer_of_whoever_was_let_in_is_asked_for_once(monkeypatch):
    asked = []
    real = door_module._peer
    monkeypatch.setattr(door_module, "_peer", lambda fd, *rest: asked.append(fd) or real(fd, *rest))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as guest, listening.accept()[0] as ours:
            door = Door(port, seconds=60.0)
            door.let_in(f"ipv4:127.0.0.1:{guest.getsockname()[1]}")
            for _ in range(3):
                door._look()
            assert asked.count(ours.fileno()) == 1
            assert door._known, "and it is known as long as it is here"
        door._look()
        door._look()
        assert not door._known
