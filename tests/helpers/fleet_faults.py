"""What tests do to a fleet: find its processes, stop them, kill them, hold their uploads back."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from cutwater.fleet.supernodes import LocalFleet

HALF_A_MINUTE = 30.0


def descendants(root: int) -> list[int]:
    """A process and all that it has started, and they, and so on."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = [root]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def connected(pid: int, port: int) -> int:
    """How many connections a process has to a port of this machine."""
    try:
        sockets = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return 0
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return sum(
        row[2].endswith(f":{port:04X}") and row[3] == "01" and f"socket:[{row[9]}]" in sockets for row in rows
    )


def wait_until(condition, seconds=HALF_A_MINUTE):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.02)


def stop_tree(root: int) -> list[int]:
    """SIGSTOP a process and its descendants, to the last that one of them was just starting; their pids."""
    stopped: list[int] = []
    while new := [pid for pid in descendants(root) if pid not in stopped]:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        stopped += new
    return stopped


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_tree(root: int) -> list[int]:
    """SIGKILL a process and its descendants, none of which has a chance to start another; their pids."""
    pids = stop_tree(root)
    signal_all(pids, signal.SIGKILL)
    return pids


def in_session(fleet: LocalFleet, name: str, port: int) -> bool:
    """Whether a client's app is connected to the activation stream on this port."""
    return any(connected(pid, port) for pid in descendants(fleet.nodes[name]))


class Tap:
    """A TCP proxy that can be told to let so many bytes more go up, and then nothing; a context manager."""

    def __init__(self) -> None:
        self.port, self.target, self.up = 0, 0, 0
        """Where it listens, where it leads to, and the bytes that went up since the last limit was set."""
        self.reached = threading.Event()
        """Whether the limit has been."""
        self._limit: int | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tap")
        self._talks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> "Tap":
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything; once is enough."""
        if self._loop.is_closed():
            return
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def limit(self, up: int) -> None:
        """From now on, let so many bytes go up and hold the rest back."""
        self.up, self._limit = 0, up

    def drop(self) -> None:
        """End all connections, with what is held back, and let the next ones pass."""
        self._do(self._end_talks())

    def _do(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HALF_A_MINUTE)

    async def _close(self) -> None:
        self._server.close()
        await self._end_talks()
        await self._server.wait_closed()

    async def _end_talks(self) -> None:
        self._limit = None
        talks = list(self._talks)
        for talk in talks:
            talk.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    def _accept(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        talk = self._loop.create_task(self._talk(near, back))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far_writer = None
        try:
            far, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry_up(near, far_writer))
                both.create_task(_carry(far, back))
        except* OSError:
            pass
        finally:
            for writer in (back, far_writer):
                if writer is not None:
                    writer.transport.abort()

    async def _carry_up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 14):
            while self._limit is not None and self.up + len(data) > self._limit:
                self.reached.set()
                await asyncio.sleep(0.05)
            self.up += len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()
