"""The server's own certificate: made when it starts, pinned by every ticket, never written to disk.

The ticket comes over Flower's authenticated channel, so it can carry the certificate itself: the client
trusts that one and no other. No authority, no names in DNS, no files.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cutwater.stream.refusal import RefusedError, Status

_ALWAYS = (datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
"""It is known by its ticket and gone with its process, so that dates would protect from nothing: they would
end runs that last, and shut out devices whose clocks are wrong (RFC 5280 has this end for such)."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A self-signed certificate with its key."""

    name: str
    """The name it is made out to, whatever address the server has."""
    certificate: str
    """PEM; public."""
    key: bytes = field(repr=False)
    """PEM; stays in this process."""

    @classmethod
    def self_signed(
        cls, name: str | None = None, *, start: datetime | None = None, days: float | None = None
    ) -> "Certificate":
        """A new key and certificate; by default for good, under a random name that no other server has."""
        name = name or f"{secrets.token_hex(8)}.cutwater.invalid"
        since = _ALWAYS[0] if start is None else start
        until = _ALWAYS[1] if days is None else since + timedelta(days=days)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        certificate, key = make_pair(name, [x509.DNSName(name)], (since, until), usage)
        return cls(name, certificate.decode(), key)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, in hex."""
        return fingerprint(self.certificate)


def make_pair(
    name: str,
    hosts: Sequence[x509.GeneralName],
    valid: tuple[datetime, datetime],
    usage: x509.ExtendedKeyUsage | None = None,
) -> tuple[bytes, bytes]:
    """A certificate signed by a new key of its own and that key, as PEM; an authority if it has no usage."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid[0])
        .not_valid_after(valid[1])
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=usage is None, path_length=None), critical=True)
    )
    if usage is not None:
        builder = builder.add_extension(usage, critical=False)
    made = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return made, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate in PEM, in hex."""
    try:
        return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256()).hex()
    except ValueError as error:
        raise RefusedError(Status.UNAUTHENTICATED, f"the certificate can't be read: {error}") from error
