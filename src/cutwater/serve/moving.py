"""Layers that change sides as bytes of a message: JSON and safetensors, as a journal's snapshot has them."""

import torch
from torch import Tensor

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.stream.journal import pack_written, unpack_written
from cutwater.train.kept_side import Written
from cutwater.train.movable import Crossing


def pack_layers(layers: Written) -> Tensor:
    """The bytes of layers."""
    return torch.frombuffer(bytearray(pack_written(layers)), dtype=torch.uint8)


def unpack_layers(packed: Tensor, crossing: Crossing) -> Written:
    """The layers in such bytes, found to be those that are to cross."""
    try:
        layers = unpack_written(packed.numpy().tobytes())
    except FileFormatError as error:
        raise EngineError(f"the layers that moved can't be read: {error}") from error
    crossing.check(layers)
    return layers
