"""What crosses a cut: one value, or a tuple of several."""

from typing import Any

from torch import Tensor


def as_tuple(value: Any) -> tuple[Any, ...]:
    """What layers gave out, as a tuple."""
    return value if isinstance(value, tuple) else (value,)


def one_or_all(tensors: tuple[Tensor, ...]) -> Any:
    """What crosses a cut as the layers after it take it: one value, or a tuple of several."""
    return tensors[0] if len(tensors) == 1 else tensors


def cut_loose(value: Tensor) -> Tensor:
    """The same memory without the graph behind it, with a gradient wanted where that would need one."""
    return value.detach().requires_grad_(value.requires_grad)
