"""A run goes on only with the loss and the model that it began with, weights or not."""

import logging
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from collecting import run
from small_study import small_model, small_study
from torch import nn
from torch.nn import functional as F

from cutwater.base.errors import RunError
from cutwater.federate.fingerprint import described


class Weighted:
    """A loss as an object that can be called."""

    def __init__(self, weight, **more):
        self._weight, self.more = weight, SimpleNamespace(**more)
        self.back = self

    def __call__(self, output, labels):
        return F.cross_entropy(output, labels)


class Tempered(nn.Module):
    """A loss with a buffer, a plain attribute and a part."""

    def __init__(self, temperature=1.0, scale=1.0, smoothing=0.0):
        super().__init__()
        self.register_buffer("temperature", torch.tensor(temperature), persistent=False)
        self.scale, self.entropy = scale, nn.CrossEntropyLoss(label_smoothing=smoothing)

    def forward(self, output, labels):
        return self.scale * self.entropy(output / self.temperature, labels)


def closing_over(smoothing):
    return lambda output, labels: F.cross_entropy(output, labels, label_smoothing=smoothing)


def with_default(smoothing):
    def loss(output, labels, smoothing=smoothing):
        return F.cross_entropy(output, labels, label_smoothing=smoothing)

    return loss


LOSSES = {
    "torch": lambda change: F.multi_margin_loss if change else F.cross_entropy,
    "module": lambda change: nn.CrossEntropyLoss(label_smoothing=0.1 * change),
    "module's weights": lambda change: nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0 + change, 1.0])),
    "module's buffer": lambda change: Tempered(temperature=1.0 + change),
    "module's attribute": lambda change: Tempered(scale=1.0 + change),
    "module's part": lambda change: Tempered(smoothing=0.1 * change),
    "method": lambda change: Tempered(scale=1.0 + change).forward,
    "partial": lambda change: partial(F.cross_entropy, label_smoothing=0.1 * change),
    "partial of a module": lambda change: partial(Tempered(scale=1.0 + change)),
    "closure": lambda change: closing_over(0.1 * change),
    "default": lambda change: with_default(0.1 * change),
    "object": lambda change: Weighted(np.array([1.0, change, 1.0])),
    "object's number": lambda change: Weighted(np.float32(change)),
    "object's method": lambda change: Weighted(torch.tensor(float(change))).__call__,
    "object's object": lambda change: Weighted(None, gamma={"of": [1, change]}),
}


@pytest.mark.parametrize("make", LOSSES.values(), ids=LOSSES)
def test_a_loss_is_known_by_what_it_carries_and_not_by_its_address(make):
    assert described(make(0)) == described(make(0))
    assert described(make(1)) != described(make(0))


def test_what_an_object_inside_a_loss_leads_to_does_not_matter():
    loss = Weighted(None)
    loss.log = logging.getLogger("of a loss")
    before = described(loss)
    for name in ("another", "of a loss.below"):
        logging.getLogger(name).isEnabledFor(logging.INFO)
    loss.log.info("its cache fills")
    assert described(loss) == before


def frozen():
    model = small_model()
    model[0].requires_grad_(False)
    return model


class Scaled(nn.Module):
    """A layer whose number shows in neither its weights nor its representation."""

    def __init__(self, scale, *, buffer):
        super().__init__()
        self.register_buffer("kept", torch.tensor(scale if buffer else 1.0), persistent=False)
        self.scale = 1.0 if buffer else scale

    def forward(self, x):
        return x * self.scale * self.kept


def scaled(scale, *, buffer):
    return nn.Sequential(Scaled(scale, buffer=buffer), *small_model())


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ({"loss": nn.CrossEntropyLoss()}, {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}, "loss"),
        ({}, {"model": frozen()}, "frozen parameters"),
        ({"model": scaled(1.0, buffer=True)}, {"model": scaled(2.0, buffer=True)}, "buffers"),
        ({"model": scaled(1.0, buffer=False)}, {"model": scaled(2.0, buffer=False)}, "modules"),
    ],
)
def test_a_run_goes_on_with_the_same_loss_and_model_only(tmp_path, one, other, what):
    run(small_study(train={"rounds": 1}, **one), tmp_path)
    with pytest.raises(RunError, match=rf"\(they differ in {what}\)"):
        run(small_study(train={"rounds": 2}, **other), tmp_path, resume=True)
    assert len(run(small_study(train={"rounds": 2}, **one), tmp_path, resume=True)) == 1
