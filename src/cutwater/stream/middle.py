"""The device's end of the stream where the model has a tail there: labels and loss stay on the device.

A part goes up as its smashed data and comes down as the output of the server's layers; then the gradients of
that go up, and those of the smashed data come down. Both ways are messages of the session like any other,
numbered, resent and counted as in :mod:`cutwater.stream.client`.
"""

from cutwater.base.errors import EngineError
from cutwater.stream.client import StreamClient, StreamReply
from cutwater.stream.frames import FrameKind
from cutwater.stream.messages import NORM, UNUSED
from cutwater.train.step import Part, Tensors
from cutwater.train.three_parts import Back


class MiddleClient(StreamClient):
    """A session of one client whose labels stay with it; one thread."""

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
        scalars = {f"{UNUSED}{place}": 1.0 for place in unused}
        if isinstance(given, Back) and given.norm is not None:
            scalars[NORM] = given.norm
        self._sent.append(self._hand_over(planned, tensors, (), scalars, device))
        self._device, self._next = device, next(self._coming, None)

    def take(self) -> StreamReply:
        """What comes down for it, with what it took: the output, as ``gradients``, or gradients."""
        forward = not self._sent[0].planned.completes
        reply = self._reply(*self._answered(FrameKind.OUTPUT if forward else FrameKind.REPLY), 0.0)
        if forward:
            for tensor, spec in zip(reply.gradients, self._expect.output, strict=True):
                tensor.requires_grad_(spec in self._expect.output_gradients)
        return reply
