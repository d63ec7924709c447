"""Halves, clients and a proxy for the stream's tests; nothing here stands in for what is tested."""

import asyncio
import contextlib
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import torch
from torch import Tensor

from cutwater.stream.client import StreamClient
from cutwater.stream.expectation import Expectation
from cutwater.stream.frames import FrameKind
from cutwater.stream.limits import METHOD, Limits
from cutwater.stream.messages import Packer
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult
from cutwater.stream.tensors import TensorSpec
from cutwater.stream.ticket import Ticket, opening
from cutwater.train.step import Part, Tensors

FUZZ = int(os.environ.get("CUTWATER_FUZZ", "20000"))
"""How many broken frames are tried; a million takes some minutes."""
QUICK = Limits(keepalive=1.0, keepalive_timeout=1.0, handshake=3.0, connect=10.0, backoff=0.01)


def example(rows: int = 4, width: int = 8) -> tuple[Tensors, Tensor]:
    """Smashed data and labels of a mini-batch."""
    generator = torch.Generator().manual_seed(rows * 1000 + width)
    smashed = torch.randn(rows, width, generator=generator)
    return (smashed,), torch.randint(0, 10, (rows,), generator=generator)


def expecting(
    smashed: Sequence[Tensor],
    labels: Tensor,
    *,
    batches: Sequence[int],
    classes: int | None = None,
    micro_batches: int = 1,
    overlapped: bool = False,
) -> Expectation:
    """The expectation that example tensors (meta tensors will do) of any number of samples set."""
    values = None if classes is None else (0, classes - 1)
    specs = tuple(
        TensorSpec(f"smashed.{place}", tensor.dtype, tuple(tensor.shape[1:]))
        for place, tensor in enumerate(smashed)
    )
    return Expectation(
        batches=tuple(batches),
        smashed=specs,
        labels=TensorSpec("labels", labels.dtype, tuple(labels.shape[1:]), values),
        gradients=tuple(spec for spec in specs if spec.dtype.is_floating_point),
        micro_batches=micro_batches,
        overlapped=overlapped,
    )


def expected(rows: int = 4, width: int = 8, steps: int = 100, **more: Any) -> Expectation:
    return expecting(*example(rows, width), batches=[rows] * steps, classes=10, **more)


class Echo:
    """A server's half that gives smashed data back as gradients and remembers what it was called for."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int]] = []
        self.closes: list[SessionRecord] = []

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        self.steps.append((session.client, part.number))
        return StepResult(tuple(t.detach().clone() for t in smashed if t.requires_grad), float(part.number))

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        self.closes.append(record)


class Thorough(Echo):
    """Has something left to do when its reply is out."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        self.order.append(f"step {part.number}")
        result = await super().step(session, part, smashed, labels)
        return replace(result, rest=lambda: self.order.append(f"rest of {part.number}"))

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        self.order.append("closed")
        await super().closed(session, record)


