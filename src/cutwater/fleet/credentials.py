"""Certificates and keys of a fleet on one machine: made for it, thrown away with it."""

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from cutwater.stream.tls import make_pair


def make_certificate(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate for an address of this machine, its own authority, and its key; the paths of both."""
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(host))]
    now = datetime.now(UTC)
    valid = (now - timedelta(days=1), now + timedelta(days=2))
    certificate, key = make_pair("cutwater fleet", hosts, valid)
    paths = folder / "superlink.crt", folder / "superlink.key"
    paths[0].write_bytes(certificate)
    _write_secret(paths[1], key)
    return paths


def make_node_key(folder: Path, name: str) -> tuple[Path, Path]:
    """A node's key pair, as Flower wants it; the paths of private and public key."""
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = folder / name, folder / f"{name}.pub"
    _write_secret(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return private, public


def _write_secret(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
