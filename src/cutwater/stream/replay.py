"""A session goes on from its journal, in another process than the one that it began in.

Parts that were noted go through the session's own machinery once more, from the last snapshot on. What is
computed depends on the half, the part and its number alone, so replies come out with the same bits. All this
is done before the server can be reached: a client that found its session half restored would be refused for
good.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cutwater.base.errors import CutwaterError, FileFormatError
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.journal import JournalFile, Kind, unpack_side
from cutwater.stream.messages import Assembler
from cutwater.stream.noting import SESSION, Account, Notes
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import Keeper
from cutwater.train.kept_side import SideState

log = logging.getLogger(__name__)
_TRIES = 2
"""How often a process may die of restoring a session before that is given up."""
Entry = tuple[Kind, bytes]
Host = Callable[[Mapping[str, Any]], HostedSession]
"""Makes a session that has seen no part yet, of what its journal says that it is."""


async def restore(path: Path, host: Host, keeper: Keeper, *, most: int | None = None) -> HostedSession:
    """The session of a journal, as far as it had come; refused from now on if it can't be restored."""
    tries = path.with_suffix(".tries")
    died = tries.stat().st_size if tries.exists() else 0
    file = JournalFile(path)
    entries = file.entries()
    first = next(entries, None)
    if first is None:
        raise FileFormatError(f"{path} does not say what its session is")
    hosted = host(json.loads(first[1]))  # its first entry is of kind OPEN: others are damage
    _note_try(tries)
    if died >= _TRIES:
        reason = f"the server's process died {died} times when it went on from its journal"
        hosted.fail(RefusedError(Status.INTERNAL, f"the session can't go on: {reason}"))
    else:
        # In a task of its own, which ends with the session if that does meanwhile, by its deadline say.
        replaying = asyncio.create_task(_replay(file, entries, hosted, keeper, most))
        await asyncio.wait({replaying})
        _judge(hosted, replaying)
    if hosted.failure is not None or hosted.finished:
        await hosted.ended()
    if died < _TRIES:  # else it stays given up, should there be yet another process
        tries.unlink()
    return hosted


async def _replay(
    file: JournalFile, entries: Iterator[Entry], hosted: HostedSession, keeper: Keeper, most: int | None
) -> None:
    """Have a session see again what its journal tells."""
    # What lies in the journal's memory is not written to, as what lies in gRPC's is not.
    assembler = Assembler(hosted.expect.at_server, borrow=True)
    for kind, content in entries:
        if kind is Kind.PART:
            await _part(hosted, assembler, content)
        elif kind is Kind.SNAPSHOT:
            await _resume(hosted, keeper, unpack_side(content))
        else:
            _plain(hosted, kind, json.loads(content))
    hosted.do_the_rest()
    between = hosted.window.complete
    file.go_on()
    hosted.notes = Notes(file, hosted.session, hosted.expect, keeper, between=between, most=most)


def _judge(hosted: HostedSession, replaying: "asyncio.Task[None]") -> None:
    """Refuse a session whose journal could not be gone through to the end."""
    error = None if replaying.cancelled() else replaying.exception()
    if error is None:
        return
    if not isinstance(error, CutwaterError):
        log.error("the server's half of %s can't go on", hosted.session, exc_info=error)
    hosted.fail(RefusedError(Status.INTERNAL, f"the session can't go on: {error}"))


def _note_try(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, b".")
    os.close(file)


async def _part(hosted: HostedSession, assembler: Assembler, content: bytes) -> None:
    if hosted.failure is not None:
        return
    assembler.expect(hosted.window.rows)
    message = assembler.feed(content)
    if message is None:
        raise FileFormatError("a part in its journal is not whole")
    await hosted.take_again(message)


async def _resume(hosted: HostedSession, keeper: Keeper, snapshot: SideState) -> None:
    about = dict(snapshot.plain[SESSION])
    number = about.pop("number")
    hosted.resume(number, Account(**about))
    await keeper.restore(hosted.session, snapshot)


def _plain(hosted: HostedSession, kind: Kind, told: Mapping[str, Any]) -> None:
    if kind is Kind.BIND:
        hosted.bind(bytes.fromhex(told["nonce"]), told["attempt"], told["opened"])
    elif kind is Kind.FINISH:
        hosted.finish(told["parts"], told["norm"])
        hosted.seconds["session"] = told["seconds"]
    elif kind is Kind.FAILED:
        hosted.fail(RefusedError(Status[told["status"]], told["reason"]))
