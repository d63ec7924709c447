"""Look at a model without leaving a trace in it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from cutwater.model.modes import modes_kept
from cutwater.model.randomness import cuda_in_use, outside_kept

_DEEPEST = 4
"""How far what hangs on a module is followed: a list in a configuration, say."""


_writers: WeakSet[nn.Module] = WeakSet()
"""Models that were seen to write into their own parameters."""


@contextmanager
def untouched(module: nn.Module, training: bool | None = None, *, wholly: bool = False) -> Iterator[None]:
    """Afterwards the model is as before: attributes, hooks, modes, tensors, and the random generators.

    To trace or run a model executes its code, which may keep what it computed in attributes, install hooks,
    or write into its tensors. Parameters take the most memory and few models write into them, so they are
    copied where that is known or asked for (``wholly``). Within, it is in train or eval mode, if one is told.
    """
    # How to put back what hangs on every part of the model, and what is in it.
    held: dict[int, Callable[[], None]] = {}
    for part in module.modules():
        _follow(part.__dict__, held, 0)
    buffers = [_put_back_tensor(buffer) for buffer in module.buffers()]
    copied = wholly or module in _writers
    parameters = [_put_back_tensor(p) for p in module.parameters()] if copied else []
    devices = [torch.cuda.current_device()] if cuda_in_use() else []
    try:
        # A scripted part has its mode where no attribute shows it.
        with outside_kept(), modes_kept(module), torch.random.fork_rng(devices=devices):
            if training is not None:
                module.train(training)
            yield
    finally:
        for put_back in (*held.values(), *buffers):
            put_back()
        written = [put_back() for put_back in parameters]
        if any(written):
            _writers.add(module)


def _follow(value: Any, found: dict[int, Callable[[], None]], depth: int) -> None:
    if depth > _DEEPEST or id(value) in found or isinstance(value, (Tensor, type, nn.Module)):
        return
    if isinstance(value, dict):
        # Hooks, parameters, buffers and submodules are dicts of the module.
        found[id(value)] = _put_back_items(value)
        inside = list(dict.values(value))
    elif isinstance(value, (list, set)):
        found[id(value)] = _put_back_members(value)
        inside = list(value)
    elif _is_plain_object(value):
        _follow(value.__dict__, found, depth)
        return
    else:
        return
    for part in inside:
        _follow(part, found, depth + 1)


def _put_back_items(held: dict[Any, Any]) -> Callable[[], None]:
    before = list(dict.items(held))

    def put_back() -> None:
        now = list(dict.items(held))
        if len(now) != len(before) or any(
            a is not c or b is not d for (a, b), (c, d) in zip(now, before, strict=True)
        ):
            held.clear()
            held.update(before)

    return put_back


def _put_back_members(held: Any) -> Callable[[], None]:
    before = list(held)

    def put_back() -> None:
        now = list(held)
        if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
            held.clear()
            held.update(before) if isinstance(held, set) else held.extend(before)

    return put_back


def _is_plain_object(value: Any) -> bool:
    """Whether a value is an object of a user's or a library's own, such as a configuration."""
    home = type(value).__module__.partition(".")[0]
    return home not in ("builtins", "torch", "types", "functools", "logging") and isinstance(
        getattr(value, "__dict__", None), dict
    )


def _put_back_tensor(tensor: Tensor) -> Callable[[], bool]:
    """How to put back a tensor: contents, whether it learns, its gradient; says whether it was changed."""
    memory, learns, gradient = tensor.data, tensor.requires_grad, tensor.grad
    contents = memory.clone()

    def put_back() -> bool:
        moved = tensor.data.data_ptr() != memory.data_ptr() or tensor.shape != memory.shape
        if moved:
            tensor.data = memory
        written = not torch.equal(memory, contents)
        if written:
            with torch.no_grad():
                tensor.copy_(contents)
        if tensor.is_leaf and tensor.requires_grad != learns:
            tensor.requires_grad_(learns)
        if tensor.is_leaf:
            tensor.grad = gradient
        return moved or written

    return put_back if not tensor.is_meta else lambda: False
