"""The device's end of the activation stream: blocking, for a ClientApp that is an ordinary function.

:class:`StreamClient` plays the server of :func:`cutwater.train.step.train_step`: the same training loop runs
against a half in this process or one across a network. A lost connection is opened again and the session goes
on; a refusal is raised.
"""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.stream.exchange import Arrival, Exchange, InTurn
from cutwater.stream.expectation import Expectation, Planned, said_sizes
from cutwater.stream.frames import FrameKind
from cutwater.stream.limits import Limits
from cutwater.stream.messages import NORM, UNUSED, Message, Packer
from cutwater.stream.move import TO, Move
from cutwater.stream.overlap import Delay, Overlapped, no_delay
from cutwater.stream.refusal import invalid
from cutwater.stream.session_connections import SessionConnections
from cutwater.stream.ticket import Ticket
from cutwater.train.rows import SentRows
from cutwater.train.step import Part, Reply, ServerStages, Tensors


@dataclass(frozen=True)
class StreamReply(Reply):
    """A part's gradients and loss, with what it took."""

    measures: Mapping[str, float] = field(default_factory=dict)
    """What the server's half measured; ``server_seconds`` is its whole stay there and, where parts overlap,
    ``waited_seconds`` what it and its reply waited there besides, for other parts and replies."""
    began: float = 0.0
    """When the part began to be sent, by this end's clock."""
    came: float = 0.0
    """When its gradients were there."""
    carried: tuple[int, int] = (0, 0)
    """Bytes of its tensors up and down, as they crossed."""

    @property
    def seconds(self) -> float:
        """From sending the part to having the gradients."""
        return self.came - self.began


class Sent(NamedTuple):
    """A part whose reply was not taken yet."""

    planned: Planned
    device: torch.device
    carried: int


