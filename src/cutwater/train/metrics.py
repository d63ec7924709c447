"""Numbers beside the loss: what is said of the model on samples that it was not trained on.

A metric is a function of a mini-batch's outputs and labels, of which the mean by samples counts, or an object
with ``update(outputs, labels)``, ``compute()`` and ``reset()``, as torchmetrics has them, which sees all
mini-batches of a set in their order.

An evaluation of the user's own is a function of the model that returns numbers by name. It gets a copy of the
model with the global weights, in eval mode and without gradients, so that whatever it does with it changes no
training; what it draws follows from the run alone.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.base.errors import RunError, suggest
from cutwater.base.usercode import find, told
from cutwater.model.layers import Layered
from cutwater.model.precision import one_thread
from cutwater.model.randomness import drawn_from
from cutwater.scenario.goal import TAKEN, is_name
from cutwater.scenario.settings import TrainSettings

Addend = tuple[float, float]
"""What a mini-batch adds to a metric's sum, and to the weight that the sum is divided by."""
Evaluate = Callable[[Any], Mapping[str, Any]]
"""Of the model, numbers by name."""
_EVALUATE_IS = "it takes the model and returns numbers by name, such as {'f1': 0.9}"


@dataclass(frozen=True, eq=False)
class Metric:
    """A metric by name."""

    name: str
    measure: Any
    """A function of outputs and labels, or an object with update, compute and reset."""
    finish: Callable[[float], float] = float
    """Makes the metric of the mean over all samples."""

    @property
    def keeps_state(self) -> bool:
        """Whether it has to see all mini-batches of a set itself, one after the other."""
        methods = (getattr(self.measure, name, None) for name in ("update", "compute", "reset"))
        return not isinstance(self.measure, type) and all(map(callable, methods))

    def of(self, parts: Iterable[Addend]) -> float | None:
        """The metric of a set from what its mini-batches add; None where it is no finite number."""
        listed = list(parts)
        weight = sum(one[1] for one in listed)
        mean = sum(one[0] for one in listed) / weight if weight else math.nan
        value = self.finish(mean) if math.isfinite(mean) else mean
        return value if math.isfinite(value) else None


