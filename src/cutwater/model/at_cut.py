"""What crosses a cut, one value or a tuple of several: laid out in one way, and copied where it is changed.

At every boundary between two layers that is so, cut or not; inputs of a slice have their shapes checked.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cutwater.base.errors import ModelError

Lengths = tuple[int | str | None, ...]
"""The shape of an input: a size, a name for one that several dimensions share, or None where any will do."""


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What layers gave out, as a tuple."""
    return value if isinstance(value, tuple) else (value,)


def one_or_all(tensors: tuple[Tensor, ...]) -> Any:
    """What crosses a cut as the layers after it take it: one value, or a tuple of several."""
    return tensors[0] if len(tensors) == 1 else tensors


def cut_loose(value: Tensor) -> Tensor:
    """The same memory without the graph behind it, with a gradient wanted where that would need one."""
    return value.detach().requires_grad_(value.requires_grad)


def cross(value: Any) -> Any:
    """A value as it arrives on the other side, and its gradient as it comes back: contiguous in memory.

    torch's kernels add up in another order for another layout. As every boundary between layers gives both
    ways the layout that a network would, the bits are the same wherever the model is cut.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            return value
        dense = value.contiguous()
        if dense.requires_grad:
            # A leaf (a parameter that is handed on) outlives the step, and would keep the hook.
            dense = dense.view_as(dense) if dense.is_leaf else dense
            dense.register_hook(_dense)  # type: ignore[no-untyped-call]
        return dense
    return tuple(cross(part) for part in value) if isinstance(value, tuple) else value


def _dense(gradient: Tensor) -> Tensor:
    return gradient.contiguous()


def expect_shapes(names: Sequence[str], lengths: Sequence[Lengths], *inputs: Any) -> None:
    """Refuse inputs of sizes that the layers are not known to be right for."""
    seen: dict[str, int] = {}
    for name, wanted, value in zip(names, lengths, inputs, strict=True):
        shape = tuple(value.shape)
        fits = len(shape) == len(wanted) and all(
            length is None or size == (seen.setdefault(length, size) if isinstance(length, str) else length)
            for length, size in zip(wanted, shape, strict=True)
        )
        if not fits:
            told = "×".join("any" if length is None else str(length) for length in wanted)
            same = ", ".join(f"{length} = {size}" for length, size in seen.items() if length in wanted)
            raise ModelError(
                f"the model was taken apart for {name} of shape {told}{f' ({same})' if same else ''}, but "
                f"got {'×'.join(map(str, shape))}: take it apart with an example of the new size"
            )


def copy_tensors(value: Any) -> Any:
    """The same value in memory of its own; gradients pass through."""
    if isinstance(value, Tensor):
        return value.clone()
    return tuple(copy_tensors(part) for part in value) if isinstance(value, tuple) else value
