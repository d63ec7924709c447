"""What optimizers keep beside the weights. Needs no torch: planning scales memory by it, too."""

from collections.abc import Callable
from typing import Any

OPTIMIZER_STATE = {
    "sgd": 0,
    "momentum": 1,
    "adam": 2,
    "adamw": 2,
    "adadelta": 2,
    "adafactor": 1,
    "adagrad": 1,
    "adamax": 2,
    "asgd": 1,
    "muon": 1,
    "nadam": 2,
    "radam": 2,
    "rmsprop": 1,
    "rprop": 2,
}
"""How many numbers an optimizer keeps for each trainable parameter, at most (Adafactor: of a vector)."""


def optimizer_kind(named: str | Callable[..., Any], momentum: float) -> str:
    """An optimizer as profiles name it, by what it keeps for each parameter; a user's own is taken for Adam.

    >>> optimizer_kind("SGD", 0.9), optimizer_kind("sgd", 0.0), optimizer_kind("RMSprop", 0.9)
    ('momentum', 'sgd', 'rmsprop')
    >>> optimizer_kind("my_package:Lion", 0.0)
    'adam'
    """
    name = named if isinstance(named, str) else getattr(named, "__name__", "")
    if ":" in name or (callable(named) and name.lower() not in OPTIMIZER_STATE):
        return "adam"
    return "momentum" if name.lower() == "sgd" and momentum else name.lower()
