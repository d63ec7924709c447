"""How a call to the server ends: by its verdict, which stands, or because the connection broke."""

from datetime import UTC, datetime
from typing import NamedTuple

import grpc

from cutwater.stream.limits import VERDICT
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.ticket import Metadata

_BROKEN = {"UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL", "ABORTED"}
"""What gRPC calls a connection that broke; with our verdict attached, the same names are final."""
_MISTRUST = ("CERTIFICATE_VERIFY_FAILED", "Hostname Verification", "Peer name")
"""Words of gRPC's when a server shows another certificate than the ticket's: no use to try again."""


class LostError(Exception):
    """The connection is gone; the session need not be."""


class CallEnd(NamedTuple):
    """How a call ended, in gRPC's words."""

    status: str
    details: str
    metadata: Metadata

    @classmethod
    def of(cls, call: grpc.Call) -> "CallEnd":
        """Of a call of gRPC's public interface that is over."""
        metadata = tuple((name, value) for name, value in call.trailing_metadata() or ())
        return cls(call.code().name, call.details() or "", metadata)

    def verdict(self) -> Exception:
        """What that means: the server's refusal, or a connection that broke."""
        status, details, metadata = self
        ours = any(name == VERDICT for name, _ in metadata)
        if any(words in details for words in _MISTRUST):
            reason = (
                "the server is not the one of the ticket, or its certificate is not valid by this device's "
                f"clock ({datetime.now(UTC):%Y-%m-%d}): {details}"
            )
            return RefusedError(Status.UNAUTHENTICATED, reason)
        if status == "OK":
            return LostError("the server closed the connection")
        if not ours and status in _BROKEN:
            return LostError(details)
        known = status if status in Status.__members__ else "INTERNAL"
        return RefusedError(Status[known], details)
