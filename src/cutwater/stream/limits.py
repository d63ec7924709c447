"""Caps, patience and keepalive, and the gRPC options they become.

gRPC's own defaults would not do: no keepalive at the client and two hours at the server, pings punished, a
message cap of 4 MiB with compression allowed, and a second or more before it tries a lost server again.
"""

import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from cutwater.base.errors import EngineError
from cutwater.stream.frames import MAX_FRAME, MAX_PART

METHOD: Final = "/cutwater.stream.v1/Session"
"""A session: bytes in, bytes out, both streaming."""

LEASE: Final = "/cutwater.stream.v1/Lease"
"""A lease, likewise."""

VERDICT: Final = "cutwater-verdict"
"""Trailing metadata that tells a verdict of ours from a broken connection, which may bear the same status."""

_LONGEST_WAIT: Final = 1.0
Options = list[tuple[str, int | str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """How large, how long, how often; both ends of a stream have their own."""

    frame_bytes: int = MAX_PART
    """Payload of the frames that this end sends."""
    keepalive: float = 10.0
    """Seconds without traffic after which an end asks whether the other is there."""
    keepalive_timeout: float = 60.0
    """Seconds in which the answer must come, behind what a slow link still has queued, which may be megabytes
    in the buffers of the way; a half-open peer is found after the sum of both."""
    handshake: float = 5.0
    """Seconds a new connection has for TLS and HTTP/2 settings, and again to start a session."""
    recycle: float = 900.0
    """Seconds after which a connection is closed, whatever its peer does; a session simply resumes."""
    connect: float = 30.0
    """Seconds a client tries to open its session for the first time."""
    backoff: float = 0.05
    """Seconds before a lost connection is tried again; doubles up to a second."""
    beat: float = 1.0
    """Seconds between two signs of life that the server gives to the holder of a lease."""
    silence: float = 3.0
    """Seconds without any after which a holder tries another connection: one that a partition has cut would
    be silent for long after its end, as TCP tries again ever more rarely. A holder of which nothing is heard
    for as long and a beat is away, wherever its process may be."""
    away: float = 4.0
    """Seconds that the server waits for a holder to come back whose connection was closed, as the kernel does
    it for a process that was killed."""
    patience: float = 60.0
    """Seconds after which a holder without a connection gives up."""

    def __post_init__(self) -> None:
        if not 64 <= self.frame_bytes <= MAX_PART:
            raise EngineError(f"frame_bytes is {self.frame_bytes}, but must be between 64 and {MAX_PART}")
        for name, value in asdict(self).items():
            if not value > 0:
                raise EngineError(f"{name} is {value}, but must be above 0 seconds")

    def waits(self) -> Iterator[float]:
        """Seconds before each try of a connection that was lost, one after the other."""
        wait = self.backoff
        while True:
            yield wait * (0.5 + secrets.randbelow(1000) / 1000)
            wait = min(2 * wait, _LONGEST_WAIT)

    def common(self) -> Options:
        """What both ends set."""
        return [
            ("grpc.max_receive_message_length", MAX_FRAME),
            ("grpc.max_send_message_length", MAX_FRAME),
            # What is handed to the network at once: by gRPC's 64 KiB, a megabyte would be sixteen trips.
            ("grpc.http2.write_buffer_size", MAX_PART),
            # Nothing is inflated, ever: a compressed message arrives as it is and is refused as no frame.
            ("grpc.per_message_decompression", 0),
            ("grpc.keepalive_time_ms", _ms(self.keepalive)),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout)),
            # Without this a ping that is not answered is waited for a minute, whatever the line above says.
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ]

    def server(self) -> Options:
        """The options of a server."""
        return [
            *self.common(),
            # More pings than this are a flood; well below what any client is set to.
            ("grpc.http2.min_ping_interval_without_data_ms", _ms(min(self.keepalive, 1.0) / 2)),
            ("grpc.server_handshake_timeout_ms", _ms(self.handshake)),
            ("grpc.max_connection_idle_ms", _ms(self.handshake)),
            ("grpc.max_connection_age_ms", _ms(self.recycle)),
            ("grpc.max_connection_age_grace_ms", _ms(min(self.recycle, 5.0))),
            ("grpc.max_concurrent_streams", 4),
            ("grpc.so_reuseport", 0),
        ]

    def client(self, server_name: str) -> Options:
        """The options of a client of the server whose certificate bears this name."""
        return [
            *self.common(),
            ("grpc.ssl_target_name_override", server_name),
            ("grpc.initial_reconnect_backoff_ms", _ms(self.backoff)),
            ("grpc.min_reconnect_backoff_ms", _ms(self.handshake)),
            ("grpc.max_reconnect_backoff_ms", _ms(_LONGEST_WAIT)),
            # Channels share connections otherwise, and with them a broken one's back-off.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        ]


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
