"""Find the layers of any nn.Module."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from cutwater.errors import ModelError
from cutwater.model.layers import Layered, of_chain


def layered(
    module: nn.Module,
    example_inputs: Any = None,
    *,
    layers: Sequence[nn.Module] | None = None,
    granularity: str = "block",
) -> Layered:
    """The layers of a model: of nn.Sequential its children, of everything else from its traced graph."""
    if layers is not None:
        return of_chain(module, _names_of(module, layers))
    if isinstance(module, nn.Sequential):
        return of_chain(module, list(module._modules))
    raise ModelError(f"{type(module).__name__} is not an nn.Sequential")


def _names_of(module: nn.Module, layers: Sequence[nn.Module]) -> list[str]:
    names: Mapping[int, str] = {id(child): name for name, child in module.named_modules()}
    return [names[id(layer)] for layer in layers]
