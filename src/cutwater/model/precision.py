"""What the bits of layers depend on besides their inputs: the precision, and torch's threads."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

_TYPES = {"bf16": torch.bfloat16}
_AS_IT_IS = nullcontext()


def autocast(name: str | None, tensors: Iterable[object] = ()) -> AbstractContextManager[object]:
    """Within, torch's autocast to a precision by name; None leaves all as it is.

    The device is that of the first tensor.
    """
    if name is None:
        return _AS_IT_IS
    device = next((one.device.type for one in tensors if isinstance(one, Tensor)), "cpu")
    return torch.autocast(device, dtype=_TYPES[name])


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, torch uses one thread, which makes results independent of the number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
