"""The link probe: rates over TLS, certificate by fingerprint."""

import socket
import threading

import pytest

pytest.importorskip(
    "grpc", reason="FLOWER IS MISSING, nothing of it is tested: pip install 'cutwater[flower]'"
)

from cutwater.base.errors import EngineError
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
