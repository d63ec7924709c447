"""Layers that change sides as bytes of a message: JSON and safetensors, as a journal's snapshot has them."""

import torch
from torch import Tensor

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.stream.journal import pack_snapshot, unpack_snapshot
from cutwater.stream.step_trainer import Snapshot
from cutwater.train.movable import Crossing
from cutwater.train.moving import Layers


def pack_layers(layers: Layers) -> Tensor:
    """The bytes of layers."""
    return torch.frombuffer(bytearray(pack_snapshot(Snapshot(*layers))), dtype=torch.uint8)


def unpack_layers(packed: Tensor, crossing: Crossing) -> Layers:
    """The layers in such bytes, found to be those that are to cross."""
    try:
        snapshot = unpack_snapshot(packed.numpy().tobytes())
    except FileFormatError as error:
        raise EngineError(f"the layers that moved can't be read: {error}") from error
    layers = Layers(snapshot.tensors, snapshot.plain)
    crossing.check(layers)
    return layers
