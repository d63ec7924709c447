"""Turns between processes: runs that share one machine compute one at a time, each as often as its part says.

Two Flower runs are two processes, each with a fair queue of its own (``shares``). A keeper of turns stands
between them, with a fair queue over runs: before each piece of work a process asks for a turn, and keeps it
until it has nothing more to do or another's turn has come. So run j gets F_j / ΣF of the machine whenever all
have work, and within that its sessions get their shares.

A process asks for its next turn before it gives the last one back: or else it would never be among those that
wait when the next is chosen. Messages are lines of JSON over a Unix socket that only its owner can open.
"""

import asyncio
import json
import os
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from cutwater.base.errors import EngineError
from cutwater.serve.fair_queue import FairQueue

_LONGEST: Final = 4096
"""Bytes of a line."""
_KEPT: Final = 1000
"""Accounts of runs that have left."""
_GO: Final = b'{"go":true}\n'


@dataclass(frozen=True)
class Turned:
    """What a run was promised and got of the machine, from when it came until it left."""

    run: str
    part: float
    """F_j in FLOPS."""
    promised: float
    """FLOPs that its part entitled it to, of all that was done while it had work."""
    delivered: float
    """FLOPs that it got."""
    over: bool = False
    """Whether it is gone."""


class TurnKeeper:
    """Says whose turn it is, at a Unix socket, in a thread of its own."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()
        self._parts: dict[str, float] = {}
        self._over: dict[str, Turned] = {}
        """Accounts of runs that have left, the latest last."""
        self._holder: str | None = None
        self._ready: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._main, name="cutwater-turns", daemon=True)

    def __enter__(self) -> "TurnKeeper":
        if _listens(self.path):
            raise EngineError(f"{self.path} can't be listened on: turns are kept there already")
        self._thread.start()
        self._ready.result()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.path.unlink(missing_ok=True)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except OSError as error:
            self._ready.set_exception(EngineError(f"{self.path} can't be listened on: {error}"))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        before = os.umask(0o177)  # nobody but the owner may connect
        try:
            server = await asyncio.start_unix_server(self._talk, self.path, limit=_LONGEST)
        finally:
            os.umask(before)
        self._ready.set_result(None)
        async with server:
            await self._stop.wait()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        run = None
        try:
            async for line in reader:
                said = json.loads(line)
                if "report" in said:
                    writer.write(json.dumps([asdict(each) for each in self._report()]).encode() + b"\n")
                elif "run" in said:
                    self._queue.open(said["run"], said["part"])
                    run = said["run"]
                    self._parts[run] = said["part"]
                    writer.write(_GO)
                elif run is not None and "ask" in said:
                    turn = asyncio.get_running_loop().create_future()
                    self._queue.push(run, said["ask"], turn)
                    self._release(run)
                    await turn
                    writer.write(_GO)
                elif run is not None:
                    self._release(run)
                await writer.drain()
        except EngineError as error:
            writer.write(json.dumps({"refused": str(error)}).encode() + b"\n")
        except (ValueError, TypeError, KeyError, AttributeError, OSError, asyncio.CancelledError):
            pass  # no line of ours, the process is gone, or the keeper ends
        finally:
            if run is not None:
                self._leave(run)
            writer.close()

    def _release(self, run: str) -> None:
        """A run does not hold the turn any more, if it did: the next one does."""
        if self._holder == run:
            self._holder = None
        while self._holder is None and (chosen := self._queue.pop()) is not None:
            name, _, turn = chosen
            if not turn.cancelled():
                self._holder = name
                turn.set_result(None)

    def _leave(self, run: str) -> None:
        """A run is over, or its process is gone: its account stays."""
        account = self._account(run)
        self._queue.close(run)
        del self._parts[run]
        self._over.pop(run, None)
        self._over[run] = replace(account, over=True)
        while len(self._over) > _KEPT:
            del self._over[next(iter(self._over))]
        self._release(run)

    def _account(self, run: str) -> Turned:
        """A run's account; one that was here before goes on with the old one."""
        served, _, entitled = self._queue.account(run)
        before = self._over.get(run, Turned(run, 0.0, 0.0, 0.0))
        return Turned(run, self._parts[run], before.promised + entitled, before.delivered + served)

    def _report(self) -> list[Turned]:
        here = [self._account(run) for run in self._parts]
        return [*(each for run, each in self._over.items() if run not in self._parts), *here]


class Turns:
    """A process's way to its turns; one thread at a time."""

    def __init__(self, path: str | os.PathLike[str], run: str, part: float) -> None:
        self._path, self._run, self._held = path, run, False
        self._socket = _connect(path)
        self._file = self._socket.makefile("rb")
        self._say({"run": run, "part": part})
        self._wait()

    def take(self, flops: float) -> None:
        """Wait for the turn of a piece of work; the one before is over."""
        self._say({"ask": flops})
        self._wait()
        self._held = True

    def give(self) -> None:
        """There is nothing to do; if the keeper is gone, the next ``take`` says so."""
        if self._held:
            self._held = False
            with suppress(EngineError):
                self._say({})

    def account(self) -> Turned | None:
        """What this run was promised and got so far, by a connection of its own; None if nobody can say."""
        with suppress(EngineError, ValueError):
            return next((each for each in turned(self._path) if each.run == self._run), None)
        return None

    def close(self) -> None:
        """Leave."""
        self._file.close()
        self._socket.close()

    def _say(self, what: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(what).encode() + b"\n")
        except OSError as error:
            raise self._gone() from error

    def _wait(self) -> None:
        try:
            line = self._file.readline(_LONGEST)
        except (OSError, ValueError) as error:
            raise self._gone() from error
        if not line:
            raise self._gone()
        refused = json.loads(line).get("refused")
        if refused:
            raise EngineError(f"the keeper of turns at {self._path} refuses: {refused}")

    def _gone(self) -> EngineError:
        return EngineError(f"the keeper of turns at {self._path} is gone: start cutwater turns again")


def turned(path: str | os.PathLike[str]) -> list[Turned]:
    """What every run was promised and got, those that have left first."""
    with _connect(path) as line, line.makefile("rb") as file:
        line.sendall(b'{"report":true}\n')
        return [Turned(**each) for each in json.loads(file.readline())]


def _listens(path: Path) -> bool:
    try:
        _connect(path).close()
    except EngineError:
        return False
    return True


def _connect(path: str | os.PathLike[str]) -> socket.socket:
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(str(path))
    except OSError as error:
        line.close()
        reason = error.strerror or error
        raise EngineError(
            f"no keeper of turns listens at {path} ({reason}): start it with  cutwater turns {path}"
        ) from error
    return line
