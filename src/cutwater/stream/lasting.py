"""A stream's server whose sessions outlive its process: each has a journal, and the next process goes on.

Their tickets are issued by somebody else, who has the key and the certificate and is there all the time.
"""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import grpc

from cutwater.base.errors import CutwaterError, EngineError
from cutwater.stream.exactly_once import HostedSession
from cutwater.stream.expectation import Expectation
from cutwater.stream.journal import SUFFIX, JournalFile
from cutwater.stream.noting import Notes
from cutwater.stream.replay import restore
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import Keeper, SessionRecord, StepTrainer
from cutwater.stream.ticket import Claims

log = logging.getLogger(__name__)


class KeptTrainer(StepTrainer, Keeper, Protocol):
    """Trains halves that can be written down."""


class Session(NamedTuple):
    """What a session is, by what its journal begins with."""

    claims: Claims
    expect: Expectation
    issued: float
    """By the clock of this machine, which goes on from one process to the next."""
    rate_down: float = 0.0


class LastingServer(StreamServer):
    """Hosts sessions with journals in a folder, and those that it finds there when it starts."""

    def __init__(
        self,
        trainer: KeptTrainer,
        folder: Path,
        make: Callable[[Mapping[str, Any]], Session],
        *,
        most_noted: int | None = None,
        **options: Any,
    ) -> None:
        """``make`` makes room for the half of a session, and says what it is.

        A snapshot is taken after ``most_noted`` bytes of parts; by default, when it is the smaller.
        """
        super().__init__(trainer, **options)
        self._folder, self._keeper, self._make, self._most = folder, trainer, make, most_noted
        self.restored: list[HostedSession] = []
        """Sessions that were there when it started."""

    def open(self, opening: Mapping[str, Any]) -> HostedSession:
        """Host a session from now on, which is not hosted yet."""
        return self._do(lambda: self._open(opening))

    def drop(self, session: str) -> SessionRecord:
        """End a session if it has not ended and forget it, with its journal."""
        record = self._in_loop(self._drop(self._hosted(session), "the round is over"))
        self._remove(session)
        return record

    def hosts(self, session: str) -> bool:
        """Whether a session is here."""
        return session in self._service.hosted

    def _path(self, session: str) -> Path:
        return self._folder / f"{session}{SUFFIX}"

    def _remove(self, session: str) -> None:
        path = self._path(session)
        for each in (path, path.with_suffix(".new"), path.with_suffix(".tries")):
            each.unlink(missing_ok=True)

    def _made(self, opening: Mapping[str, Any]) -> HostedSession:
        claims, expect, issued, rate_down = self._make(opening)
        return HostedSession(claims, expect, self._keeper, self._service.clock, rate_down, issued)

    def _open(self, opening: Mapping[str, Any]) -> HostedSession:
        hosted = self._made(opening)
        id_ = hosted.claims.id
        content = json.dumps(opening).encode()
        try:
            file = JournalFile.begin(self._path(id_), content)
        except OSError as error:
            raise EngineError(
                f"the journal of a session can't be written in {self._folder} ({error.strerror or error}): "
                "make room there, or set TMPDIR to a folder that has some"
            ) from error
        hosted.notes = Notes(file, hosted.session, hosted.expect, self._keeper, most=self._most)
        self._service.hosted[id_] = hosted
        return hosted

    async def _drop(self, hosted: HostedSession, reason: str) -> SessionRecord:
        record = await super()._drop(hosted, reason)
        if hosted.notes is not None:
            hosted.notes.file.close()
        return record

    async def _prepare(self) -> None:
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            try:
                hosted = await restore(path, self._made, self._keeper, most=self._most)
            except (CutwaterError, OSError, ValueError, TypeError, LookupError) as error:
                log.warning("a session is lost, as not even its journal says what it is: %s", error)
                self._remove(path.stem)
                continue
            self._service.hosted[hosted.claims.id] = hosted
            self.restored.append(hosted)

    async def _shut_down(self, server: grpc.aio.Server) -> None:
        """No verdicts: whoever is connected will look for the next process, and go on."""
        await server.stop(grace=None)
        for hosted in self._service.hosted.values():
            if hosted.notes is not None:
                hosted.notes.file.close()
