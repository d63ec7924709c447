"""Issues the tickets of a stream's server, which may be in this process or in another."""

import math
import re
import secrets
from typing import Unpack

from cutwater.base.errors import EngineError
from cutwater.stream.ticket import Claimed, Claims, Ticket, TicketKey
from cutwater.stream.tls import Certificate


class Office:
    """Whoever has a server's key and certificate."""

    def __init__(self, key: TicketKey, certificate: Certificate, advertise: str, port: int = 0) -> None:
        self._key, self._certificate, self._advertise = key, certificate, advertise
        self.port = port
        """Where the server listens."""

    @property
    def address(self) -> str:
        """Where clients find it: what tickets say; the host to advertise, with a port of its own or ours."""
        has_port = re.search(r"(^[^:]*|\]):[0-9]+$", self._advertise)
        return self._advertise if has_port else f"{self._advertise}:{self.port}"

    def issue(self, *, open_seconds: float, session_seconds: float, **claimed: Unpack[Claimed]) -> Ticket:
        """A ticket under a name of its own, for this server; both times count from now."""
        if not 0 < open_seconds <= session_seconds < math.inf:
            raise EngineError(
                f"open_seconds is {open_seconds} and session_seconds {session_seconds}, but the first must "
                f"be above 0, not above the second, and both finite"
            )
        claims = Claims(
            id=secrets.token_hex(16),
            address=self.address,
            server_name=self._certificate.name,
            fingerprint=self._certificate.fingerprint,
            open_seconds=open_seconds,
            session_seconds=session_seconds,
            **claimed,
        )
        return self._key.issue(claims, self._certificate.certificate)
