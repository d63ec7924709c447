"""A session's state at the server: every step takes effect exactly once, whatever happens to connections.

Steps are numbered from 0 and come one at a time, as training does. A step that has arrived in full runs to
its end, whatever becomes of the connection that brought it, and its reply is kept until the next step arrives
in full. A client that comes back says how many replies it holds; it is told how many steps have arrived. So
it sends again exactly what got lost on the way up, and is sent again exactly what got lost on the way down.
"""

import asyncio
import concurrent.futures
import hmac
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cutwater.base.errors import CutwaterError
from cutwater.stream.expectation import Expectation
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import UNUSED, Message, Packed, Packer
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult, StepTrainer
from cutwater.stream.ticket import Claims, Opening

log = logging.getLogger(__name__)


class HostedSession:
    """One session; lives in the server's event loop alone, so nothing here needs a lock."""

    def __init__(
        self, claims: Claims, expect: Expectation, trainer: StepTrainer, clock: Callable[[], float]
    ) -> None:
        self.claims, self.expect, self._trainer, self._clock = claims, expect, trainer, clock
        self.session = SessionInfo(claims.id, claims.run, claims.round, claims.client, claims.cut)
        self.over: concurrent.futures.Future[SessionRecord] = concurrent.futures.Future()
        self.received = self.applied = self.samples = self.bytes_up = self.bytes_down = 0
        self.seconds = {"up": 0.0, "server": 0.0, "down": 0.0}
        self.finished = False
        self.failure: RefusedError | None = None
        self._packer = Packer(expect.at_client())
        self._needing = [place for place, spec in enumerate(expect.smashed) if spec in expect.gradients]
        self._nonce, self._attempt, self._openings = b"", 0, 0
        self._open_by = clock() + claims.open_seconds
        self._ending: asyncio.Future[RefusedError] | None = None
        self._answer: asyncio.Future[Packed | None] | None = None
        self._busy: asyncio.Task[Any] | None = None
        self._rest: Callable[[], object] | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(claims.session_seconds, self._expire)
        self._closing: asyncio.Task[None] | None = None

    # Connections

    def admit(self, opening: Opening) -> "asyncio.Future[RefusedError]":
        """Let a connection in, in place of the one before; the future says when it must go, and why."""
        self._check_opening(opening)
        self._nonce, self._attempt = opening.nonce, opening.attempt
        self._openings += 1
        self._dismiss(RefusedError(Status.ABORTED, "the session goes on over another connection"))
        self._ending = asyncio.get_running_loop().create_future()
        return self._ending

    def _check_opening(self, opening: Opening) -> None:
        if self.failure is not None:
            raise self.failure
        if not self._nonce:
            if self._clock() > self._open_by:
                raise _denied(f"the ticket was good for {self.claims.open_seconds:g} s, which are over")
        elif not hmac.compare_digest(self._nonce, opening.nonce):
            raise _denied("the ticket was used before: it opens one session")
        if opening.attempt <= self._attempt:
            raise _denied(f"opening {opening.attempt} was used before: {self._attempt} came already")
        # Nobody holds the reply to a step that still runs.
        answered = self.finished or self._answer is None or self._answer.done()
        known = (self.received,) if self.finished else (self.received - 1, *([self.received] * answered))
        if opening.have not in known:
            raise RefusedError(
                Status.FAILED_PRECONDITION,
                f"the client holds {opening.have} replies, but {self.received} steps have arrived",
            )

    def _dismiss(self, refusal: RefusedError) -> None:
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(refusal)

    # Steps

    async def take(self, message: Message) -> Packed | None:
        """A step has arrived in full: run it, once, for its reply, which :meth:`reply` has from then on.

        Runs in the task of the connection that brought it, but does not end with that connection.
        """
        number = message.step
        if self.finished or number != self.received or self._busy is not None:
            raise RefusedError(
                Status.FAILED_PRECONDITION, f"step {number} came, but step {self.received} is next"
            )
        if number >= self.expect.steps:
            raise invalid(f"step {number} came, but the plan has {self.expect.steps} steps")
        self.do_the_rest()
        self.received += 1
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._busy, reply = asyncio.current_task(), None
        try:
            reply = await self._run(message)
        finally:
            self._busy = None
            answer.set_result(reply)
        return reply

    def do_the_rest(self) -> None:
        """The reply to the last step is out, or need not be waited for."""
        rest, self._rest = self._rest, None
        if rest is not None:
            rest()

    def runs_in(self, task: "asyncio.Task[None]") -> bool:
        """Whether this task is in the middle of a step, and so must be left alone."""
        return self._busy is task

    async def reply(self) -> Packed | None:
        """The reply to the last step that arrived, when it is there; None if the session failed over it."""
        assert self._answer is not None
        return self._answer.result() if self._answer.done() else await asyncio.shield(self._answer)

    async def _run(self, message: Message) -> Packed | None:
        *smashed, labels = message.tensors
        rows = labels.shape[0]
        for place in self._needing:
            smashed[place].requires_grad_()
        number, started = message.step, self._clock()
        try:
            result = await self._trainer.step(self.session, number, tuple(smashed), labels)
            seconds = self._clock() - started
            if not math.isfinite(result.loss):
                raise self._diverged(number, smashed, result.loss)
            reply = self._pack(number, rows, result, seconds)
        except RefusedError as refusal:
            self.fail(refusal)
        except CutwaterError as error:
            reason = f"step {number} of client {self.session.client!r}: {error}"
            self.fail(RefusedError(Status.ABORTED, reason))
        except Exception:
            log.exception("the server's half failed at step %d of %s", number, self.session)
            reason = f"the server's half failed at step {number}; see its log"
            self.fail(RefusedError(Status.INTERNAL, reason))
        else:
            self.applied += 1
            self.samples += rows
            self.seconds["server"] += seconds
            self._rest = result.rest
            return reply
        return None

    def _pack(self, number: int, rows: int, result: StepResult, seconds: float) -> Packed:
        unused = {f"{UNUSED}{place}": 1.0 for place in result.unused}
        scalars = {**result.measures, **unused, "loss": result.loss, "server_seconds": seconds}
        try:
            packed = self._packer.pack(FrameKind.REPLY, number, result.gradients, scalars)
        except RefusedError as refusal:
            raise TypeError(
                f"the gradients of the server's half can't be sent: {refusal.reason}"
            ) from refusal
        if any(gradient.shape[0] != rows for gradient in result.gradients):
            raise TypeError(f"the server's half gave gradients of another number of samples than {rows}")
        if not all(map(math.isfinite, scalars.values())):
            raise TypeError(f"the server's half measured {scalars}, but measures must be finite")
        return packed

    def _diverged(self, number: int, smashed: Sequence[Tensor], loss: float) -> RefusedError:
        """Why a step had a loss that is no number: by what the client sent, or by itself.

        Nobody looks for NaN and infinity in what arrives, as that would take as long as the checksum: they
        show in the loss, in that of the next step or in the weights of this session, all of which are looked
        at, and it has a half of its own.
        """
        for spec, tensor in zip(self.expect.smashed, smashed, strict=True):
            if not bool(torch.isfinite(tensor).all()):
                return invalid(f"tensor {spec.name!r} of step {number} holds NaN or infinity")
        return RefusedError(
            Status.ABORTED,
            f"step {number} of client {self.session.client!r} gave a loss of {loss}; it is left out",
        )

    # Ends

    def finish(self, steps: int) -> None:
        """The client says it is done; said twice, it is done once."""
        if steps != self.received:
            raise RefusedError(
                Status.FAILED_PRECONDITION,
                f"the client counts {steps} steps, but {self.received} have arrived",
            )
        if not self.finished:
            self.do_the_rest()
            self.finished = True
            self._end()

    def fail(self, refusal: RefusedError) -> None:
        """End the session for good; the client learns why if it is there or comes back."""
        if self.finished or self.failure is not None:
            return
        # A copy without its traceback, which would keep the refused data for as long as the record.
        self.failure = RefusedError(refusal.status, refusal.reason)
        self._rest = None
        self._dismiss(self.failure)
        self._end()

    def _expire(self) -> None:
        reason = f"the session's {self.claims.session_seconds:g} s are over"
        self.fail(RefusedError(Status.DEADLINE_EXCEEDED, reason))

    def _end(self) -> None:
        self._timer.cancel()
        if self._busy is not None and self._busy is not asyncio.current_task():
            self._busy.cancel()
        self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        if self._answer is not None:
            await asyncio.shield(self._answer)
            self._answer = None
        try:
            await self._trainer.closed(self.session, self.record())
        except Exception:
            log.exception("the server's half failed to close %s", self.session)
            reason = "the server's half failed at the end of the session; see its log"
            self.failure = self.failure or RefusedError(Status.INTERNAL, reason)
        self.over.set_result(self.record())

    async def ended(self) -> SessionRecord:
        """Wait for the end, which has begun."""
        assert self._closing is not None
        await asyncio.shield(self._closing)
        return self.over.result()

    def record(self) -> SessionRecord:
        """How it went so far."""
        return SessionRecord(
            session=self.session,
            steps=self.applied,
            samples=self.samples,
            bytes_up=self.bytes_up,
            bytes_down=self.bytes_down,
            openings=self._openings,
            seconds=dict(self.seconds),
            failure=self.failure,
        )


def _denied(reason: str) -> RefusedError:
    return RefusedError(Status.PERMISSION_DENIED, reason)
