"""A study looks at a model without changing the mode of any of its parts."""

from types import SimpleNamespace

import pytest
import torch
from small_study import small_model, small_study
from torch import nn
from torch.nn import functional as F

import cutwater
from cutwater.train.own_loss import has_logits, own_loss


def modes(model):
    return {name: part.training for name, part in model.named_modules()}


@pytest.mark.parametrize("training", [True, False], ids=["in train mode", "in eval mode"])
def test_a_part_whose_mode_was_set_by_hand_keeps_it_in_a_study(training):
    model = small_model().train(training)
    next(model.children()).train(not training)
    before = modes(model)
    small_study(model=model)
    assert modes(model) == before


class WithLoss(nn.Module):
    """A model that computes its loss where it is given labels, as those of transformers do."""

    def __init__(self):
        super().__init__()
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 3)
        self.config = SimpleNamespace(problem_type=None)

    def loss_function(self, logits, labels):
        return F.cross_entropy(logits, labels)

    def forward(self, x, labels=None):
        logits = self.head(self.drop(x))
        loss = None if labels is None else self.loss_function(logits, labels)
        return SimpleNamespace(logits=logits, loss=loss)


def test_a_part_whose_mode_was_set_by_hand_keeps_it_while_a_models_own_loss_is_tried():
    model = WithLoss()
    model.drop.eval()
    before = modes(model)
    assert own_loss(model, (torch.randn(2, 4),), torch.tensor([0, 2])) is not None
    assert modes(model) == before


def test_a_part_whose_mode_was_set_by_hand_keeps_it_while_logits_are_looked_for():
    model = small_model()
    next(model.children()).eval()
    before = modes(model)
    assert not has_logits(cutwater.layered(model), (torch.randn(2, 6),))
    assert modes(model) == before
