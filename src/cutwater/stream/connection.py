"""One connection of a device to the server: the faster way where this grpcio has it, else the public one."""

import logging
import os
from typing import Final, Protocol

import grpc

from cutwater.stream.limits import Limits
from cutwater.stream.messages import Assembler, Message
from cutwater.stream.pace import Frames
from cutwater.stream.plain_call import PlainCall
from cutwater.stream.ticket import Metadata, Ticket

try:
    from cutwater.stream.fast_call import FastCall, OtherGrpcError
except (AttributeError, ImportError):
    HAS_FAST_CALL = False
else:
    HAS_FAST_CALL = True

log = logging.getLogger(__name__)
SWITCH: Final = "CUTWATER_PLAIN_GRPC"
"""Set in the environment, it has gRPC's public interface used in any case."""
FAST = HAS_FAST_CALL and not os.environ.get(SWITCH)
"""Which way is taken, as far as that is known at import."""


class Connection(Protocol):
    """A connection; one thread at a time, but any may close it.

    One that was asked for threads may be sent over by one thread while another receives.
    """

    received: int
    """Parts that have arrived at the server, as far as we know."""

    def send(self, frames: Frames, *, alone: bool = False) -> None:
        """Hand the frames over as gRPC takes them; if it no longer does, :meth:`receive` knows why.

        ``alone`` promises a single frame, and that nothing else is sent before its answer was received.
        """

    def receive(self, assembler: Assembler) -> Message:
        """The next message, when it is there; raises LostError or RefusedError when none will come."""

    def close(self) -> None:
        """Hang up; whoever waits for a message is told that the connection is lost."""


def connect(
    ticket: Ticket, limits: Limits, metadata: Metadata, seconds: float, *, threads: bool = False
) -> Connection:
    """Open a connection to a ticket's server, for so many seconds at most.

    With ``threads`` it is gRPC's public way in any case, which sends and receives at the same time.
    """
    if FAST and FastCall.works and not threads:
        channel = channel_to(ticket, limits)
        try:
            return FastCall(channel, limits, metadata, seconds)
        except OtherGrpcError as error:
            channel.close()
            log.info("the stream uses gRPC's public interface, which is slower: %s", error)
    return PlainCall(channel_to(ticket, limits), limits, metadata, seconds)


def channel_to(ticket: Ticket, limits: Limits) -> grpc.Channel:
    """A channel to a ticket's server, and to no other."""
    credentials = grpc.ssl_channel_credentials(root_certificates=ticket.certificate.encode())
    return grpc.secure_channel(ticket.claims.address, credentials, limits.client(ticket.claims.server_name))
