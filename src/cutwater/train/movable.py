"""Whether a session's cut may move, and what crosses when it does: the one place that says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.base.errors import RunError
from cutwater.codec.registry import lossy_among
from cutwater.train.expected import Kind
from cutwater.train.kept_side import PLAIN, SideState, owner_of, state_name, weight_name
from cutwater.train.session import Job, Task
from cutwater.train.step import MakeOptimizer

_A_NAME = 256
"""Bytes that a tensor or a number takes beside itself and its name, at most."""
_ROOM = 1 << 16
"""Bytes for all that belongs to no layer."""
_MOST = 2**32 - 1
"""Bytes of a message's tensor."""


def why_fixed(job: Job, task: Task) -> str | None:
    """Why the cut of a session stays where it is, whatever would pay; None if it may move."""
    lossy = lossy_among((task.up, task.down))
    if task.cut == len(job.model):
        return "the client trains the whole model"
    if task.second_cut:
        return "the model is in three parts"
    if task.once:
        return "rows of smashed data go up once, and the server keeps those of one cut"
    if lossy:
        return f"codec {lossy[0]!r} is lossy, so that bits depend on the cut"
    if _trial(job.optimizer(task.lr), [torch.empty(2, 2), torch.empty(2)]) is None:
        return "its optimizer keeps more than tensors and numbers of each weight, in one group"
    return None


def why_not(job: Job, task: Task, to: int) -> str | None:
    """Why the cut of a session that may move can't move there; None if it can."""
    depth = len(job.model)
    if not 1 <= to < depth or to == task.cut:
        return f"cut {to} is not another one from 1 to {depth - 1}"
    if to in job.model.ruled_out:
        return job.model.ruled_out[to]
    if any(
        isinstance(one, nn.Parameter) and not one.requires_grad for one in job.between(task.cut, to).values()
    ):
        return f"layers between cuts {task.cut} and {to} have weights that do not learn"
    return None


@dataclass(frozen=True)
class Crossing:
    """What crosses when a session's cut moves, as both ends know it beforehand."""

    weights: Mapping[str, Kind]
    """Of every weight and buffer of the layers that move, under the name that it is written by."""
    state: Mapping[str, Kind]
    """What the optimizer may have noted of them."""
    most: int
    """Bytes of all of it, at most."""

    @classmethod
    def of(cls, job: Job, task: Task, to: int) -> "Crossing":
        """When a session that is at its task's cut moves to another; a RunError where that is too much."""
        moving, make = job.between(task.cut, to), job.optimizer(task.lr)
        weights = {weight_name(name): Kind(one.shape, one.dtype) for name, one in moving.items()}
        state: dict[str, Kind] = {}
        for name, one in moving.items():
            if isinstance(one, nn.Parameter):
                kept = _trial(make, [one]) or {}
                state |= {state_name(name, key): kind for key, kind in kept.items()}
        tensors = {**weights, **state}
        data = sum(kind.bytes for kind in tensors.values())
        names = sum(2 * len(name.encode()) + 2 * _A_NAME for name in tensors)
        most = data + names + _ROOM
        if most > _MOST:
            raise RunError(
                f"the layers that are to move take {most} bytes, but a message has at most {_MOST}"
            )
        return cls(weights, state, most)

    def check(self, came: SideState) -> None:
        """Refuse what is not all of these layers, or more."""
        for name, kind in self.weights.items():
            if name not in came.tensors:
                raise RunError(f"the layers that moved lack {owner_of(name)!r}")
            _check(name, kind, came.tensors[name])
        for name in came.tensors.keys() - self.weights.keys():
            if name not in self.state:
                raise RunError(f"the layers that moved have an unknown tensor {name!r}")
            _check(name, self.state[name], came.tensors[name])
        if not _is_sound(came.plain, {owner_of(name) for name in self.weights}, set(self.state)):
            raise RunError("what an optimizer keeps of the layers that moved is not as it is written")


def _check(name: str, kind: Kind, tensor: Tensor) -> None:
    found = Kind(tensor.shape, tensor.dtype)
    if found != kind:
        raise RunError(f"the layers that moved have {name!r} as {found}, but it must be {kind}")


def _is_sound(plain: Any, owners: set[str], written: set[str]) -> bool:
    """Whether this is what :func:`cutwater.train.kept_side.write_side` makes of such layers."""
    try:
        kept = plain["optimizer"]
        numbers = [value for each in (*kept["state"].values(), *kept["groups"]) for value in each.values()]
        return (
            all(isinstance(value, PLAIN) for value in numbers)
            and set(kept["state"]) <= owners
            and set(kept["elsewhere"]) <= written
            and len(kept["groups"]) <= 1
            and type(plain["step"]) is int
            and plain["least"] is None
        )
    except (KeyError, TypeError, AttributeError):
        return False


def _trial(make: MakeOptimizer, like: list[Tensor]) -> dict[str, Kind] | None:
    """What an optimizer keeps of the last of such weights after a step; None if that can't be written down.

    Without any memory where the optimizer bears it: some look at the numbers.
    """
    for device in ("meta", "cpu"):
        try:
            some = [nn.Parameter(torch.zeros(one.shape, dtype=one.dtype, device=device)) for one in like]
            made = make(some)
            for one in some:
                one.grad = torch.zeros_like(one)
            made.step()
            break
        except Exception:  # whatever an optimizer does with weights that have no numbers
            continue
    else:
        return None
    kept = made.state.get(some[-1], {})
    writable = all(isinstance(value, (Tensor, *PLAIN)) for value in kept.values())
    if len(made.param_groups) > 1 or not writable:
        return None
    return {k: Kind(value.shape, value.dtype) for k, value in kept.items() if isinstance(value, Tensor)}
