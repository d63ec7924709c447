"""The device's end of the stream where the model has a tail there: labels and loss stay on the device.

A part goes up as its smashed data and comes down as the output of the server's layers; then the gradients of
that go up, and those of the smashed data come down. Both ways are messages of the session like any other,
numbered, resent and counted as in :mod:`cutwater.stream.client`.
"""

from cutwater.base.errors import EngineError
from cutwater.stream.client import Sent, StreamClient, StreamReply
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import NORM, UNUSED
from cutwater.train.step import Part, Tensors
from cutwater.train.three_parts import Back, MiddleStages


class MiddleClient(StreamClient, MiddleStages):
    """A session of one client whose labels stay with it; one thread."""

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """Smashed data up, the output of the server's layers down."""
        self.put(part, smashed)
        return self.take().gradients

    def backward(self, part: Part, back: Back) -> Back:
        """The gradients of that up, those of the smashed data down."""
        self.put(part, back)
        reply = self.take()
        return Back(reply.gradients, reply.unused, reply.norm)

    def put(self, part: Part, given: Tensors | Back) -> None:
        """What goes up for a part: smashed data or, on its way back, gradients."""
        planned, back = self._next, isinstance(given, Back)
        if planned is None or (planned.part, planned.back) != (part, back):
            way = "back" if back else "forward"
            raise EngineError(f"{part} is to go {way}, but the plan has {planned}: train in the plan's parts")
        if self._sent:
            raise EngineError(f"part {part.number} is to be sent, but a reply was not taken: take it first")
        tensors = given.gradients if isinstance(given, Back) else given
        unused = given.unused if isinstance(given, Back) else ()
        device = tensors[0].device if tensors else self._device
        coded = (self._encoded if back else self._going)(planned.number, tensors)
        scalars = {f"{UNUSED}{place}": 1.0 for place in unused} | self._said(planned, tensors)
        if isinstance(given, Back) and given.norm is not None:
            scalars[NORM] = given.norm
        packed = self._packer.pack(planned.kind, planned.number, coded, scalars, rows=planned.rows)
        self._exchange.put(packed, planned.rows)
        self.carrying, self._device = packed.outline.tensor_bytes, device
        self._sent.append(Sent(planned, device, self.carrying))
        self._next = next(self._coming, None)

    def take(self) -> StreamReply:
        """What comes down for it, with what it took: the output, as ``gradients``, or gradients."""
        sent, number = self._sent[0], self._done
        forward = not sent.planned.completes
        arrival = self._taken(FrameKind.OUTPUT if forward else FrameKind.REPLY, number)
        self._sent.popleft()
        self._done += 1
        self._rows.arrived()
        message = arrival.message
        came = self._decoded(sent.planned, message)
        came = came if sent.device.type == "cpu" else tuple(tensor.to(sent.device) for tensor in came)
        if forward:
            wanted = self._expect.output_gradients
            pairs = zip(came, self._expect.output, strict=True)
            came = tuple(tensor.requires_grad_(spec in wanted) for tensor, spec in pairs)
        unused = [place for place in range(len(came)) if message.scalars.pop(f"{UNUSED}{place}", 0.0)]
        return StreamReply(
            unused=tuple(unused),
            gradients=came,
            loss=0.0,
            norm=message.scalars.pop(NORM, 0.0),
            measures=message.scalars,
            began=arrival.began,
            came=arrival.came,
            carried=(sent.carried, message.tensor_bytes),
        )
