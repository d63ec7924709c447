"""Run a model's layers one by one, forward and backward, and note what each costs.

Gradients are wanted exactly where training the whole model wants them: a layer's input gets one if anything
before it learns. The model's own input never does, so layer 1 has no such work. As layer 1 is with the client
at every cut, and the layer after a cut has this work on either side, the sums over layers 1..l and l+1..L are
what client and server do, and they add up to the whole model's at every cut.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.base.errors import ModelError
from cutwater.base.usercode import told
from cutwater.codec.crossing import Crossing
from cutwater.model.at_cut import cut_loose
from cutwater.model.graph.nested import map_tensors, tensors_in
from cutwater.model.layers import Layered
from cutwater.model.precision import autocast
from cutwater.model.traffic import tensor_bytes, traffic
from cutwater.profile.flops import Formulas, OperatorCounter
from cutwater.profile.held_memory import Storages
from cutwater.profile.stand_in import real_copy, stand_in


@dataclass(frozen=True)
class LayerCost:
    """What one layer costs with a whole mini-batch."""

    forward_flops: int
    backward_flops: int
    trainable_bits: int
    """Parameters that this layer is the first to use and that learn."""
    buffer_bits: int
    """Its buffers that a state dict holds."""
    frozen_bits: int
    """Its parameters that do not learn."""
    weight_bits: int
    """Parameters and buffers that this layer is the first to use."""
    output_bits: int
    """What crosses a cut after this layer."""
    gradient_bits: int
    """The part of it that a gradient comes back for."""
    crossing: tuple[Crossing, ...] | None
    """The tensors that it consists of; None where one is no tensor of samples."""
    varies: bool
    """Whether its forward pass draws, or goes by the other samples of a mini-batch."""
    held_bits: int
    """Inputs, all that layers up to this one saved for the backward pass, and this one's output."""


def walk(layered: Layered, inputs: Any, formulas: Formulas, precision: str | None = None) -> list[LayerCost]:
    """The cost of every layer, on tensors without memory; the model given is not touched.

    ``precision`` is what layers compute in, if not in that of their weights.

    A layer that wants to see numbers can't run like this; then a copy of the model runs for real.
    """
    try:
        mode, light, bare = stand_in(layered.module, inputs)
        with mode, torch.random.fork_rng(devices=[]):
            return list(_costs(replace(layered, module=light.train()), bare, formulas, precision))
    except Exception:
        if any(tensor.is_meta for tensor in [*layered.module.parameters(), *tensors_in(inputs)]):
            raise
    heavy = replace(layered, module=real_copy(layered.module).train())
    with torch.random.fork_rng(devices=[]):
        return list(_costs(heavy, inputs, formulas, precision))


def first_tensor(example_inputs: Any) -> Tensor:
    """The input that tells the batch size and the device."""
    found = tensors_in(example_inputs)
    if not found or not found[0].ndim:
        raise ModelError(
            "the example inputs hold no batch: give tensors whose first dimension is the batch size"
        )
    return found[0]


def crossing(values: list[Tensor], batch: int) -> tuple[Crossing, ...] | None:
    """What crosses a cut, for one sample; None where something has no samples."""
    if any(value.ndim == 0 or value.shape[0] != batch for value in values):
        return None
    return tuple(
        Crossing(tuple(value.shape[1:]), str(value.dtype).removeprefix("torch."), value.requires_grad)
        for value in values
    )


def call(module: nn.Module, inputs: Any) -> Any:
    """Call a model with inputs as a user gives them: a tensor, a tuple of them, or a dict by keyword."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)


def backward(output: Any) -> bool:
    """The backward pass from all of an output that has a gradient, ones for it; whether any has."""
    learning = [value for value in tensors_in(output) if value.requires_grad]
    if learning:
        torch.autograd.backward(learning, [torch.ones_like(value) for value in learning])
    return bool(learning)


def _costs(layered: Layered, inputs: Any, formulas: Formulas, precision: str | None) -> Iterator[LayerCost]:
    parameters, buffers = list(layered.module.parameters()), list(layered.module.buffers())
    weights, held = Storages(), Storages(ignored=[*parameters, *buffers])
    held.add(tensors_in(inputs))
    arguments, seen = inputs, set[int]()
    for index, layer in enumerate(layered.layers, start=1):
        half = layered.half(index - 1, index)
        before, sent = weights.bytes, traffic(half, seen)
        weights.add([*half.parameters(), *half.buffers()])
        with naming(f"layer {index} ({layer.name!r}) fails"):
            with autocast(precision, tensors_in(arguments)):
                output, counter = _forward(half, arguments, formulas, held)
            with OperatorCounter(formulas) as back:
                backward(output)
        yield LayerCost(
            forward_flops=counter.flops,
            backward_flops=back.flops,
            trainable_bits=8 * sum(sent.learned.values()),
            buffer_bits=8 * sum(sent.buffers.values()),
            frozen_bits=8 * sum(sent.fixed.values()),
            weight_bits=8 * (weights.bytes - before),
            output_bits=8 * tensor_bytes(tensors_in(output)),
            gradient_bits=8 * tensor_bytes(value for value in tensors_in(output) if value.requires_grad),
            crossing=crossing(tensors_in(output), first_tensor(inputs).shape[0]),
            varies=counter.varies,
            held_bits=8 * held.bytes_with(tensors_in(output)),
        )
        # What crosses a cut is one argument, be it a tuple.
        arguments = (map_tensors(cut_loose, output),)


def _forward(
    half: nn.Module, arguments: Any, formulas: Formulas, held: Storages
) -> tuple[Any, OperatorCounter]:
    def enter(value: Tensor) -> Tensor:
        if not value.requires_grad:
            return value
        # A layer may write into its input, which autograd forbids for a leaf. In the whole model there is
        # no copy, so its memory is the original's.
        entered = value.clone()
        held.alias(entered, value)
        return entered

    entered = map_tensors(enter, arguments)
    with OperatorCounter(formulas) as counter, held.recording():
        output = call(half, entered)
    return output, counter


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Turn whatever goes wrong in a user's model into one sentence that says where."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{what}: {error}") from error
    except Exception as error:
        raise ModelError(f"{what}: {told(error)}") from error
