"""What a session notes in its journal while it goes on, and when a snapshot shortens that.

A snapshot is taken before the first part of a mini-batch: its client holds all replies to those before, none
of which will be asked for again. It takes the place of the parts once these are larger than itself, so that
what is written stays within twice what came up, and the file within the same of the half, its optimizer's
state and a mini-batch.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from cutwater.model.traffic import tensor_bytes
from cutwater.stream.expectation import Expectation, Planned
from cutwater.stream.frames import PARTS
from cutwater.stream.journal import JournalFile, Kind, pack_side, to_json
from cutwater.stream.messages import Message, Packer
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.step_trainer import Keeper, SessionInfo
from cutwater.train.kept_side import SideState

_WORTH: Final = 1 << 20
"""Bytes of parts below which no snapshot is taken: to compute them again is as quick."""
SESSION: Final = "session"
"""Under which a snapshot has what the stream counts."""


@dataclass(frozen=True, slots=True)
class Account:
    """What is counted of a session."""

    counts: Mapping[str, int]
    """Of what took effect."""
    seconds: Mapping[str, float]
    crossed: Mapping[str, int]
    """Bytes."""


class Notes:
    """Writes the journal of one session; lives in the server's event loop."""

    def __init__(
        self,
        file: JournalFile,
        session: SessionInfo,
        expect: Expectation,
        keeper: Keeper,
        *,
        between: bool = True,
        most: int | None = None,
    ) -> None:
        """``between`` mini-batches it begins; a snapshot is due after ``most`` bytes, whatever its size."""
        self.file, self._session, self._expect, self._keeper = file, session, expect, keeper
        self._packer = Packer(expect.at_server)
        self._between, self._most = between, most
        self._due = float(_WORTH if most is None else most)
        # A snapshot has no rows; as each comes once, its parts are not many bytes.
        if expect.once:
            self._due = math.inf
        self._in_order = asyncio.Lock()

    def bind(self, nonce: bytes, attempt: int, opened: float) -> None:
        """A connection is let in."""
        self._append(Kind.BIND, to_json({"nonce": nonce.hex(), "attempt": attempt, "opened": opened}))

    async def part(self, planned: Planned, message: Message, account: Callable[[], Account]) -> None:
        """A part is about to be computed, and all before it that are of other mini-batches are answered."""
        async with self._in_order:
            if message.number and self._between and self.file.logged >= self._due:
                await self._shorten(message.number, account())
            self._append(Kind.PART, self._written(planned, message))
            self._between = planned.part.last and planned.completes

    def finish(self, parts: int, norm: float | None, seconds: float) -> None:
        """The client is done, so long after it came."""
        self._append(Kind.FINISH, to_json({"parts": parts, "norm": norm, "seconds": seconds}))

    def fail(self, failure: RefusedError) -> None:
        """The session is over; if that can't be noted, it will fail again."""
        with suppress(RefusedError):
            self._append(Kind.FAILED, to_json({"status": failure.status.name, "reason": failure.reason}))

    def _written(self, planned: Planned, message: Message) -> bytes:
        kind, number, tensors, scalars, _ = message
        assert kind in PARTS, "only parts take effect"
        packed = self._packer.pack(kind, number, tensors, scalars, rows=planned.rows)
        (frame,) = packed.frames(max(packed.outline.total, 1))
        return frame

    async def _shorten(self, number: int, account: Account) -> None:
        snapshot = await self._keeper.snapshot(self._session)
        if snapshot is None:
            self._due = math.inf
            return
        size = tensor_bytes(snapshot.tensors.values())
        if self._most is None:
            self._due = max(size, _WORTH)
            if self.file.logged < self._due:
                return
        about: dict[str, Any] = {"number": number, **asdict(account)}
        whole = SideState(snapshot.tensors, {**snapshot.plain, SESSION: about})
        try:
            # Nothing of the session is computed meanwhile; other sessions' parts come and go.
            await asyncio.to_thread(lambda: self.file.shorten(pack_side(whole)))
        except OSError as error:
            raise _refused(error) from error

    def _append(self, kind: Kind, content: bytes) -> None:
        try:
            self.file.append(kind, content)
        except OSError as error:
            raise _refused(error) from error


def _refused(error: OSError) -> RefusedError:
    reason = f"the session's journal can't be written ({error.strerror or error}): make room in TMPDIR"
    return RefusedError(Status.INTERNAL, reason)
