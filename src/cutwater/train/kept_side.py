"""A side of a session written down between two of its mini-batches, and put back as it was, to the last bit.

That is: weights that learn, all buffers (those that no state dict holds, too), gradients that wait for the
client's norm, the optimizer's state and what it keeps in its groups, and the step of the learning rate's
schedule. Random streams need nothing: they follow from the seed and a part's number. What a module keeps in
plain attributes is not seen.

The same crosses, layer by layer, where a session's cut moves between two mini-batches and layers change sides
with all that is kept of them. Streams belong to seed, part and layer, and the sum of clipping by the norm
runs over layers wherever they are. So the bits of a session do not depend on where it is cut, nor on when
that changes.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from cutwater.base.errors import RunError
from cutwater.model.layers import fill_buffer
from cutwater.train.step import AtServer, ServerStages, Side

_HALF, _GRADIENT, _OPTIMIZER = "half/", "gradient/", "optimizer/"
_BETWEEN = "\x1f"
PLAIN = (bool, int, float, str, type(None))
"""What an optimizer may keep besides tensors."""


class SideState(NamedTuple):
    """What was written down of a side, of some of its layers, or of a session with it."""

    tensors: Mapping[str, Tensor]
    plain: Mapping[str, Any]
    """The rest, as JSON."""


@runtime_checkable
class MovingStages(ServerStages, Protocol):
    """A server that may have the cut moved between two mini-batches."""

    def due(self) -> int:
        """The cut that the session is to have from the next mini-batch on; 0 if it stays where it is."""

    def move(self, cut: int, given: SideState | None) -> SideState | None:
        """Give the server the layers that are its own from now on, or take those that are the client's."""


def write_side(side: Side) -> SideState | None:
    """A side, with its own tensors by name; None if its optimizer keeps more than can be written."""
    learning = {name: one for name, one in side.half.named_parameters() if one.requires_grad}
    tensors = {_HALF + name: one for name, one in (*learning.items(), *side.half.named_buffers())}
    tensors |= {_GRADIENT + name: one.grad for name, one in learning.items() if one.grad is not None}
    kept = _write_optimizer(side, {one: name for name, one in learning.items()}, tensors)
    if kept is None:
        return None
    least = side.least if isinstance(side, AtServer) else None
    plain = {"optimizer": kept, "step": side.step_of_rates, "least": least}
    return SideState({name: one.detach() for name, one in tensors.items()}, plain)


