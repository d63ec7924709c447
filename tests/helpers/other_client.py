"""An end of the activation stream that is written from docs/how/protocol.md and knows nothing of Cutwater.

It plays a device: sessions in turn or overlapped, with clipping by the norm and with labels that stay, over
fp32, and comes back when its connection is lost. It knows neither codecs nor leases.
"""

import hashlib
import hmac
import json
import queue
import secrets
import ssl
import struct

import grpc
import numpy as np
import xxhash

PREFIX = struct.Struct("<4sBBHQQQQ")
WELCOME, PART, REPLY, FINISH, FINISHED, PING, PONG, OUTPUT, BACK = range(1, 10)
TYPES = ["f4", "f8", "f2", "", "i8", "i4", "i2", "i1", "u1", "u1"]
PIECE = 1 << 20


def name_of(text):
    return bytes([len(text.encode())]) + text.encode()


def write_head(tensors, scalars):
    outline = bytes([len(tensors)])
    for name, array in tensors:
        code = TYPES.index(array.dtype.str[1:])
        outline += name_of(name) + bytes([code, array.ndim]) + struct.pack(f"<{array.ndim}I", *array.shape)
    for name in scalars:
        outline += name_of(name)
    outline += bytes(-(40 + 2 + len(outline) + 8 * len(scalars)) % 16)
    return struct.pack("<H", len(outline)) + outline + struct.pack(f"<{len(scalars)}d", *scalars.values())


def write_payload(tensors):
    payload = b""
    for _, array in tensors:
        payload += bytes(-len(payload) % 64) + array.astype(array.dtype.newbyteorder("<")).tobytes()
    return payload


def frame(kind, number, total, offset, head, piece):
    first = struct.pack("<4sBBH", b"CUTW", 2, kind, len(head))
    rest = struct.pack("<QQQ", number, total, offset) + head + piece
    checksum = xxhash.xxh3_64_intdigest(rest, int.from_bytes(first, "little"))
    return first + struct.pack("<Q", checksum) + rest


def frames(kind, number, tensors=(), scalars=None):
    payload, head = write_payload(tensors), write_head(tensors, scalars or {})
    for at in range(0, max(len(payload), 1), PIECE):
        yield frame(kind, number, len(payload), at, b"" if at else head, payload[at : at + PIECE])


def read_head(head, payload):
    (length,) = struct.unpack_from("<H", head)
    outline, values = head[2 : 2 + length], head[2 + length :]
    at, end, tensors, names = 1, 0, [], []
    for _ in range(outline[0]):
        size = outline[at]
        name, at = outline[at + 1 : at + 1 + size].decode(), at + 1 + size
        code, dimensions = outline[at], outline[at + 1]
        shape = struct.unpack_from(f"<{dimensions}I", outline, at + 2)
        at += 2 + 4 * dimensions
        kind = np.dtype("<" + TYPES[code])
        start = end + -end % 64
        end = start + int(np.prod(shape)) * kind.itemsize
        tensors.append((name, np.frombuffer(payload[start:end], kind).reshape(shape)))
    while at < len(outline) and outline[at]:
        names.append(outline[at + 1 : at + 1 + outline[at]].decode())
        at += 1 + outline[at]
    return tensors, dict(zip(names, struct.unpack(f"<{len(names)}d", values), strict=True))


class OtherClient:
    """One session, from its ticket to its end."""

    def __init__(self, ticket):
        self.ticket = json.loads(ticket)
        claims = self.ticket["claims"]
        der = ssl.PEM_cert_to_DER_cert(self.ticket["certificate"])
        assert hashlib.sha256(der).hexdigest() == claims["fingerprint"]
        self.body = json.dumps(claims, sort_keys=True, separators=(",", ":")).encode()
        self.nonce, self.attempt, self.have = secrets.token_bytes(16), 0, 0

    def connect(self):
        claims = self.ticket["claims"]
        self.attempt += 1
        counts = struct.pack("<16sQQ", self.nonce, self.attempt, self.have)
        who = claims["client"].encode()
        proof = hmac.digest(
            bytes.fromhex(self.ticket["secret"]), b"cutwater stream opening v1" + counts + who, "sha256"
        )
        self.channel = grpc.secure_channel(
            claims["address"],
            grpc.ssl_channel_credentials(self.ticket["certificate"].encode()),
            [("grpc.ssl_target_name_override", claims["server_name"])],
        )
        self.outbox = queue.SimpleQueue()
        self.call = self.channel.stream_stream("/cutwater.stream.v1/Session")(
            iter(self.outbox.get, None),
            metadata=(("cutwater-ticket-bin", self.body), ("cutwater-opening-bin", counts + proof + who)),
            timeout=30,
        )
        kind, arrived, _, _ = self.receive()
        assert kind == WELCOME
        return arrived

    def send(self, kind, number, tensors=(), scalars=None):
        for one in frames(kind, number, tensors, scalars):
            self.outbox.put(one)

    def receive(self):
        head = payload = b""
        while True:
            message = next(self.call)
            magic, version, kind, length, checksum, number, total, offset = PREFIX.unpack_from(message)
            assert (magic, version, offset) == (b"CUTW", 2, len(payload))
            seed = int.from_bytes(message[:8], "little")
            assert xxhash.xxh3_64_intdigest(message[16:], seed) == checksum
            head = head or message[40 : 40 + length]
            payload += message[40 + length :]
            if len(payload) == total:
                self.have += kind in (REPLY, OUTPUT)
                return kind, number, *read_head(head, payload)

    def hang_up(self):
        self.call.cancel()
        self.channel.close()
