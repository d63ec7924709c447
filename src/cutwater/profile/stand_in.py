"""A copy of a model without its numbers, which behaves as the model does on a CPU."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from cutwater.model.graph.nested import map_tensors, tensors_in

_TABLES = ("_parameters", "_buffers", "_modules")


def stand_in(module: nn.Module, inputs: Any) -> tuple[FakeTensorMode, nn.Module, Any]:
    """The same module and inputs with tensors that have no memory, and the mode in which they can be called.

    In that mode, tensors have shape, type and device but no memory. Unlike the meta device it takes the same
    operators as a CPU does (flash attention, say), so that what is counted is what runs.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    replaced: dict[int, Any] = {id(tensor): _empty(tensor, mode) for tensor in _tensors(module)}
    light = copy.deepcopy(module, replaced)
    return mode, light, map_tensors(lambda tensor: _empty(tensor, mode), inputs)


def real_copy(module: nn.Module) -> nn.Module:
    """A copy of a module with its numbers; what it keeps of a forward pass is cut loose from that."""
    kept = {id(tensor): tensor.detach().clone() for tensor in _tensors(module) if not tensor.is_leaf}
    return copy.deepcopy(module, dict[int, Any](kept))


def _empty(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    """A tensor on the CPU, without memory, that looks like the given one."""
    with mode:
        bare = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(bare, requires_grad=tensor.requires_grad)
        return bare.requires_grad_(tensor.requires_grad)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and what hangs on a module as plain attributes: constants, kept activations."""
    for part in module.modules():
        yield from part.parameters(recurse=False)
        yield from part.buffers(recurse=False)
        yield from tensors_in([value for name, value in vars(part).items() if name not in _TABLES])