class Measuring:
    """Metrics of one set of samples, mini-batch by mini-batch."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._each = [metric for metric in metrics if not metric.keeps_state]
        self._whole = [metric for metric in metrics if metric.keeps_state]
        self._reset()

    def batch(self, output: Any, labels: Tensor) -> dict[str, Addend]:
        """What a mini-batch adds to each metric that is a mean."""
        for metric in self._whole:
            _tried(metric, metric.measure.update, output, labels)
        count = len(labels)
        values = {one.name: _tried(one, _measured, one.measure, output, labels) for one in self._each}
        return {name: (value * count, float(count)) for name, value in values.items()}

    def end(self) -> dict[str, Addend]:
        """What the metrics that saw the whole set come to."""
        found = {one.name: _tried(one, _measured, one.measure.compute) for one in self._whole}
        self._reset()
        return {name: (value, 1.0) for name, value in found.items()}

    def _reset(self) -> None:
        for metric in self._whole:
            _tried(metric, metric.measure.reset)


def find_metrics(names: Sequence[str], own: Mapping[str, Any] | None = None) -> tuple[Metric, ...]:
    """Metrics by name, and those that are given; each name stands for one."""
    found = [_named(name) for name in names if name != "accuracy"]
    found += [_given(name, measure) for name, measure in (own or {}).items()]
    known = [metric.name for metric in found]
    for metric in found:
        if known.count(metric.name) > 1:
            raise RunError(f"two metrics are called {metric.name!r}: give each a name of its own")
    return tuple(found)


def _named(name: str) -> Metric:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    if ":" not in name:
        hint = suggest(name, ("accuracy", *_BUILT_IN))
        raise RunError(f"no metric is called {name!r}: {hint}; your own is package.module:function")
    measure: Any = find(name, "metric", RunError)
    try:
        made = measure() if isinstance(measure, type) else measure
    except Exception as error:  # whatever a user's class does when it is made
        raise RunError(
            f"metric {name!r} can't be made ({told(error)}): it is made without arguments: name a class that "
            "needs none, or a function of outputs and labels"
        ) from error
    return _given(name.rpartition(":")[2].rpartition(".")[2], made)


def _given(name: object, measure: Any) -> Metric:
    called = _check_name(name, "a metric is called", "must have")
    metric = Metric(called, measure)
    if not (callable(measure) or metric.keeps_state):
        raise RunError(
            f"metric {name!r} is {measure!r}, but must be a function of outputs and labels, or an object "
            "with update, compute and reset"
        )
    return metric


def find_evaluate(train: TrainSettings, own: Any = None) -> Evaluate | None:
    """The one that is given, or that settings name."""
    if own is None:
        return None if train.evaluate is None else find(train.evaluate, "evaluate", RunError)
    if not callable(own):
        hint = "; a name goes into TrainSettings(evaluate=...)" if isinstance(own, str) else ""
        raise RunError(f"evaluate is {own!r}, but must be a function: {_EVALUATE_IS}{hint}")
    found: Evaluate = own
    return found


def own_scores(
    evaluate: Evaluate, model: Layered, weights: Mapping[str, Tensor], others: Sequence[str] = ()
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
            numbers = {name: _number(value, f"{name!r} is") for name, value in found.items()}
    except Exception as error:  # whatever a user's function does
        raise RunError(f"evaluate failed ({told(error)}): {_EVALUATE_IS}") from error
    for name in numbers:
        _check_name(name, "evaluate returned", "a number has", (*TAKEN, *others))
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def check_told(train: TrainSettings, known: Sequence[str]) -> None:
    """Refuse a goal that nothing is known of; what an evaluation tells is known once it has been tried."""
    goal = train.goal
    if goal is not None and goal.metric not in known:
        raise RunError(
            f"keep_best is {train.keep_best!r}, but this run has no metric {goal.metric!r}; "
            f"{suggest(goal.metric, known)}; others are named by metrics, or returned by evaluate"
        )


def _check_name(name: object, said: str, must: str, taken: Sequence[str] = TAKEN) -> str:
    """What a user calls a number, or one sentence."""
    if not isinstance(name, str) or not is_name(name) or name in taken:
        raise RunError(
            f"{said} {name!r}, but {must} a name without spaces and signs of comparison that is none of "
            f"{', '.join(taken)}: choose another"
        )
    return name


def placed(metrics: Sequence[Metric], device: str) -> tuple[Metric, ...]:
    """The metrics, those that are modules (torchmetrics') on a device."""
    for metric in metrics:
        if isinstance(metric.measure, nn.Module):
            metric.measure.to(device)
    return tuple(metrics)


def _tried(metric: Metric, do: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return do(*arguments)
    except Exception as error:  # whatever a user's metric does
        raise RunError(
            f"metric {metric.name!r} failed ({told(error)}): it takes the model's outputs and the labels of "
            "a mini-batch and gives one number"
        ) from error


def _measured(measure: Callable[..., Any], *arguments: Any) -> float:
    return _number(measure(*arguments), "it gave")


def _number(value: Any, said: str) -> float:
    """What a user's function gives as a number; a TypeError or a ValueError where it is none."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise TypeError(f"{said} a tensor of shape {list(value.shape)}")
    return float(value)


def _apart(output: Any, labels: Tensor) -> Tensor:
    """Output less label, number by number: N outputs in a column are those of N labels."""
    found: Tensor = getattr(output, "logits", output)
    if found.numel() != labels.numel():
        raise ValueError(f"there are {found.numel()} outputs for {labels.numel()} labels")
    return found.reshape(labels.shape).double() - labels.double()


def _mean_absolute(output: Any, labels: Tensor) -> Tensor:
    return _apart(output, labels).abs().mean()


def _mean_square(output: Any, labels: Tensor) -> Tensor:
    return _apart(output, labels).square().mean()


_BUILT_IN = {"mae": Metric("mae", _mean_absolute), "rmse": Metric("rmse", _mean_square, math.sqrt)}
