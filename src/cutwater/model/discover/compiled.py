"""Modules behind torch.compile: the model is the one inside."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_INSIDE = "_orig_mod"


def without_compiler(module: nn.Module) -> nn.Module:
    """The module that torch.compile was given."""
    while isinstance(inside := module._modules.get(_INSIDE), nn.Module):
        module = inside
    return module


@contextmanager
def compiled_code_run_as_written(module: nn.Module) -> Iterator[None]:
    """While open, compiled parts of a model run as they are written: every size would be compiled anew."""
    if not any(_INSIDE in part._modules for part in module.modules()):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
