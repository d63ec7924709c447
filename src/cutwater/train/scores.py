"""How a model does on samples that it was not trained on: mini-batch by mini-batch, and over a set."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.data.samples import Batch
from cutwater.data.test_batches import sets_of
from cutwater.model.randomness import LOSS, RandomStream, enter_layer
from cutwater.scenario.goal import by_name
from cutwater.train.metrics import Addend, Measuring, Metric
from cutwater.train.session import Job, State
from cutwater.train.step import Loss


@dataclass(frozen=True)
class Score:
    """How the model does on one mini-batch of test data."""

    loss: float
    """Summed over the samples."""
    samples: int
    right: int
    answers: int
    """Labels that could be right: samples, or tokens but for padding; 0 where labels are not classes."""
    metrics: Mapping[str, Addend] = field(default_factory=dict)
    """What it adds to each metric, and how much that counts."""


@dataclass(frozen=True)
class Scored:
    """What the scores of a set come to."""

    loss: float | None
    """Mean over the samples; None where it is not finite, for which JSON has no number."""
    accuracy: float | None
    metrics: Mapping[str, float]
    """Those that are finite numbers."""

    @classmethod
    def of(cls, scores: Sequence[Score], metrics: Sequence[Metric] = ()) -> "Scored | None":
        """Of all mini-batches of a set, in their order; None where there are none."""
        if not scores:
            return None
        loss = sum(one.loss for one in scores) / sum(one.samples for one in scores)
        answers = sum(one.answers for one in scores)
        found = {
            m.name: m.of(one.metrics[m.name] for one in scores if m.name in one.metrics) for m in metrics
        }
        return cls(
            loss=loss if math.isfinite(loss) else None,
            accuracy=sum(one.right for one in scores) / answers if answers else None,
            metrics={name: value for name, value in found.items() if value is not None},
        )

    @property
    def values(self) -> dict[str, float]:
        """All that there is, by name."""
        return by_name(self.accuracy, self.loss, self.metrics)


def evaluate(
    job: Job, state: State, batches: Sequence[Batch], sets: Iterable[Sequence[int]] | None = None
) -> list[Score]:
    """Score the whole model in eval mode, mini-batch by mini-batch, set by set.

    ``sets`` are the places of the mini-batches to score, set by set; by default, those that the batches are
    of. The mini-batches of a set are seen by one object of a metric.
    """
    job.model.module.load_state_dict(state, strict=True)
    job.model.restart()
    model, _ = job.split(len(job.model))
    model.eval()
    # What a metric's object holds afterwards is its author's to use, which tensors of inference mode are not.
    kept = any(metric.keeps_state for metric in job.metrics)
    with torch.no_grad() if kept else torch.inference_mode():
        chosen = sets_of(batches) if sets is None else sets
        return [one for places in chosen for one in _one_set(job, model, batches, places)]


def units_of_work(job: Job, batches: Sequence[Batch]) -> list[list[int]]:
    """The places of mini-batches that one worker has to score: sets, where a metric sees all of one."""
    if any(metric.keeps_state for metric in job.metrics):
        return sets_of(batches)
    return [[place] for place in range(len(batches))]


def _one_set(job: Job, model: nn.Module, batches: Sequence[Batch], places: Sequence[int]) -> list[Score]:
    measuring, scores = Measuring(job.metrics), list[Score]()
    for place in places:
        inputs, labels = batches[place]
        # What draws even now draws the same for every mini-batch, whoever scores it and when.
        with RandomStream(0, 0):
            output = model(*inputs)
            enter_layer(LOSS)
            found = score(job.loss, output, labels)
            scores.append(replace(found, metrics=measuring.batch(output, labels)))
    ended = measuring.end()
    if scores and ended:
        scores[-1] = replace(scores[-1], metrics={**scores[-1].metrics, **ended})
    return scores


def score(loss: Loss, output: Any, labels: Tensor) -> Score:
    """Loss and right answers of one mini-batch."""
    total = float(loss(output, labels)) * len(labels)
    logits = getattr(output, "logits", output)
    if getattr(loss, "next_token", False):
        logits, labels = logits[:, :-1], labels[:, 1:]  # a token is foretold from those before it
    if labels.is_floating_point() or not isinstance(logits, Tensor):
        return Score(total, len(labels), 0, 0)
    classes = _classes_dim(loss, logits, labels)
    if classes is None:
        return Score(total, len(labels), 0, 0)
    asked = _asked(loss, labels, logits.shape[classes])
    right = int(((logits.argmax(dim=classes) == labels) & asked).sum())
    return Score(total, len(labels), right, int(asked.sum()))


def _asked(loss: Loss, labels: Tensor, classes: int) -> Tensor:
    """Which labels count: padding has one that is no class (-100, say), or the one that the loss ignores."""
    given = loss.keywords if isinstance(loss, partial) else getattr(loss, "__dict__", {})
    asked = (labels >= 0) & (labels < classes)
    ignored = given.get("ignore_index")
    return asked if ignored is None else asked & (labels != ignored)


def _classes_dim(loss: Loss, logits: Tensor, labels: Tensor) -> int | None:
    """The dimension of the output along which its classes are, or None where labels name no class of it.

    torch's own losses have classes second (N × C × …), most models of sequences have them last.
    """
    shape = logits.shape
    if len(shape) != labels.dim() + 1 or labels.dim() == 0:
        return None
    # One number for each label has no largest: a lone logit says yes or no by its sign.
    without = {1: shape[:1] + shape[2:], -1: shape[:-1]}
    fitting = [dim for dim, rest in without.items() if shape[dim] > 1 and rest == labels.shape]
    inner = loss.func if isinstance(loss, partial) else loss
    torchs = inner is nn.functional.cross_entropy or isinstance(inner, nn.CrossEntropyLoss)
    if len(fitting) == 2 and not torchs:
        return -1
    return fitting[0] if fitting else None
