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
from cutwater.scenario.goal import TAKEN
from cutwater.scenario.settings import TrainSettings
from cutwater.train.metrics import check_name, number
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
            numbers = {name: number(value, f"{name!r} is") for name, value in found.items()}
    except Exception as error:  # whatever a user's function does
        raise RunError(f"evaluate failed ({told(error)}): {_WHAT}") from error
    for name in numbers:
        check_name(name, "evaluate returned", "a number has", (*TAKEN, *others))
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def check_told(train: TrainSettings, known: Sequence[str]) -> None:
    """Refuse a goal that nothing is known of; what an evaluation tells is known once it has been tried."""
    goal = train.goal
    if goal is not None and goal.metric not in known:
        raise RunError(
            f"keep_best is {train.keep_best!r}, but this run has no metric {goal.metric!r}; "
            f"{suggest(goal.metric, known)}; others are named by metrics, or returned by evaluate"
        )
