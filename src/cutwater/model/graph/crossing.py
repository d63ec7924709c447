"""What happens to values at the boundary between two layers, and on the way into a slice."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from cutwater.base.errors import ModelError


def cross(value: Any) -> Any:
    """A value as it arrives on the other side, and its gradient as it comes back: contiguous in memory.

    torch's kernels add up in another order for another layout. As every boundary between layers gives both
    ways the layout that a network would, the bits are the same wherever the model is cut.
    """
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return value
        dense = value.contiguous()
        if dense.requires_grad:
            # A leaf (a parameter that is handed on) outlives the step, and would keep the hook.
            dense = dense.view_as(dense) if dense.is_leaf else dense
            dense.register_hook(_dense)  # type: ignore[no-untyped-call]
        return dense
    return tuple(cross(part) for part in value) if isinstance(value, tuple) else value


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.contiguous()


def expect_shape(value: torch.Tensor, lengths: Sequence[int | None]) -> None:
    """Refuse smashed data of another size than the example's."""
    if len(value.shape) != len(lengths) or any(
        size not in (length, None) for size, length in zip(lengths, value.shape, strict=True)
    ):
        raise ModelError(
            f"the model was taken apart for inputs that give smashed data of shape {tuple(lengths)} (None is "
            f"the batch), but got {tuple(value.shape)}: take it apart with an example of the new size"
        )


def copy_tensors(value: Any) -> Any:
    """The same value in memory of its own; gradients pass through."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return tuple(copy_tensors(part) for part in value) if isinstance(value, tuple) else value


def without_grad(node: fx.Node) -> Callable[..., Any]:
    """What a node calls, as the model calls it inside ``torch.no_grad()``."""
    target = node.target

    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            if callable(target):
                return target(first, *args, **kwargs)
            called = first if node.op == "call_module" else getattr(first, target)
            return called(*args, **kwargs)

    return call
