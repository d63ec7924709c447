"""The optimizer of a session, of either side of a cut: by name, or as Python has it."""

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from cutwater.base.errors import RunError
from cutwater.base.usercode import find


def find_optimizer(named: str | Callable[..., Any]) -> Callable[..., Any]:
    """What makes an optimizer: a class of torch.optim or a user's by name, or what is given."""
    if isinstance(named, str) and ":" in named:
        own = find(named, "optimizer", RunError)
        if not _is_optimizer(own):
            raise RunError(f"optimizer {named!r} is {own!r}, but must be a class of torch.optim.Optimizer")
        return own
    make: Any = named
    if isinstance(named, str):
        known = {key.lower(): value for key, value in vars(torch.optim).items() if _is_optimizer(value)}
        if named.lower() not in known:
            raise RunError(
                f"optimizer {named!r} is unknown: use one of {', '.join(sorted(known))}, or your own as "
                "package.module:Class"
            )
        make = known[named.lower()]
    reason = _NOT_SEPARABLE.get(getattr(make, "__name__", "").lower())
    if reason and _is_optimizer(make):
        raise RunError(f"optimizer {named!r} can't be used: {reason}")
    found: Callable[..., Any] = make
    return found


def takes_rate(make: Callable[..., Any]) -> bool:
    """Whether it is told its learning rate, or has one of its own."""
    try:
        taken = signature(make).parameters.values()
    except (TypeError, ValueError):  # of what is written in C, say
        return True
    return any(one.name == "lr" or one.kind is Parameter.VAR_KEYWORD for one in taken) and not (
        isinstance(make, partial) and "lr" in make.keywords
    )


def at_own_rate(make: Callable[..., Any], factor: float, options: Mapping[str, Any]) -> Callable[..., Any]:
    """An optimizer by its own learning rate, of which the schedule leaves a part."""

    def build(parameters: list[nn.Parameter]) -> Any:
        optimizer = make(parameters, **options)
        for group in getattr(optimizer, "param_groups", ()):
            group["lr"] = group["lr"] * factor
        return optimizer

    return build


_NOT_SEPARABLE = {
    "lbfgs": "its line search needs the loss and the gradients of both sides at once; use sgd or adam",
    "sparseadam": "it takes sparse gradients only; use adam",
}


def _is_optimizer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
