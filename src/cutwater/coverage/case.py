"""A model of another library to be checked: how it is built, and inputs for it at two sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

Inputs = Callable[[int, int], Any]
"""(batch size, length or resolution) → inputs as :func:`cutwater.layered` takes them."""


@dataclass(frozen=True)
class Case:
    """One model."""

    library: str
    """As Python imports it."""
    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    sizes: tuple[int, ...]
    """The length or resolution of the example, and another that the model may take as well."""

    @property
    def key(self) -> str:
        """What it is called on the command line."""
        return f"{self.library}/{self.name}"
