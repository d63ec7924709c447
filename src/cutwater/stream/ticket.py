"""Session tickets: who may open which session at which server, for how long, once.

A ticket travels over an authenticated channel (Flower's) to its client. Its body is bound to run, round,
client and cut; its secret is HMAC-SHA-256 of the body under a key that the server makes for each run. The
secret never crosses the stream: to open a session, the client proves that it holds it by an HMAC over the
opening. So the server recomputes everything from the body, and an altered body proves nothing.

A session is named by a nonce that its client draws. The first opening binds the ticket to the nonce: whoever
comes with another nonce holds a copy of a spent ticket. Openings are counted, and each must count higher than
the last, so a recorded opening can't be played back, while the same client may come back after a lost
connection.
"""

import hmac
import json
import secrets
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Annotated, Final, NotRequired, TypedDict

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.base.jsonfile import check_document, document
from cutwater.base.kinds import Number, Text, Whole
from cutwater.base.schema import Field, Nested, Schema, check, described, read
from cutwater.stream.refusal import RefusedError, Status, denied
from cutwater.stream.tls import fingerprint

_FORMAT: Final = "cutwater-ticket"
_VERSION: Final = 1
_BODY: Final = "cutwater-ticket-bin"
_OPENING: Final = "cutwater-opening-bin"
_COUNTS = struct.Struct("<16sQQ")
_PURPOSE: Final = b"cutwater stream opening v1"
Metadata = tuple[tuple[str, str | bytes], ...]


@described("the ticket's claims", FileFormatError)
@dataclass(frozen=True, slots=True)
class Claims:
    """What a ticket is for."""

    id: Annotated[str, Text(), "the ticket's own name"]
    run: Annotated[str, Text(), "the run"]
    round: Annotated[int, Whole(0), "the round"]
    client: Annotated[str, Text(), "the client"]
    cut: Annotated[int, Whole(0), "its cut in this round"]
    address: Annotated[str, Text(), "host:port of the worker that runs the server's half"]
    server_name: Annotated[str, Text(), "the name in the worker's certificate"]
    fingerprint: Annotated[str, Text(), "SHA-256 of the certificate that this worker will show"]
    open_seconds: Annotated[
        float, Number(), "how long after its issue the session may be opened, by the server's monotonic clock"
    ]
    session_seconds: Annotated[float, Number(), "how long after its issue the session is over"]
    second_cut: Annotated[int, Whole(0), "its second cut, if it has one"] = 0
    rate_up: Annotated[
        float,
        Number(0),
        "bits per second that it may send over a line that others share; 0: no limit",
    ] = 0.0

    def __post_init__(self) -> None:
        check(self)

    def body(self) -> bytes:
        """The bytes that are signed: the same for the same claims."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


class Claimed(TypedDict):
    """What :class:`Claims` are told of a session or a lease; the rest is the server's own."""

    run: str
    round: int
    client: str
    cut: int
    second_cut: NotRequired[int]
    rate_up: NotRequired[float]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Claims with the proof that the server made them, and the server's certificate."""

    claims: Claims
    certificate: str = field(repr=False)
    secret: bytes = field(repr=False)

    def to_text(self) -> str:
        """JSON for the authenticated channel; whoever reads it can open the session."""
        body = {"claims": asdict(self.claims), "certificate": self.certificate, "secret": self.secret.hex()}
        return json.dumps(document(_FORMAT, _VERSION, body))

    @classmethod
    def from_text(cls, text: str) -> "Ticket":
        """The ticket in a text, or a FileFormatError; the certificate is the one the claims name."""
        try:
            body = check_document(json.loads(text), _FORMAT, _VERSION, "the ticket")
            parts = _DOCUMENT.read(body)
            ticket = cls(parts["claims"], parts["certificate"], bytes.fromhex(parts["secret"]))
        except ValueError as error:
            raise FileFormatError(
                f"the ticket can't be read ({error}): ask the server for another"
            ) from error
        found, claimed = fingerprint(ticket.certificate), ticket.claims.fingerprint
        if not hmac.compare_digest(found, claimed):
            reason = f"the ticket's certificate has fingerprint {found}, but {claimed} is claimed"
            raise RefusedError(Status.UNAUTHENTICATED, reason)
        return ticket


_DOCUMENT = Schema(
    "the ticket",
    FileFormatError,
    (
        Field("claims", Nested(Claims), "what it is for"),
        Field("certificate", Text(), "the server's certificate"),
        Field("secret", Text(), "what proves that the server made it, in hexadecimal digits"),
    ),
)


@dataclass(frozen=True, slots=True)
class Opening:
    """A client's request to open or go on with its session, as the server has verified it."""

    claims: Claims
    nonce: bytes
    attempt: int
    have: int
    """How many replies the client holds."""


class TicketKey:
    """A run's key, known to the server alone.

    A server that is started again has another, so that old tickets die with it, unless it was given the same.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        if len(self._key) < 32:
            raise EngineError(f"the ticket key has {len(self._key)} bytes, but needs at least 32")

    def issue(self, claims: Claims, certificate: str) -> Ticket:
        """The ticket for these claims."""
        return Ticket(claims, certificate, self._secret(claims.body()))

    def verify(self, metadata: Iterable[tuple[str, str | bytes]]) -> Opening:
        """The opening in a call's metadata, or a refusal; nothing is parsed before it is proven."""
        found = [(name, value) for name, value in metadata if name in (_BODY, _OPENING)]
        parts = {name: value for name, value in found if isinstance(value, bytes)}
        if len(found) != 2 or len(parts) != 2:
            raise RefusedError(Status.UNAUTHENTICATED, "the call carries no ticket: open it with one")
        body, opening = parts[_BODY], parts[_OPENING]
        if len(opening) < _COUNTS.size + sha256().digest_size:
            raise RefusedError(Status.UNAUTHENTICATED, "the call's opening is too short to prove anything")
        counts, proof, who = _split(opening)
        if not hmac.compare_digest(proof, _prove(self._secret(body), counts, who)):
            raise RefusedError(
                Status.UNAUTHENTICATED,
                "the ticket is not one of this server's, or was altered: ask for another",
            )
        claims = read(Claims, json.loads(body))
        if who.decode("utf-8", "replace") != claims.client:
            raise denied(f"the ticket is for client {claims.client!r} and no other")
        nonce, attempt, have = _COUNTS.unpack(counts)
        return Opening(claims, nonce, attempt, have)

    def _secret(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")


def opening(ticket: Ticket, client: str, nonce: bytes, attempt: int, have: int) -> Metadata:
    """The metadata with which ``client`` opens, or goes on with, the session of its ticket."""
    counts, who = _COUNTS.pack(nonce, attempt, have), client.encode()
    proof = _prove(ticket.secret, counts, who)
    return ((_BODY, ticket.claims.body()), (_OPENING, counts + proof + who))


def _prove(secret: bytes, counts: bytes, who: bytes) -> bytes:
    return hmac.digest(secret, _PURPOSE + counts + who, "sha256")


def _split(opening: bytes) -> tuple[bytes, bytes, bytes]:
    end = _COUNTS.size + sha256().digest_size
    return opening[: _COUNTS.size], opening[_COUNTS.size : end], opening[end:]