class StreamClient(ServerStages):
    """A session of one client; one thread at a time.

    In turn, that thread does it all, and what is kept for a resend is one part. Where parts overlap, two
    threads of the session's own send and receive meanwhile; kept are at most the parts of one mini-batch
    that were not answered, and their replies that were not taken, each as it crosses.

    ``up`` and ``down`` emulate a link where parts overlap; see ``overlap``.
    """

    def __init__(
        self,
        ticket: Ticket,
        expect: Expectation,
        *,
        client: str,
        limits: Limits | None = None,
        up: Delay = no_delay,
        down: Delay = no_delay,
    ) -> None:
        self._expect, self._overlapped = expect, expect.window > 1
        self._connections = SessionConnections(
            ticket, expect, client, limits or Limits(), threads=self._overlapped
        )
        self._exchange: Exchange = (
            Overlapped(self._connections, up, down) if self._overlapped else InTurn(self._connections)
        )
        self._packer = Packer(expect.at_server)
        self._rows = SentRows(expect.once)
        self._coming = expect.parts()
        self._next: Planned | None = next(self._coming)
        self._sent: deque[Sent] = deque()
        self._done = self._moves = 0
        """Messages that were answered, and moves of the cut among them."""
        self.due = 0
        """The cut that the session is to move to before its next part; 0 if it stays."""
        self._device = torch.device("cpu")
        self.carrying = 0
        """Bytes of the tensors of the part that was handed over last, as they cross."""
        self._norm: dict[str, float] = {}
        """What gradients of the last mini-batch came to, and the message that it is to be said with."""
        self._normed = -1
        self.coding = {"up": 0.0, "down": 0.0}
        """Seconds that codecs, and knowing rows again, took here, on what went up and on what came down."""

    def __enter__(self) -> "StreamClient":
        try:
            self._exchange.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def openings(self) -> int:
        """Connections it took so far."""
        return self._connections.openings

    @property
    def round_trip(self) -> float:
        """Seconds of a message without content and its answer, as measured when the session began."""
        return self._connections.round_trip or 0.0

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Stage 2 of a part: S and labels up. Overlapped, it returns at once; in turn, they go by and by.

        In turn, a part whose reply was not waited for to the end may be handed over again.
        """
        planned = self._due(part)
        sent = self._hand_over(planned, smashed, (labels,), {}, labels.device)
        if self._sent and not self._overlapped:
            self._sent[0] = sent
        else:
            self._sent.append(sent)
            self._next = next(self._coming, None)

    def receive(self) -> StreamReply:
        """Stage 5 of the first part that has no reply yet: G and the loss down."""
        if not self._sent:
            raise EngineError("a reply is asked for, but every part has its own: send one first")
        sent, arrival = self._answered(FrameKind.REPLY)
        said = arrival.message.scalars
        loss = said.pop("loss", None)
        if loss is None:
            raise invalid(f"the reply to part {sent.planned.part.number} has no loss")
        self.due = int(said.pop(TO, 0.0))
        return self._reply(sent, arrival, loss)

    def clip(self, norm: float) -> None:
        """Say so with the part that is next, or with the end of the session."""
        self._norm, self._normed = {NORM: norm}, self._done

    def move(self, move: Move, layers: Tensor | None) -> StreamReply:
        """Have the cut moved, as is due: the bytes of layers up, or those that come down as ``gradients``."""
        if self._sent:
            raise EngineError(f"the cut is to move, but {len(self._sent)} replies were not taken")
        sent, number = () if layers is None else (layers,), self._done
        self._connections.expect(move.at_client)
        packed = Packer(move.at_server).pack(FrameKind.MOVE, number, sent, self._norm_at(number))
        self._exchange.put(packed, 1)
        arrival = self._taken(FrameKind.MOVED, number)
        self._done, self._moves, self.due = number + 1, self._moves + 1, 0
        self._expect, self._packer = move.expect, Packer(move.expect.at_server)
        self._connections.expect(move.expect.at_client)
        message = arrival.message
        return StreamReply(
            gradients=message.tensors,
            loss=0.0,
            measures=message.scalars,
            began=arrival.began,
            came=arrival.came,
            carried=(packed.outline.tensor_bytes, message.tensor_bytes),
        )

    def finish(self) -> int:
        """Tell the server that this was all; the number of parts, and moves, that both ends have counted."""
        number = self._done
        self._exchange.put(self._packer.pack(FrameKind.FINISH, number, (), self._norm_at(number)), 1)
        return self._taken(FrameKind.FINISHED, number).message.number

    def close(self) -> None:
        """Close the connection; unfinished, the session stays open at the server until its deadline."""
        self._exchange.close()

    def _due(self, part: Part) -> Planned:
        """The part as the plan has it, if it is the one that is next."""
        again = bool(self._sent) and not self._overlapped
        planned = self._sent[0].planned if again else self._next
        if planned is None:
            raise EngineError(f"part {part.number} is to be sent, but the plan has {self._done} parts")
        if part.number != planned.part.number:
            raise EngineError(
                f"part is {part.number}, but {planned.part.number} is next: parts come in order, each once"
            )
        if part != planned.part:
            raise EngineError(
                f"{part} is to be sent, but the plan has {planned.part}: train in the parts of the plan"
            )
        if planned.opens and self._sent and not again:
            raise EngineError(
                f"part {part.number} is to be sent, but {len(self._sent)} replies of the mini-batch before "
                "were not taken"
            )
        return planned._replace(moves=self._moves) if self._moves else planned

    def _hand_over(
        self,
        planned: Planned,
        tensors: Tensors,
        labels: Tensors,
        scalars: Mapping[str, float],
        device: torch.device,
    ) -> Sent:
        """Have a part sent: tensors that a codec may take, labels where they go, and what is told besides."""
        number, going = planned.number, (*tensors, *labels)
        if self._expect.once or not self._expect.up.plain:
            going, scalars = self._coded(planned, tensors, labels, scalars)
        scalars = {**scalars, **self._norm_at(number)}
        packed = self._packer.pack(planned.kind, number, going, scalars, rows=planned.rows)
        self._exchange.put(packed, planned.rows)
        self.carrying = packed.outline.tensor_bytes
        return Sent(planned, device, self.carrying)

    def _coded(
        self, planned: Planned, tensors: Tensors, labels: Tensors, scalars: Mapping[str, float]
    ) -> tuple[Tensors, Mapping[str, float]]:
        """What goes up of a part and is told with it, where not all goes, or not as it is."""
        began, expect, numbers = time.monotonic(), self._expect, Tensors()
        sizes = said_sizes(expect.up, expect.going_up(planned), tensors)
        if expect.once and not planned.back:
            told, fresh = self._rows.told((*tensors, *labels))
            tensors, labels, numbers = fresh[: len(tensors)], fresh[len(tensors) :], (told,)
        going = (*expect.up.encode(planned.number, tensors), *labels, *numbers)
        self.coding["up"] += time.monotonic() - began
        return going, {**sizes, **scalars}

    def _norm_at(self, number: int) -> dict[str, float]:
        """What gradients of the last mini-batch came to, if it is to be said with this message."""
        return self._norm if self._normed == number else {}

    def _decoded(self, planned: Planned, message: Message) -> Tensors:
        began = time.monotonic()
        gradients = self._expect.came_down(planned, message.tensors, message.scalars)
        self.coding["down"] += time.monotonic() - began
        return gradients

    def _taken(self, want: FrameKind, number: int) -> Arrival:
        arrival = self._exchange.take()
        message = arrival.message
        if message.kind is not want or message.number != number:
            raise invalid(f"a {want.name} to part {number} was due, but a {message.kind.name} came")
        return arrival

    def _answered(self, want: FrameKind) -> tuple[Sent, Arrival]:
        """The first part that has no reply yet, and what came for it."""
        sent, arrival = self._sent[0], self._taken(want, self._done)
        self._sent.popleft()
        self._done += 1
        if self._expect.once:
            self._rows.arrived()
        return sent, arrival

    def _reply(self, sent: Sent, arrival: Arrival, loss: float) -> StreamReply:
        message = arrival.message
        came = message.tensors if self._expect.down.plain else self._decoded(sent.planned, message)
        here, norm = sent.device.type == "cpu", message.scalars.pop(NORM, 0.0)
        unused = [place for place in range(len(came)) if message.scalars.pop(f"{UNUSED}{place}", 0.0)]
        return StreamReply(
            unused=tuple(unused),
            gradients=came if here else tuple(tensor.to(sent.device) for tensor in came),
            loss=loss,
            norm=norm,
            measures=message.scalars,
            began=arrival.began,
            came=arrival.came,
            carried=(sent.carried, message.tensor_bytes),
        )
