"""The door of the stream's server: whoever shows no ticket may not stay, nor fill the memory.

gRPC reads what comes before it asks who is there: a flood of HTTP/2 headers that never end takes gigabytes
without a ticket, whatever its options say. So a thread looks at the server's own connections (Linux tells
them). One over which no session was let in is a stranger's, and is closed when its time is up, when there are
too many of them, or, all at once, when the memory of this process grows fast while they are here.
"""

import ipaddress
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote

MOST_STRANGERS = 512
MOST_OF_ONE = 64
"""Of one address."""
GROWTH = 64 * 2**20
"""Bytes by which the process may grow between two looks while strangers are here."""
EVERY = 0.2
"""Seconds between two looks."""


class Peer(NamedTuple):
    """The other end of a connection."""

    address: str
    port: int

    @classmethod
    def of(cls, address: str, port: int) -> "Peer":
        """An address as all sides write it: one of IPv4 may come in the clothes of IPv6."""
        found = ipaddress.ip_address(address.partition("%")[0])
        return cls(str(getattr(found, "ipv4_mapped", None) or found), port)

    @classmethod
    def told(cls, text: str) -> "Peer | None":
        """A peer as gRPC names it: ``ipv4:127.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``."""
        address, _, port = unquote(text).partition(":")[2].rpartition(":")
        try:
            return cls.of(address.strip("[]"), int(port))
        except ValueError:
            return None


@dataclass
class _Socket:
    """A socket of this process."""

    inode: int
    peer: Peer | None
    """The other end of a connection to our port; None where it is not, or no longer, ours to look at."""
    since: float
    guest: bool = False
    """Whether a session was let in over it: its peer is not asked for again."""

    @property
    def stranger(self) -> bool:
        """Whether it may not stay."""
        return self.peer is not None and not self.guest


class Door:
    """Closes connections to a port of this process that show no ticket in time."""

    def __init__(self, port: int, seconds: float, *, growth: int = GROWTH) -> None:
        self._port, self._seconds, self._growth = port, seconds, growth
        self._looks = os.path.isdir("/proc/self/fd")
        """Whether the system tells what is to be seen."""
        self._known: set[Peer] = set()
        self._there: dict[int, _Socket] = {}
        """By descriptor."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="cutwater-door", daemon=True)
        self.shed = 0
        """Connections that were closed."""

    def start(self) -> None:
        """Begin to look, where there is something to be seen."""
        if self._looks:
            self._thread.start()

    def close(self) -> None:
        """Look no further."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def let_in(self, peer: str) -> None:
        """A session goes on over this connection: it may stay."""
        found = Peer.told(peer) if self._looks else None
        if found is not None:
            self._known.add(found)

    def _watch(self) -> None:
        memory = _resident()
        while not self._closed.wait(EVERY):
            self._look()
            now = _resident()
            if now - memory > self._growth:
                for fd, stranger in self._strangers():
                    self._shut(fd, stranger)
            memory = now
            self._close_late()

    def _look(self) -> None:
        """See which connections there are, and which of them are strangers'."""
        # Whoever is let in while this goes on may not have been seen, and stays.
        known_before, before, self._there = set(self._known), self._there, {}
        for fd, inode in _sockets():
            there = before.get(fd)
            if there is None or there.inode != inode:
                there = _Socket(inode, _peer(fd, inode, self._port), time.monotonic())
            elif there.stranger:
                there.peer = _peer(fd, inode, self._port)
            there.guest = there.guest or there.peer in self._known
            self._there[fd] = there
        self._known -= known_before - {there.peer for there in self._there.values()}

    def _strangers(self) -> list[tuple[int, _Socket]]:
        return [(fd, there) for fd, there in self._there.items() if there.stranger]

    def _close_late(self) -> None:
        now, seen = time.monotonic(), Counter[str]()
        newest_first = sorted(self._strangers(), key=lambda item: -item[1].since)
        for place, (fd, stranger) in enumerate(newest_first):
            assert stranger.peer is not None
            address = stranger.peer.address
            seen[address] += 1
            late = now - stranger.since > self._seconds
            if late or place >= MOST_STRANGERS or seen[address] > MOST_OF_ONE:
                self._shut(fd, stranger)

    def _shut(self, fd: int, stranger: _Socket) -> None:
        found = None if stranger.peer in self._known else _opened(fd, stranger.inode)
        if found is None:
            return
        with found:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:  # gone already
                return
        # Its owner may hold the descriptor a while longer: it is not shut, and counted, again.
        stranger.peer = None
        self.shed += 1


def _sockets() -> Iterator[tuple[int, int]]:
    """Descriptors of this process that are sockets, each with its inode."""
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(name), int(target[8:-1])


def _opened(fd: int, inode: int) -> socket.socket | None:
    """A second handle of a socket, if the descriptor is still that one."""
    try:
        copy = os.dup(fd)
    except OSError:
        return None
    if os.fstat(copy).st_ino != inode:
        os.close(copy)
        return None
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None


def _peer(fd: int, inode: int, port: int) -> Peer | None:
    """Who is at the other end of a connection to our port; None for any other socket."""
    found = _opened(fd, inode)
    if found is None:
        return None
    with found:
        try:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.getsockname()[1] != port:
                return None
            return Peer.of(*found.getpeername()[:2])
        except (OSError, ValueError):  # it listens, or is gone
            return None


def _resident() -> int:
    """Bytes of memory that this process has now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
