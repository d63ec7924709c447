"""What settings name, found and tried before the first round: device, optimizer, loss."""

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from torch import nn

from cutwater.data.values import Data
from cutwater.errors import CutwaterError, RunError, suggest
from cutwater.model.layers import Layered
from cutwater.train.settings import TrainSettings
from cutwater.train.step import Loss, MakeOptimizer, optimizer_factory


def find_device(name: str) -> torch.device:
    """A device by name, if torch can use it here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        text = str(error).partition("\n")[0]
        raise RunError(
            f"device {name!r} can't be used here ({text}); use cpu or a device that torch sees"
        ) from error
    return device


def find_optimizer(train: TrainSettings) -> Callable[[float], MakeOptimizer]:
    """The optimizer for a learning rate; nonsense is refused now, before the first round."""
    arguments = {"clip_value": train.clip_value, **train.optimizer_arguments()}

    @lru_cache(maxsize=1)  # all sessions of a round have the same
    def at(lr: float) -> MakeOptimizer:
        return optimizer_factory(train.optimizer, lr, **arguments)

    at(train.lr)
    return at


def optimizer_kind(train: TrainSettings) -> str:
    """The optimizer as profiles name it, by what it keeps for each parameter."""
    name = train.optimizer.lower()
    return "momentum" if name == "sgd" and train.momentum else name


def named_loss(name: str) -> Loss:
    """A loss of torch.nn.functional by name, or a user's own as ``package.module:function``."""
    module, _, attribute = name.rpartition(":")
    if module and os.getcwd() not in sys.path:
        # An installed command does not look in the current folder, where a user's module usually is.
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(import_module(module) if module else nn.functional, attribute)
    except Exception as error:  # whatever a user's module does when it is imported
        known = [key for key in vars(nn.functional) if key.endswith(("_loss", "_entropy"))]
        hint = f"({error!r})" if module else f"in torch.nn.functional; {suggest(name, known)}"
        raise RunError(f"loss {name!r} was not found {hint}; your own is package.module:function") from error
    if not callable(found):
        raise RunError(
            f"loss {name!r} is {type(found).__name__}, but must be a function of output and labels"
        )
    loss: Loss = found
    return loss


def try_loss(model: Layered, data: Data, loss: Loss, device: torch.device) -> None:
    """Try the loss on two samples, so that one which does not fit is refused before the first round."""
    whole, _ = model.split(len(model))
    mode = whole.training
    inputs, labels = data.train.batch(np.arange(min(2, len(data.train))), str(device))
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), catch_warnings():
            simplefilter("ignore")
            output = whole.eval()(*inputs)
            if loss is nn.functional.cross_entropy and isinstance(output, torch.Tensor) and output.dim() == 2:
                data.check_fits(data.input, output.shape[1])
            value = loss(output, labels)
    except CutwaterError:
        raise
    except Exception as error:  # whatever a user's model and loss make of it
        text = str(error).partition("\n")[0]
        raise RunError(
            f"the loss can't be computed from the model's output and the labels of {data.name!r} "
            f"({type(error).__name__}: {text}); choose a loss that fits both"
        ) from error
    finally:
        whole.train(mode)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        what = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise RunError(f"the loss of a mini-batch is {what}, but must be one number: use its mean")
