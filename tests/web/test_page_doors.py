"""Doors of the page's server: sockets that ask for nothing keep nobody out, and refusals are answers."""

import contextlib
import http.client
import socket
import time

import pytest

from cutwater.web import doors
from cutwater.web.guard import LARGEST_BODY


@contextlib.contextmanager
def crowd(port, count, first=b""):
    """As many connections that say this and nothing more."""
    held = []
    try:
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", port), 10))
            if first:
                held[-1].sendall(first)
        yield held
    finally:
        for each in held:
            each.close()


@pytest.mark.parametrize(
    "first", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "], ids=["idle", "slow"]
)
def test_three_hundred_sockets_that_do_not_ask_keep_nobody_out(server, first):
    with crowd(server.port, 300, first) as held:
        for _ in range(20):
            assert server.get("/api/start")[0] == 200
        left = sum(not closed(each) for each in held)
        assert left <= doors.MOST_OF_ONE + 20


def closed(connection) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_body_that_is_too_large_is_answered_and_not_reset(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = b" " * (LARGEST_BODY + 2**20)
    connection.request("POST", "/api/plan", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"16 MiB at most" in answer.read()
    connection.close()


@pytest.mark.parametrize("host", ["evil.com@127.0.0.1", "evil.com#@127.0.0.1", "127.0.0.1/evil.com", "a b"])
def test_a_host_that_hides_another_is_refused(server, host):
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        end = time.monotonic() + 10
        while time.monotonic() < end and (more := connection.recv(65536)):
            answer += more
    assert answer.split(b" ", 2)[1] in (b"421", b"400")
