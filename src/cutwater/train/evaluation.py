"""An evaluation of the user's own: a function of the model that returns numbers by name.

It gets a copy of the model with the global weights, in eval mode and without gradients, so that whatever it
does with it changes no training; what it draws follows from the run alone.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cutwater.base.errors import RunError, suggest
from cutwater.base.usercode import find, told
from cutwater.model.layers import Layered
from cutwater.model.precision import one_thread
from cutwater.model.randomness import drawn_from
from cutwater.scenario.goal import TAKEN, is_name
from cutwater.scenario.settings import TrainSettings
from cutwater.train.session import State

Evaluate = Callable[[Any], Mapping[str, Any]]
"""Of the model, numbers by name."""
_WHAT = "it takes the model and returns numbers by name, such as {'f1': 0.9}"


def find_evaluate(train: TrainSettings, own: Any = None) -> Evaluate | None:
    """The one that is given, or that settings name."""
    if own is not None and not callable(own):
        hint = "; a name goes into TrainSettings(evaluate=...)" if isinstance(own, str) else ""
        raise RunError(f"evaluate is {own!r}, but must be a function: {_WHAT}{hint}")
    if own is not None:
        found: Evaluate = own
        return found
    return None if train.evaluate is None else find(train.evaluate, "evaluate", RunError)


def own_scores(
    evaluate: Evaluate, model: Layered, weights: State, others: Sequence[str] = ()
) -> dict[str, float]:
    """What it says of these weights, as far as it is finite; ``others`` are names that metrics have."""
    model.restart()
    try:
        copied = copy.deepcopy(model.module)
        copied.load_state_dict(weights, strict=True)
        with one_thread(), torch.no_grad(), drawn_from(0, "evaluate"):
            found = evaluate(copied.eval())
            if not isinstance(found, Mapping):
                raise TypeError(f"it returned {type(found).__name__}")
            numbers = {name: _number(name, value) for name, value in found.items()}
    except Exception as error:  # whatever a user's function does
        raise RunError(f"evaluate failed ({told(error)}): {_WHAT}") from error
    _check_names(numbers, others)
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _number(name: Any, value: Any) -> float:
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        raise TypeError(f"{name!r} is a tensor of shape {list(value.shape)}")
    return float(value)


def _check_names(found: Mapping[Any, float], others: Sequence[str]) -> None:
    for name in found:
        if not isinstance(name, str) or not is_name(name) or name in (*TAKEN, *others):
            taken = ", ".join((*TAKEN, *others))
            raise RunError(
                f"evaluate returned {name!r}, but a number has a name without spaces and signs of comparison "
                f"that is none of {taken}: choose another"
            )


def check_told(train: TrainSettings, known: Sequence[str]) -> None:
    """Refuse a goal that the evaluation, which has told its names now, says nothing of."""
    goal = train.goal
    if goal is not None and goal.metric not in known:
        raise RunError(
            f"keep_best is {train.keep_best!r}, but this run has no metric {goal.metric!r}; "
            f"{suggest(goal.metric, known)}; others are named by metrics, or returned by evaluate"
        )
