"""Layers that change sides as bytes of a message: JSON and safetensors, as a journal's snapshot has them."""

import torch
from torch import Tensor

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.stream.journal import pack_side, unpack_side
from cutwater.train.kept_side import SideState
from cutwater.train.movable import Crossing


def pack_layers(layers: SideState) -> Tensor:
    """The bytes of layers."""
    return torch.frombuffer(bytearray(pack_side(layers)), dtype=torch.uint8)


def unpack_layers(packed: Tensor, crossing: Crossing) -> SideState:
    """The layers in such bytes, found to be those that are to cross."""
    try:
        layers = unpack_side(packed.numpy().tobytes())
    except FileFormatError as error:
        raise EngineError(f"the layers that moved can't be read: {error}") from error
    crossing.check(layers)
    return layers