def read_side(side: Side, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
    """Put back what was written, into a side that was just made from the same weights."""
    learning = {name: one for name, one in side.half.named_parameters() if one.requires_grad}
    with torch.no_grad():
        for name, parameter in learning.items():
            parameter.copy_(tensors[_HALF + name])
            if _GRADIENT + name in tensors:
                parameter.grad = _like(tensors[_GRADIENT + name], parameter)
    for name in [name.removeprefix(_HALF) for name in tensors if name.startswith(_HALF)]:
        if name not in learning:
            fill_buffer(side.half, name, tensors[_HALF + name])
    _read_optimizer(side, learning, tensors, plain["optimizer"])
    side.step_of_rates = plain["step"]
    if isinstance(side, AtServer):
        side.least = plain["least"]


def weight_name(name: str) -> str:
    """Under which a weight or buffer is written."""
    return _HALF + name


def state_name(name: str, key: str) -> str:
    """Under which a tensor is written that the optimizer keeps of a weight."""
    return f"{_OPTIMIZER}{name}{_BETWEEN}{key}"


def owner_of(name: str) -> str:
    """The parameter or buffer that a tensor belongs to which was written under this name."""
    return name.partition("/")[2].partition(_BETWEEN)[0]


def _write_optimizer(
    side: Side, names: Mapping[Tensor, str], tensors: dict[str, Tensor]
) -> dict[str, Any] | None:
    """What an optimizer keeps besides tensors, which are added to the others."""
    if side.optimizer is None:
        return {"state": {}, "groups": [], "elsewhere": []}
    state: dict[str, dict[str, Any]] = {}
    elsewhere: list[str] = []
    for parameter, kept in side.optimizer.state.items():
        if parameter not in names or not isinstance(kept, dict):
            return None
        name = names[parameter]
        state[name] = {}
        for key, value in kept.items():
            if isinstance(value, Tensor):
                full = state_name(name, key)
                tensors[full] = value
                elsewhere += [full] if value.device != parameter.device else []
            elif isinstance(value, PLAIN) and isinstance(key, str):
                state[name][key] = value
            else:
                return None
    groups = [_plain_of(group) for group in side.optimizer.param_groups]
    return None if None in groups else {"state": state, "groups": groups, "elsewhere": elsewhere}


def _plain_of(group: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of a group of parameters, numbers and the like; tuples of them are never changed by a step."""
    rest = {key: value for key, value in group.items() if key != "params"}
    if any(isinstance(value, Tensor) for value in rest.values()):
        return None
    return {key: value for key, value in rest.items() if isinstance(value, PLAIN)}


def _read_optimizer(
    side: Side, learning: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor], kept: Mapping[str, Any]
) -> None:
    if side.optimizer is None:
        return
    # Not by load_state_dict, which makes every tensor one of the parameter's type.
    for name, values in kept["state"].items():
        side.optimizer.state[learning[name]].update(values)
    for name in [name for name in tensors if name.startswith(_OPTIMIZER)]:
        owner, _, key = name.removeprefix(_OPTIMIZER).rpartition(_BETWEEN)
        value, parameter = tensors[name], learning[owner]
        # A step that is counted in a tensor, say, may be on the CPU whatever device the weights are on.
        side.optimizer.state[parameter][key] = (
            value.clone() if name in kept["elsewhere"] else _like(value, parameter)
        )
    for group, values in zip(side.optimizer.param_groups, kept["groups"], strict=True):
        group.update(values)


def _like(value: Tensor, parameter: Tensor) -> Tensor:
    """A copy where the parameter is and, of its shape, as that lies in memory: as an optimizer makes it."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def named_tensors(half: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers, by name."""
    return {**dict(half.named_parameters()), **dict(half.named_buffers())}


def give(side: Side, names: Collection[str]) -> SideState:
    """What a side knows of the layers with these tensors, for the other side; the tensors are its own."""
    return _of(_written(side), names)


def go_on(new: Side, old: Side, came: SideState | None) -> None:
    """Have a side, just made for another cut, where the one before it was; ``came`` are layers it gained."""
    known = _written(old) if came is None else _both(_written(old), came)
    read_side(new, *_of(known, named_tensors(new.half)))


def _written(side: Side) -> SideState:
    written = write_side(side)
    if written is None:
        raise RunError("the optimizer keeps more than tensors and numbers, so that its layers can't move")
    return written


def _of(written: SideState, names: Collection[str]) -> SideState:
    """The same of some layers only, by the names of their tensors."""
    kept = written.plain["optimizer"]
    state = {name: one for name, one in kept["state"].items() if name in names}
    elsewhere = [name for name in kept["elsewhere"] if owner_of(name) in names]
    tensors = {name: one for name, one in written.tensors.items() if owner_of(name) in names}
    optimizer = {**kept, "state": state, "elsewhere": elsewhere}
    return SideState(tensors, {**written.plain, "optimizer": optimizer})


def _both(mine: SideState, came: SideState) -> SideState:
    """What two sides keep; one that had nothing to train knows neither its optimizer's groups nor a step."""
    one, other = mine.plain["optimizer"], came.plain["optimizer"]
    plain = {
        "optimizer": {
            "state": {**one["state"], **other["state"]},
            "groups": one["groups"] or other["groups"],
            "elsewhere": [*one["elsewhere"], *other["elsewhere"]],
        },
        "step": mine.plain["step"] if one["groups"] else came.plain["step"],
        "least": mine.plain["least"],
    }
    return SideState({**mine.tensors, **came.tensors}, plain)
