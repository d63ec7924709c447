"""What settings name, found and tried before the first round: device, optimizer, loss, metrics, goal."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from warnings import catch_warnings

import numpy as np
import torch
from torch import nn

from cutwater.base.errors import RunError, suggest
from cutwater.base.schema import called
from cutwater.base.speech import by_file
from cutwater.base.usercode import blamed, find
from cutwater.data.samples import Batch, Data
from cutwater.model.layers import Layered
from cutwater.model.modes import in_mode
from cutwater.model.randomness import drawn_from
from cutwater.scenario.goal import TAKEN
from cutwater.scenario.settings import TrainSettings
from cutwater.train.metrics import Measuring, Metric, check_told
from cutwater.train.own_loss import MODELS_OWN, has_logits, own_loss, stating_loss
from cutwater.train.scores import score
from cutwater.train.step import Loss, MakeOptimizer, optimizer_factory

_NOT_OPTIONS = {
    "lr": "the learning rate is lr {there}: set it there",
    "name": "the optimizer is named by optimizer {there}: set it there",
    "clip_value": "clipping is clip_value {there}: set it there",
    "clip_norm": "clipping by the norm is clip_norm {there}: set it there",
    "params": "an optimizer gets the parameters of its side of the cut: leave it out",
}
"""What ``optimizer_options`` may not have, and why."""


def _there() -> str:
    return by_file("in [train]", "of TrainSettings")


def find_device(name: str) -> torch.device:
    """A device by name, if torch can use it here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
        if device.type == "meta":
            raise RuntimeError("it holds no values")
    except Exception as error:  # a backend that is not installed fails in its own way, and at length
        text = str(error).partition("\n")[0].partition(". ")[0]
        raise RunError(
            f"device {name!r} can't be used here ({text}); use cpu or a device that torch sees"
        ) from error
    return device


def find_optimizer(train: TrainSettings) -> Callable[[float], MakeOptimizer]:
    """The optimizer for a learning rate; nonsense is refused now, before the first round."""
    for key, instead in _NOT_OPTIONS.items():
        if key in train.optimizer_options:
            raise RunError(
                f"{called(train)} optimizer_options has {key} = {train.optimizer_options[key]!r}, but "
                f"{instead.format(there=_there())}"
            )
    for round_ in {1, train.rounds}:
        train.learning_rate(round_) if train.schedule_by == "round" else train.rates(round_, 1)(0)
    arguments = {"clip_value": train.clip_value, **train.optimizer_arguments()}

    @lru_cache(maxsize=1)  # all sessions of a round have the same
    def at(lr: float) -> MakeOptimizer:
        return optimizer_factory(train.optimizer, lr, factor=lr / train.lr, **arguments)

    _try_step(at, train, {key: value for key, value in arguments.items() if value is not None})
    return at


def _try_step(at: Callable[[float], MakeOptimizer], train: TrainSettings, arguments: dict[str, Any]) -> None:
    """One step on a matrix and a vector: much that an optimizer is given it looks at only then."""
    parameters = [nn.Parameter(torch.ones(shape, device=train.device)) for shape in ((2, 2), (2,))]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)

    def sentence(said: str) -> str:
        return (
            f"optimizer {train.optimizer!r} can't take a step on a matrix and a vector with "
            f"{arguments} ({said}); change them or optimizer {_there()}"
        )

    with blamed(RunError, sentence), catch_warnings(action="ignore"):
        at(train.lr)(parameters).step()


def check_loss_name(name: str) -> None:
    """Refuse a name that stands for no loss."""
    if name != MODELS_OWN:
        named_loss(name)


def find_loss(name: str | None, model: Layered, data: Data, device: torch.device) -> Loss:
    """A loss by name, or the one that nobody has to name: the model's own, else cross entropy."""
    if name is not None and name != MODELS_OWN:
        return named_loss(name)
    if name is None and stating_loss(model.module) is None:
        return named_loss("cross_entropy")
    batch = two_samples(data, device)
    found = own_loss(model.module, data.called(batch.inputs), batch.labels)
    if found is not None:
        return found
    if name is None and not has_logits(model, batch.inputs):
        return named_loss("cross_entropy")
    raise RunError(
        f"{type(model.module).__name__} computes no loss of its own from its logits and the labels of "
        f"{data.name!r} alone; {by_file('set loss in [train] to', 'give Study.of')} a function of its output "
        "and the labels, which takes output.logits"
    )


