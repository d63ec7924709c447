"""The precision that layers compute in, where it is not that of their weights."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

_TYPES = {"bf16": torch.bfloat16}


def autocast(name: str | None, tensors: Iterable[object] = ()) -> AbstractContextManager[object]:
    """Within, torch's autocast to a precision by name; None leaves all as it is.

    The device is that of the first tensor.
    """
    if name is None:
        return nullcontext()
    device = next((one.device.type for one in tensors if isinstance(one, Tensor)), "cpu")
    return torch.autocast(device, dtype=_TYPES[name])
