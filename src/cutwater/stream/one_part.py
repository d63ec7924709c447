"""What the server does with one part: decode it, have it trained, encode and pack its reply.

Codecs work in a thread, because they may take their time while other sessions' parts come. A part may be
handed in while the one before is still trained; they are in any case in order.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cutwater.base.errors import CutwaterError
from cutwater.stream.expectation import Expectation, Planned, said_sizes
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import NORM, UNUSED, WAITED, Message, Packed, Packer
from cutwater.stream.move import Move
from cutwater.stream.refusal import RefusedError, Status, invalid
from cutwater.stream.step_trainer import SessionInfo, StepResult, StepTrainer
from cutwater.train.rows import KeptRows
from cutwater.train.step import Tensors
from cutwater.train.three_parts import Back

log = logging.getLogger(__name__)


class Computed(NamedTuple):
    """What came of a part."""

    packed: Packed
    seconds: float
    """That it was worked on, waiting for the session's share included, but not for the part before."""
    carried: tuple[int, int]
    """Bytes of its tensors up and of its gradients down, as they cross."""
    rest: Callable[[], object] | None
    """What can wait until the reply is out."""


class OnePart:
    """Computes the parts of one session, in the order in which they are handed in."""

    def __init__(
        self,
        session: SessionInfo,
        expect: Expectation,
        trainer: StepTrainer,
        clock: Callable[[], float],
        besides: Callable[[Planned], Mapping[str, float]],
    ) -> None:
        """``besides`` is what the reply to a part says that the half knows nothing of."""
        self._session, self._expect, self._trainer, self._clock = session, expect, trainer, clock
        self._besides = besides
        self._packer = Packer(expect.at_client)
        self._needing = [place for place, spec in enumerate(expect.smashed) if spec in expect.gradients]
        # Only where parts wait for each other is there anything to say about it.
        self._waits = {WAITED: 0.0} if expect.window > 1 else {}
        self._decoding = None if expect.up.plain else asyncio.Lock()
        self._encodes = not expect.down.plain
        self._rows = KeptRows(expect.once) if expect.once else None
        self._until = 0.0
        """When the last part was done."""

    async def compute(self, planned: Planned | Move, message: Message) -> Computed:
        """A part, or a move of the cut, and its reply; what goes wrong is a refusal that says so."""
        number = message.number
        try:
            if isinstance(planned, Move):
                return await self._move(planned, message)
            return await self._compute(planned, message)
        except RefusedError:
            raise
        except CutwaterError as error:
            reason = f"part {number} of client {self._session.client!r}: {error}"
            raise RefusedError(Status.ABORTED, reason) from error
        except Exception as error:
            log.exception("the server's half failed at part %d of %s", number, self._session)
            reason = f"the server's half failed at part {number}; see its log"
            raise RefusedError(Status.INTERNAL, reason) from error

    async def _compute(self, planned: Planned, message: Message) -> Computed:
        started = self._clock()
        tensors = list(message.tensors)
        numbers = tensors.pop() if self._rows is not None and not planned.back else None
        labels = tensors.pop() if planned.back is None else None
        if self._decoding is not None:
            # Handed on in order: the next is decoded when this one is on its way to be trained.
            async with self._decoding:
                coming = planned if numbers is None else planned._replace(rows=self._lacking(numbers))
                tensors = await self._decoded(coming, tuple(tensors), message.scalars)
        if numbers is not None:
            tensors, labels = self._whole(numbers, tensors, labels)
        for place in () if planned.back else self._needing:
            tensors[place].requires_grad_()
        result = await self._train(planned, tuple(tensors), labels, message.scalars)
        if not math.isfinite(result.loss):
            raise self._diverged(planned.part.number, tensors, result.loss)
        gradients = await self._encoded(planned, result.gradients) if self._encodes else result.gradients
        seconds = self._clock() - max(started, self._until)
        self._until = self._clock()
        packed = self._pack(planned, result, gradients, seconds)
        return Computed(packed, seconds, (message.tensor_bytes, packed.outline.tensor_bytes), result.rest)

    async def _move(self, move: Move, message: Message) -> Computed:
        started = self._clock()
        layers = message.tensors[0] if message.tensors else None
        given = await self._trainer.move(self._session, move.cut, layers, message.scalars.get(NORM))
        seconds = self._clock() - started
        packer, sent = Packer(move.at_client), () if given is None else (given,)
        scalars = {**self._waits, "server_seconds": seconds}
        packed = packer.pack(FrameKind.MOVED, message.number, sent, scalars)
        return Computed(packed, seconds, (message.tensor_bytes, packed.outline.tensor_bytes), None)

    async def _train(
        self, planned: Planned, tensors: Tensors, labels: Tensor | None, scalars: Mapping[str, float]
    ) -> StepResult:
        said = scalars.get(NORM)
        if not planned.back:
            part = planned.part if said is None else planned.part._replace(norm=said)
            if labels is not None:
                return await self._trainer.step(self._session, part, tensors, labels)
            return await self._trainer.forward(self._session, part, tensors)
        unused = tuple(place for place in range(len(tensors)) if scalars.get(f"{UNUSED}{place}"))
        back = Back(tensors, unused, said)
        return await self._trainer.backward(self._session, planned.part, back, planned.rows)

    def _lacking(self, numbers: Tensor) -> int:
        assert self._rows is not None
        try:
            return self._rows.lacking(numbers)
        except CutwaterError as error:
            raise invalid(str(error)) from error

    def _whole(
        self, numbers: Tensor, tensors: list[Tensor], labels: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        """All rows of a part, those that came before included."""
        assert self._rows is not None
        try:
            whole = self._rows.whole(numbers, (*tensors, *(() if labels is None else (labels,))))
        except CutwaterError as error:
            raise invalid(str(error)) from error
        return list(whole[: len(tensors)]), None if labels is None else whole[-1]

    @property
    def kept_bytes(self) -> int:
        """What the rows take that are kept, because they come once."""
        return 0 if self._rows is None else self._rows.bytes

    async def _decoded(self, planned: Planned, coded: Tensors, said: Mapping[str, float]) -> list[Tensor]:
        try:
            return list(await asyncio.to_thread(self._expect.came_up, planned, coded, said))
        except CutwaterError as error:
            raise invalid(str(error)) from error

    async def _encoded(self, planned: Planned, gradients: Tensors) -> Tensors:
        if any(gradient.shape[0] != planned.rows for gradient in gradients):
            raise TypeError(f"the server's half gave gradients of other samples than the {planned.rows} due")
        return await asyncio.to_thread(self._expect.down.encode, planned.number, gradients)

    def _pack(self, planned: Planned, result: StepResult, gradients: Tensors, seconds: float) -> Packed:
        unused = {f"{UNUSED}{place}": 1.0 for place in result.unused}
        scalars = {**result.measures, **unused}
        if self._encodes:
            scalars |= said_sizes(self._expect.down, self._expect.going_down(planned), result.gradients)
        scalars |= self._waits
        if planned.back is None:
            scalars["loss"] = result.loss
        scalars |= {**self._besides(planned), "server_seconds": seconds}
        if not all(map(math.isfinite, scalars.values())):
            raise TypeError(f"the server's half measured {scalars}, but measures must be finite")
        number, rows = planned.number, planned.rows
        kind = FrameKind.REPLY if planned.completes else FrameKind.OUTPUT
        try:
            return self._packer.pack(kind, number, gradients, scalars, rows=rows)
        except RefusedError as refusal:
            raise TypeError(
                f"the gradients of the server's half can't be sent: {refusal.reason}"
            ) from refusal

    def _diverged(self, number: int, smashed: Sequence[Tensor], loss: float) -> RefusedError:
        """Why a part had a loss that is no number: by what the client sent, or by itself.

        Nobody looks for NaN and infinity in what arrives, as that would take as long as the checksum: they
        show in the loss, in that of the next part or in the weights of this session, all of which are looked
        at, and it has a half of its own.
        """
        for spec, tensor in zip(self._expect.smashed, smashed, strict=True):
            if not bool(torch.isfinite(tensor).all()):
                return invalid(f"tensor {spec.name!r} of part {number} holds NaN or infinity")
        return RefusedError(
            Status.ABORTED,
            f"part {number} of client {self._session.client!r} gave a loss of {loss}; it is left out",
        )