def named_loss(name: str) -> Loss:
    """A loss of torch.nn.functional by name, or a user's own as ``package.module:function``."""
    if ":" in name:
        return find(name, "loss", RunError)
    loss: Loss | None = getattr(nn.functional, name, None)
    if not callable(loss):
        known = [key for key in vars(nn.functional) if key.endswith(("_loss", "_entropy"))]
        hint = suggest(name, known)
        raise RunError(
            f"loss {name!r} was not found in torch.nn.functional; {hint}; your own is package.module:function"
        )
    return loss


def check_loss_is_fixed(loss: Loss) -> None:
    """Refuse what can't be called, and a loss that would have to be trained itself."""
    if not callable(loss):
        raise RunError(
            f"loss is {loss!r}, but must be a function of output and labels; a name such as 'cross_entropy' "
            "goes into TrainSettings(loss=...)"
        )
    parameters = loss.named_parameters() if isinstance(loss, nn.Module) else ()
    for name, parameter in parameters:
        if parameter.requires_grad:
            raise RunError(
                f"the loss has a parameter {name!r} that requires a gradient, but only the model is trained: "
                "make it a parameter of the model, or set its requires_grad to False"
            )


def try_loss(
    model: Layered, data: Data, loss: Loss, device: torch.device, metrics: Sequence[Metric] = ()
) -> bool:
    """Try loss and metrics on two samples, so that what does not fit is refused before the first round.

    Returns whether the labels are classes of the model's output, so that there is an accuracy.
    """
    whole, _ = model.split(len(model))
    output = None
    inputs, labels = two_samples(data, device)

    def sentence(said: str) -> str:
        return (
            f"the loss can't be computed from the model's output and the labels of {data.name!r} "
            f"({said}); {_hint(loss, output)}"
        )

    with (
        blamed(RunError, sentence),
        in_mode(whole, False),
        torch.random.fork_rng(devices=[]),
        catch_warnings(action="ignore"),
    ):
        output = whole(*inputs)
        if loss is nn.functional.cross_entropy and isinstance(output, torch.Tensor) and output.dim() == 2:
            data.check_fits(data.input, output.shape[1])
        value = loss(output, labels)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        what = list(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise RunError(f"the loss of a mini-batch is {what}, but must be one number: use its mean")
    if not value.requires_grad:
        raise RunError(
            "the loss has no gradient, so that nothing could be learned from it: compute it from the model's "
            "output with torch, without detach() and item()"
        )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        if data.test is not None:
            measuring = Measuring(metrics)
            measuring.batch(output, labels)
            measuring.end()
        return score(loss, output, labels).answers > 0


def two_samples(data: Data, device: torch.device) -> Batch:
    """Two training samples, to try things on."""
    with drawn_from(0, "two samples"):
        return data.train.batch(np.arange(min(2, len(data.train))), str(device))


def _hint(loss: Loss, output: Any) -> str:
    if isinstance(output, torch.Tensor) or not hasattr(output, "logits"):
        return "choose a loss that fits both"
    own = by_file('leave loss out of [train], or set it to "model"', 'leave loss out, or use loss="model"')
    return (
        f"the model returns a {type(output).__name__}, whose numbers are output.logits: {own}, for the loss "
        "that the model has of its own, or give a function of output and labels that takes output.logits"
    )


def check_goal(
    train: TrainSettings, metrics: Sequence[Metric], data: Data, classes: bool, *, own: bool = False
) -> None:
    """Refuse metrics that there will be none of: what is asked for by name, and what models are kept by.

    What an evaluation of one's own tells besides is known when it is tried (:func:`.check_told`).
    """
    goal = train.goal
    if "accuracy" in train.metrics and not classes:
        raise RunError(
            "metrics has 'accuracy', but the labels are not classes of the model's output: leave it out, or "
            "use mae or rmse"
        )
    if goal is None or (own and goal.metric not in TAKEN):
        return
    if data.test is None:
        raise RunError(
            f"keep_best is {train.keep_best!r}, but {data.name!r} has no test set to score models on: give "
            "it one, or leave keep_best out"
        )
    known = ["test_loss", *["accuracy"] * classes, *(metric.name for metric in metrics)]
    check_told(train, known)
