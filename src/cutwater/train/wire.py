"""What a codec does to the tensors that cross a cut: one seam for every executor.

In process, tensors are coded and decoded on the spot; across a network, the coded ones are what travels. So
both ends see the same values either way. A codec takes float32 tensors; what else crosses a cut (whole
numbers, masks, other floats) passes as it is. Random numbers of a codec follow from the session's seed, the
direction, the part and the tensor's place. Of rows that cross once a session (:mod:`cutwater.train.rows`),
those of a part that are new are coded; where there are none, there is nothing to code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cutwater.codec.checked import decode_checked, encode_checked
from cutwater.codec.registry import CODECS, find_codec
from cutwater.codec.value import Codec
from cutwater.model.randomness import derive_seed
from cutwater.model.traffic import tensor_bytes
from cutwater.train.rows import RowsInProcess
from cutwater.train.step import Part, Reply, ServerStages, Tensors
from cutwater.train.three_parts import Back, MiddleStages, leg

Direction = Literal["up", "down"]
_WHAT = {"up": "smashed data", "down": "gradients"}


@cache
def load_loops(name: str) -> None:
    """Code a few numbers once, so that no mini-batch waits for the machine code of the codec's loops.

    To load it takes a new process some tenths of a second, as long as a short mini-batch. A user's codec is
    not called before it has something to do.
    """
    if name not in CODECS:
        return
    codec = find_codec(name)
    for length in (1, 1 << 12):  # topk packs long samples by other loops than short ones
        numbers = np.ones((1, length), np.float32)
        codec.decode(codec.encode(numbers, 0), numbers.shape)


@dataclass(frozen=True)
class Coder:
    """One direction of a session's wire."""

    codec: Codec
    direction: Direction
    seed: int
    """The session's."""

    @classmethod
    def of(cls, name: str, direction: Direction, seed: int) -> "Coder":
        """The coder of a codec by name, ready for the first mini-batch."""
        load_loops(name)
        return cls(find_codec(name), direction, seed)

    @cached_property
    def plain(self) -> bool:
        """Whether tensors travel as they are."""
        return self.codec.name == "fp32"

    def takes(self, tensor: Tensor) -> bool:
        """Whether a tensor is coded at all."""
        return not self.plain and tensor.dtype == torch.float32

    def encode(self, number: int, tensors: Tensors) -> Tensors:
        """Tensors of a part as they travel: bytes where they are coded."""
        return tuple(
            self._encode(number, place, tensor) if self.takes(tensor) else tensor
            for place, tensor in enumerate(tensors)
        )

    def _encode(self, number: int, place: int, tensor: Tensor) -> Tensor:
        if not tensor.numel():
            return torch.empty(0, dtype=torch.uint8)
        seed = derive_seed(self.seed, self.direction, number, place)
        values = tensor.detach().cpu().contiguous().numpy()
        return torch.from_numpy(encode_checked(self.codec, values, seed, self._what(number)))

    def decode(self, number: int, coded: Tensors, like: Sequence[Tensor]) -> Tensors:
        """What arrives; ``like`` has the shapes, types and devices (meta tensors will do)."""
        pairs = zip(coded, like, strict=True)
        return tuple(self._decode(number, one, as_) if self.takes(as_) else one for one, as_ in pairs)

    def _decode(self, number: int, coded: Tensor, like: Tensor) -> Tensor:
        if not like.numel():
            return torch.empty(like.shape, dtype=like.dtype, device=None if like.is_meta else like.device)
        values = decode_checked(self.codec, coded.numpy(), tuple(like.shape), self._what(number))
        found = torch.from_numpy(values)
        return found if like.is_meta else found.to(like.device)

    def _what(self, number: int) -> str:
        return f"a tensor of the {_WHAT[self.direction]} of part {number}"

    def across(self, number: int, tensors: Tensors) -> tuple[Tensors, int]:
        """What arrives at the other end, and the bytes that crossed."""
        coded = self.encode(number, tensors)
        return self.decode(number, coded, tensors), tensor_bytes(coded)


class InProcess(ServerStages):
    """A server in this process behind a wire: applies the codecs and counts what would have crossed."""

    def __init__(self, server: ServerStages, up: Coder, down: Coder, once: int = 0) -> None:
        self.server, self._coders = server, (up, down)
        self.up, self.down, self._numbers = 0, 0, list[int]()
        self._rows = RowsInProcess(once) if once else None

    def send(self, part: Part, smashed: Tensors, labels: Tensor) -> None:
        """Through the codec up."""
        cross = partial(self._across, part.number)
        given = (*smashed, labels)
        arrived, size = cross(given) if self._rows is None else self._rows.across(given, cross)
        self.up += size
        self.server.send(part, _wanting(arrived[:-1], smashed), arrived[-1])
        self._numbers.append(part.number)

    def _across(self, number: int, tensors: Tensors) -> tuple[Tensors, int]:
        """Smashed data and, last, labels, which no codec takes."""
        arrived, size = self._coders[0].across(number, tensors[:-1])
        return (*arrived, tensors[-1]), size + tensor_bytes(tensors[-1:])

    def receive(self) -> Reply:
        """Through the codec down."""
        reply = self.server.receive()
        gradients, size = self._coders[1].across(self._numbers.pop(0), reply.gradients)
        self.down += size
        return replace(reply, gradients=gradients)

    def clip(self, norm: float) -> None:
        """One number, which is no tensor."""
        self.server.clip(norm)


class MiddleInProcess(MiddleStages):
    """The middle of a model in this process behind a wire: what goes up by one codec, down by the other."""

    def __init__(self, middle: MiddleStages, up: Coder, down: Coder, once: int = 0) -> None:
        self.middle, self._coders = middle, (up, down)
        self.up, self.down = 0, 0
        self._rows = RowsInProcess(once) if once else None

    def forward(self, part: Part, smashed: Tensors) -> Tensors:
        """Smashed data up, the middle's output down."""
        number = leg(part, back=False)
        cross = partial(self._coders[0].across, number)
        arrived, size = cross(smashed) if self._rows is None else self._rows.across(smashed, cross)
        self.up += size
        output = self.middle.forward(part, _wanting(arrived, smashed))
        return _wanting(self._down(number, output), output)

    def backward(self, part: Part, back: Back) -> Back:
        """Gradients up and down."""
        number = leg(part, back=True)
        gradients, size = self._coders[0].across(number, back.gradients)
        self.up += size
        reply = self.middle.backward(part, replace(back, gradients=gradients))
        return replace(reply, gradients=self._down(number, reply.gradients))

    def clip(self, norm: float) -> None:
        """One number, which is no tensor."""
        self.middle.clip(norm)

    def _down(self, number: int, tensors: Tensors) -> Tensors:
        arrived, size = self._coders[1].across(number, tensors)
        self.down += size
        return arrived


def _wanting(arrived: Tensors, sent: Tensors) -> Tensors:
    """What arrived, with gradients wanted where they are for what was sent."""
    return tuple(a.requires_grad_(s.requires_grad) for a, s in zip(arrived, sent, strict=True))
