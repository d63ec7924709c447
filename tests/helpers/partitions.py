"""Devices in network namespaces of their own, which can be cut off without anybody being told."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_NOWHERE = "02:00:00:00:00:99"
_numbers = itertools.count(1)


def _ip(*words: str, inside: str = "") -> None:
    where = ("ip", "netns", "exec", inside) if inside else ()
    subprocess.run([*where, "ip", *words], check=True, capture_output=True)


class Place:
    """A namespace that is joined to this machine by a pair of virtual cables."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.name = f"cw{os.getpid()}n{number}"
        self.here, self.there = f"10.231.{number}.1", f"10.231.{number}.2"
        self._near, self._far = f"cw{os.getpid() % 10**6}h{number}", f"cw{os.getpid() % 10**6}d{number}"

    def open(self) -> None:
        _ip("netns", "add", self.name)
        _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
        _ip("link", "set", self._far, "netns", self.name)
        for inside, address, cable in (("", self.here, self._near), (self.name, self.there, self._far)):
            _ip("addr", "add", f"{address}/30", "dev", cable, inside=inside)
            _ip("link", "set", cable, "up", inside=inside)

    def close(self) -> None:
        for words in (("link", "del", self._near), ("netns", "del", self.name)):
            subprocess.run(["ip", *words], check=False, capture_output=True)

    def cut_off(self) -> None:
        """From now on every packet, either way, goes to an address that nobody has."""
        for inside, address, cable in self._ways():
            _ip(
                "neigh",
                "replace",
                address,
                "lladdr",
                _NOWHERE,
                "dev",
                cable,
                "nud",
                "permanent",
                inside=inside,
            )

    def join(self) -> None:
        for inside, address, cable in self._ways():
            _ip("neigh", "del", address, "dev", cable, inside=inside)

    def _ways(self) -> tuple[tuple[str, str, str], ...]:
        return (("", self.there, self._near), (self.name, self.here, self._far))

    def run(self, *command: str, **how: object) -> subprocess.Popen:
        """Start a program in it."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command], **how)


@contextmanager
def places(count: int) -> Iterator[list[Place]]:
    """So many namespaces; an OSError or CalledProcessError where that takes more rights than we have."""
    found = [Place() for _ in range(count)]
    try:
        for each in found:
            each.open()
        yield found
    finally:
        for each in found:
            each.close()
