"""Train and eval mode of a model's parts, of which a user may have set each by hand."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def modes_kept(module: nn.Module) -> Iterator[None]:
    """Afterwards every part is in the mode it was in; ``train`` would put all in that of the whole."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The model in train or eval mode; afterwards every part in the mode it was in."""
    with modes_kept(module):
        module.train(training)
        yield
