"""Cutwater: split-federated learning with an exact planner.

The names below are what a user types. They are imported on first use, so that ``import cutwater`` and
planning from a saved profile never import torch.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "CutwaterError": "cutwater.errors",
    "Layered": "cutwater.model.layers",
    "Profile": "cutwater.profile.values",
    "build": "cutwater.model.zoo",
    "join": "cutwater.model.layers",
    "layered": "cutwater.model.discover",
    "measure": "cutwater.profile.measure",
    "profile_layered": "cutwater.profile.count",
    "profile_model": "cutwater.profile.count",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the one place


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cutwater' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
