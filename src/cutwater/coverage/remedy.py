"""Does what a refusal proposes help? It is done as printed."""

import re
from functools import reduce
from typing import Any

from torch import nn

from cutwater.base.errors import ModelError
from cutwater.model.discover.layered import layered

_SETTING = re.compile(r"(model[\w.]*)\.(\w+) = (True|False|[\d.]+)")
_LAYERS = re.compile(r"layers=\[(model[^\]]*)\]")
_VALUES = {"True": True, "False": False}


def try_remedy(refusal: str, model: nn.Module, inputs: Any) -> str:
    """Whether a remedy works, or "general" where none was named that could be tried."""
    settings, layers = _SETTING.findall(refusal), _LAYERS.search(refusal)
    if not settings and layers is None:
        return "general"
    for path, name, value in settings:
        setattr(_at(model, path), name, _VALUES[value] if value in _VALUES else float(value))
    try:
        layered(model, inputs, layers=_steps(model, layers[1]) if layers is not None else None)
    except ModelError as error:
        return f"fails: {error}"
    return "works"


def _steps(model: nn.Module, text: str) -> list[nn.Module]:
    steps: list[nn.Module] = []
    for step in text.split(", "):
        found = _at(model, step.removeprefix("*"))
        steps += list(found) if step.startswith("*") else [found]
    return steps


def _at(model: nn.Module, path: str) -> Any:
    """What ``model.a.b`` stands for."""
    return reduce(getattr, path.split(".")[1:], model)
