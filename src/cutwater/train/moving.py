"""A session's cut that moves between two mini-batches: layers change sides with all that is kept of them.

What moves is what :mod:`cutwater.train.kept_side` writes down of a side, layer by layer: weights, buffers,
what the optimizer keeps of them, and the step of the learning rate's schedule. Random streams need nothing,
as they belong to seed, part and layer, and so does clipping by the norm, whose sum runs over layers wherever
they are. So the bits of a session do not depend on where it is cut, nor on when that changes.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from cutwater.base.errors import RunError
from cutwater.train.kept_side import Written, owner_of, read_side, write_side
from cutwater.train.step import ServerStages, Side


@runtime_checkable
class MovingStages(ServerStages, Protocol):
    """A server that may have the cut moved between two mini-batches."""

    def due(self) -> int:
        """The cut that the session is to have from the next mini-batch on; 0 if it stays where it is."""

    def move(self, cut: int, given: Written | None) -> Written | None:
        """Give the server the layers that are its own from now on, or take those that are the client's."""


def between(less: nn.Module, more: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers, by name, of the layers that one client-side half has beyond another."""
    stay = _named(less)
    return {name: one for name, one in _named(more).items() if name not in stay}


def _named(half: nn.Module) -> dict[str, Tensor]:
    return {**dict(half.named_parameters()), **dict(half.named_buffers())}


def give(side: Side, names: Collection[str]) -> Written:
    """What a side knows of the layers with these tensors, for the other side; the tensors are its own."""
    tensors, plain = _written(side)
    return Written({n: one for n, one in tensors.items() if owner_of(n) in names}, _of(plain, names))


def go_on(new: Side, old: Side, came: Written | None) -> None:
    """Have a side, just made for another cut, where the one before it was; ``came`` are layers it gained."""
    tensors, plain = _written(old)
    if came is not None:
        tensors, plain = {**tensors, **came.tensors}, _both(plain, came.plain)
    held = _named(new.half)
    read_side(new, {n: one for n, one in tensors.items() if owner_of(n) in held}, _of(plain, held))


def _written(side: Side) -> Written:
    written = write_side(side)
    if written is None:
        raise RunError("the optimizer keeps more than tensors and numbers, so that its layers can't move")
    return written


def _of(plain: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The same of some tensors only."""
    kept = plain["optimizer"]
    state = {name: one for name, one in kept["state"].items() if name in names}
    elsewhere = [name for name in kept["elsewhere"] if owner_of(name) in names]
    return {**plain, "optimizer": {**kept, "state": state, "elsewhere": elsewhere}}


def _both(mine: Mapping[str, Any], came: Mapping[str, Any]) -> dict[str, Any]:
    """What two sides keep; one that had nothing to train knows neither its optimizer's groups nor a step."""
    one, other = mine["optimizer"], came["optimizer"]
    return {
        "optimizer": {
            "state": {**one["state"], **other["state"]},
            "groups": one["groups"] or other["groups"],
            "elsewhere": [*one["elsewhere"], *other["elsewhere"]],
        },
        "step": mine["step"] if one["groups"] else came["step"],
        "least": mine["least"],
    }