class Slow(Echo):
    """Takes its time over each step, as another thread would decide."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()
        self._in_order = asyncio.Lock()

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        self.begun.set()
        async with self._in_order:
            while not self.go.is_set():
                await asyncio.sleep(0.005)
        return await super().step(session, part, smashed, labels)


def issue(server: StreamServer, expect: Expectation, client: str = "k1", **more: Any) -> Ticket:
    what = {"run": "run", "round": 3, "cut": 2, "session_seconds": 30.0, "open_seconds": 30.0, **more}
    return server.issue(client=client, expect=expect, **what)


class Raw:
    """A client that may send anything: what an attacker with a valid ticket can do."""

    def __init__(
        self, ticket: Ticket, *, client: str | None = None, metadata: Any = None, **options: Any
    ) -> None:
        claims = ticket.claims
        proof = opening(ticket, client or claims.client, secrets.token_bytes(16), 1, 0)
        credentials = grpc.ssl_channel_credentials(ticket.certificate.encode())
        settings = [
            ("grpc.ssl_target_name_override", claims.server_name),
            ("grpc.max_send_message_length", -1),
        ]
        self.channel = grpc.secure_channel(claims.address, credentials, settings)
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.call = self.channel.stream_stream(METHOD)(
            iter(self.outbox.get, None),
            metadata=proof if metadata is None else metadata,
            timeout=20,
            **options,
        )

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.outbox.put(None)
        self.call.cancel()
        self.channel.close()

    def send(self, *frames: bytes) -> "Raw":
        for frame in frames:
            self.outbox.put(frame)
        return self

    def verdict(self) -> tuple[str, str]:
        """The status with which the server ends the call, and why."""
        try:
            for _ in self.call:
                pass
        except grpc.RpcError as error:
            return error.code().name, error.details()
        return "OK", ""


def step_frames(
    expect: Expectation, step: int, smashed: Tensors, labels: Tensor, size: int = 1 << 20
) -> list[bytes]:
    """The frames of a part, as a client would send them that believes in this expectation."""
    tensors = (*expect.up.encode(step, smashed), labels)
    packed = Packer(expect.at_server).pack(FrameKind.PART, step, tensors, rows=len(labels))
    return list(packed.frames(size))


class Proxy:
    """A wire between client and server that can be cut after so many bytes, or go dead without a word."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.target = ("127.0.0.1", 0)
        self.cut_after: dict[str, int] = {}
        """Bytes in direction "up" or "down" after which a connection is cut; used up by the first that is."""
        self.dead = threading.Event()
        self.rate: float | None = None
        """Bytes a second in either direction, behind whatever the kernel's buffers take."""
        self.connections = 0
        self.passed = {"up": 0, "down": 0}
        """Bytes by direction, of all connections."""
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    def aim(self, server: StreamServer) -> None:
        self.target = ("127.0.0.1", server.port)

    def cut(self) -> None:
        """Cut what is connected now."""
        for pair in list(self._pairs):
            _close(*pair)

    def close(self) -> None:
        _close(self.listener)  # shut down first: closing alone would not wake the thread that accepts
        self.cut()
        for thread in self._threads:
            thread.join(5)

    def _spawn(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            try:
                server = socket.create_connection(self.target)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.append((client, server))
            doomed = self.dead.is_set()
            self._spawn(self._pump, client, server, "up", doomed)
            self._spawn(self._pump, server, client, "down", doomed)

    def _pump(self, source: socket.socket, sink: socket.socket, way: str, doomed: bool) -> None:
        passed = 0
        while True:
            try:
                data = source.recv(65536 if self.rate is None else 2048)
            except OSError:
                data = b""
            if self.rate is not None:
                time.sleep(len(data) / self.rate)
            if doomed or self.dead.is_set():
                # Half-open: nothing more comes through, and nobody is told.
                if not data:
                    return
                doomed = True
                continue
            limit = self.cut_after.get(way)
            if limit is not None and passed + len(data) > limit:
                self.cut_after.pop(way, None)
                _send(sink, data[: limit - passed])
                data = b""
            passed += len(data)
            self.passed[way] += len(data)
            if not data or not _send(sink, data):
                _close(source, sink)
                return


def _send(sink: socket.socket, data: bytes) -> bool:
    try:
        sink.sendall(data)
    except OSError:
        return False
    return True


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def proxied(half: Any, limits: Limits = QUICK) -> Iterator[tuple[StreamServer, Proxy]]:
    """A server that its clients reach through a proxy."""
    proxy = Proxy()
    try:
        with StreamServer(half, advertise=proxy.address, limits=limits) as server:
            proxy.aim(server)
            yield server, proxy
    finally:
        proxy.close()


def eventually(condition: Any, seconds: float = 10.0) -> bool:
    """Whether something becomes true before patience ends; what is tested is that, not how fast."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def in_a_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """The thread, and what the work will have returned or raised."""
    out: list[object] = []

    def guarded() -> None:
        try:
            out.append(work())
        except Exception as error:
            out.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, out


def client_of(ticket: Ticket, expect: Expectation, client: str = "k1", **how: Any) -> StreamClient:
    """A client for tests of overlapped sessions, which connect in one way only."""
    return StreamClient(ticket, expect, client=client, **how)
