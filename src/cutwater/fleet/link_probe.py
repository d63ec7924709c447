"""How fast a link is: bytes up and bytes down over TLS, timed by the device.

A server answers with ``cutwater probe --listen``; nothing it receives is kept or parsed beyond a count. Each
direction is timed until its last byte is acknowledged, so that buffers on the way do not flatter.
"""

import contextlib
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cutwater.base.errors import EngineError
from cutwater.stream.tls import Certificate

_HELLO = b"cutwater-echo-1\n"
_COUNTS = struct.Struct("<QQ")
MOST = 1 << 30
"""Bytes in one direction that a server takes part in."""
_CHUNK = bytes(1 << 16)
_TIMEOUT = 60.0
_AT_ONCE = 64
"""Devices that a server answers at once; whoever comes besides is hung up on."""
_PAUSE = 0.1
"""Seconds until a server that has no room for another connection looks again."""


@dataclass(frozen=True)
class Link:
    """A measured link."""

    up: float
    """Bits per second to the server."""
    down: float
    """Bits per second from it."""
    round_trip: float
    """Seconds of a message without content, there and back."""
    fingerprint: str
    """SHA-256 of the certificate that the server showed."""


class EchoServer:
    """Answers probes until it is closed; a context manager."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.certificate = Certificate.self_signed()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            # The ssl module reads keys from files alone; this one is gone before anyone connects.
            path = Path(folder, "pair.pem")
            path.touch(mode=0o600)
            path.write_bytes(self.certificate.key + self.certificate.certificate.encode())
            self._context.load_cert_chain(path)
        try:
            self._listener = socket.create_server((host, port))
        except OSError as error:
            raise EngineError(
                f"{host}:{port} can't be listened on: {error.strerror or error}; choose another port"
            ) from error
        self.port = int(self._listener.getsockname()[1])
        self._closed, self._room = threading.Event(), threading.Semaphore(_AT_ONCE)
        self._thread = threading.Thread(target=self._accept, name="cutwater-echo", daemon=True)

    def __enter__(self) -> "EchoServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # there is no descriptor for it, or it is gone already
                self._closed.wait(_PAUSE)
                continue
            if self._room.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._answer(connection)
        finally:
            self._room.release()

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_TIMEOUT)
        with (
            contextlib.suppress(OSError, EngineError),
            connection,
            self._context.wrap_socket(connection, server_side=True) as line,
        ):
            if _receive(line, len(_HELLO)) != _HELLO:
                return
            while True:
                up, down = _COUNTS.unpack(_receive(line, _COUNTS.size))
                if up > MOST or down > MOST:
                    return
                _swallow(line, up)
                for part in _parts(down):
                    line.sendall(part)
                line.sendall(b"\1")


def probe_link(
    host: str,
    port: int,
    *,
    fingerprint: str | None = None,
    bytes_: int = 1 << 21,
    clock: Callable[[], float] = time.perf_counter,
) -> Link:
    """Measure the link to an echo server; the certificate must have the fingerprint, if one is given."""
    if not 1 <= bytes_ <= MOST:
        raise EngineError(f"{bytes_} bytes can't be sent: give a number between 1 and {MOST}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The server's certificate is its own authority: it is known by its fingerprint or not at all.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=_TIMEOUT) as connection,
            context.wrap_socket(connection) as line,
        ):
            found = sha256(line.getpeercert(binary_form=True) or b"").hexdigest()
            if fingerprint is not None and found != fingerprint.lower().replace(":", ""):
                raise EngineError(f"the server's certificate has fingerprint {found}, not {fingerprint}")
            line.sendall(_HELLO)
            trips = [_timed(line, 0, 0, clock) for _ in range(5)]
            rest = min(trips)
            up = _timed(line, bytes_, 0, clock) - rest
            down = _timed(line, 0, bytes_, clock) - rest
    except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
        raise EngineError(f"{host}:{port} can't be probed: {error}; is a server listening there?") from error
    return Link(8 * bytes_ / max(up, 1e-9), 8 * bytes_ / max(down, 1e-9), rest, found)


def _timed(line: ssl.SSLSocket, up: int, down: int, clock: Callable[[], float]) -> float:
    began = clock()
    line.sendall(_COUNTS.pack(up, down))
    for part in _parts(up):
        line.sendall(part)
    _swallow(line, down)
    _receive(line, 1)
    return clock() - began


def _parts(count: int) -> Iterator[bytes]:
    while count > 0:
        yield _CHUNK[:count]
        count -= len(_CHUNK)


def _swallow(line: ssl.SSLSocket, count: int) -> None:
    while count > 0:
        count -= len(_receive(line, min(count, len(_CHUNK))))


def _receive(line: ssl.SSLSocket, count: int) -> bytes:
    parts = []
    while count > 0:
        part = line.recv(count)
        if not part:
            raise EngineError(f"the other end closed the connection {count} bytes too early")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
