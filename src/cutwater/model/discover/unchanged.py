"""Look at a model without leaving a trace in it."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_TABLES = ("_parameters", "_buffers", "_modules")


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Afterwards the model is as before: attributes, modes, running statistics, and the random generators.

    To trace or run a model executes its code, which may keep what it computed in attributes.
    """
    parts = list(module.modules())
    attributes = [dict(part.__dict__) for part in parts]
    tables = [{name: dict(part.__dict__[name]) for name in _TABLES} for part in parts]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    outside = _outside_generators()
    # Asking whether CUDA was initialized, unlike asking for its state, never initializes it.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        for part, attribute, table in zip(parts, attributes, tables, strict=True):
            part.__dict__.clear()
            part.__dict__.update(attribute)
            for name, content in table.items():
                part.__dict__[name].clear()
                part.__dict__[name].update(content)
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)
        _restore_outside(outside)


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The model in train or eval mode; afterwards every part in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.train(training)
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def outside_state() -> tuple[Any, ...]:
    """A fingerprint of the random generators of Python and NumPy, which no layer's stream controls."""
    python, numpy = _outside_generators()
    return (python, None if numpy is None else (numpy[1].tobytes(), numpy[2]))


def _outside_generators() -> tuple[Any, Any]:
    numpy = sys.modules.get("numpy")
    return random.getstate(), None if numpy is None else numpy.random.get_state()


def _restore_outside(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    if state[1] is not None:
        sys.modules["numpy"].random.set_state(state[1])
