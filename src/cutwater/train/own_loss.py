"""The loss that a model of transformers computes itself where it is given labels.

Such a model takes labels into its forward. Here labels go with the loss, wherever the model is cut, so the
model is called without them, and the function that it would have computed its loss with is applied to its
output. That both are the same is tried on two samples; where they are not, the function is not used.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.model.layers import Layered
from cutwater.model.modes import in_mode

MODELS_OWN = "model"
"""What this loss is called."""
_NEXT_TOKEN = "ForCausalLMLoss"


class OwnLoss:
    """A model's own loss, of its output and labels."""

    def __init__(self, function: Callable[..., Tensor], config: Any) -> None:
        self.function = function
        # The function may note in it what it takes the labels for.
        self.config = copy.deepcopy(config)
        self._taken = tuple(signature(function).parameters)

    @property
    def next_token(self) -> bool:
        """Whether the output at a token foretells the next one."""
        return getattr(self.function, "__name__", "") == _NEXT_TOKEN

    def __call__(self, output: Any, labels: Tensor) -> Tensor:
        """The mean over the mini-batch."""
        logits = output.logits
        text = getattr(self.config, "text_config", self.config)
        offered = {
            "logits": logits,
            "pooled_logits": logits,
            "labels": labels,
            "config": self.config,
            "vocab_size": getattr(text, "vocab_size", None),
        }
        return self.function(**{name: offered[name] for name in self._taken if name in offered})


def has_logits(model: Layered, inputs: Sequence[Tensor]) -> bool:
    """Whether a model's output is one with logits."""
    whole, _ = model.split(len(model))
    try:
        with in_mode(whole, False), torch.no_grad(), torch.random.fork_rng(devices=[]):
            return hasattr(whole(*inputs), "logits")
    except Exception:  # whoever trains it says what is wrong
        return False


def own_loss(model: nn.Module, inputs: Any, labels: Tensor) -> OwnLoss | None:
    """The loss of a model, if it is what the model itself computes from these inputs and labels."""
    stated = stating_loss(model)
    if stated is None:
        return None
    problem = getattr(stated.config, "problem_type", None)
    named = inputs if isinstance(inputs, Mapping) else {}
    placed = () if named else inputs
    try:
        found = OwnLoss(stated.loss_function, stated.config)
        with in_mode(model, False), torch.no_grad(), torch.random.fork_rng(devices=[]):
            wanted = model(*placed, **named, labels=labels).loss
            made = found(model(*placed, **named), labels)
        return found if torch.allclose(wanted, made, rtol=1e-6, atol=1e-8, equal_nan=True) else None
    except Exception:  # whatever a model and its function make of these samples
        return None
    finally:
        if hasattr(stated.config, "problem_type"):
            stated.config.problem_type = problem


def stating_loss(model: nn.Module) -> Any:
    """The module that says what the loss is, the model or the one that peft is around; None if none does."""
    base = getattr(model, "get_base_model", None)
    inner: Any = base() if callable(base) else model
    return inner if hasattr(inner, "config") and callable(getattr(inner, "loss_function", None)) else None
