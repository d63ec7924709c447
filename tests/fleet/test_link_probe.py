"""The link probe: rates over TLS, certificate by fingerprint."""

import contextlib
import os
import resource
import socket
import threading
import time

import pytest

pytest.importorskip(
    "grpc", reason="FLOWER IS MISSING, nothing of it is tested: pip install 'cutwater[flower]'"
)

from cutwater.base.errors import EngineError
from cutwater.fleet import link_probe
from cutwater.fleet.link_probe import EchoServer, probe_link


def test_a_link_is_measured_and_the_certificate_is_checked():
    with EchoServer() as server:
        link = probe_link(
            "127.0.0.1", server.port, fingerprint=server.certificate.fingerprint, bytes_=100_000
        )
        assert link.up > 0
        assert link.down > 0
        with pytest.raises(EngineError, match="has fingerprint"):
            probe_link("127.0.0.1", server.port, fingerprint="00" * 32)


def test_nobody_there_is_one_sentence():
    with EchoServer() as server:
        port = server.port
    with pytest.raises(EngineError, match="can't be probed"):
        probe_link("127.0.0.1", port)


@pytest.mark.parametrize("host", ["a" * 70, "a..b"])
def test_a_name_that_no_host_can_have_is_one_sentence(host):
    with pytest.raises(EngineError, match="can't be probed"):
        probe_link(host, 1)


def test_a_server_outlives_garbage_and_leaves_no_thread():
    before = threading.active_count()
    with EchoServer() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert probe_link("127.0.0.1", server.port, bytes_=1000).round_trip > 0
    assert threading.active_count() <= before + 2


def test_a_server_without_descriptors_goes_on_when_there_are_some():
    before, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    with EchoServer() as server, socket.socket() as waiting:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (waiting.fileno() + 1, before[1]))
            with contextlib.suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            waiting.connect(("127.0.0.1", server.port))
            time.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for each in taken:
                os.close(each)
        assert probe_link("127.0.0.1", server.port, bytes_=1000).round_trip > 0


def test_those_who_say_nothing_are_answered_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(link_probe, "_AT_ONCE", 2)
    with EchoServer() as server:
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        with pytest.raises(EngineError, match="can't be probed"):
            probe_link("127.0.0.1", server.port, bytes_=1000)
        silent.pop().close()
        end = time.monotonic() + 30
        while True:
            try:
                assert probe_link("127.0.0.1", server.port, bytes_=1000).round_trip > 0
                break
            except EngineError:
                assert time.monotonic() < end, "there is room again"
        silent.pop().close()
