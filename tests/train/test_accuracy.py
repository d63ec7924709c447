"""What counts as an answer, and which of them are right."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutwater.train.scores import score

TOKENS = torch.tensor([[1, 2, -100, -100], [0, 1, 2, -100]])


def answers(labels, classes=3):
    """Logits (N × T × classes) that name every label right, and class 0 where a label is none."""
    return 9.0 * F.one_hot(labels.clamp(min=0) % classes, classes)


def by_token(output, labels):
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), labels.reshape(-1))


def test_padding_is_no_wrong_answer():
    found = score(by_token, answers(TOKENS), TOKENS)
    assert (found.right, found.answers, found.samples) == (5, 5, 2)


def test_labels_beyond_the_classes_are_not_counted():
    pixels = torch.tensor([[[0, 255], [1, 2]]])
    found = score(nn.CrossEntropyLoss(ignore_index=255), answers(pixels).movedim(-1, 1), pixels)
    assert (found.right, found.answers) == (3, 3)


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(ignore_index=0), partial(F.cross_entropy, ignore_index=0)], ids=type
)
def test_what_the_loss_ignores_is_not_counted(loss):
    labels = torch.tensor([0, 0, 1, 2])
    found = score(loss, answers(torch.tensor([0, 1, 1, 1])), labels)
    assert (found.right, found.answers) == (1, 2)


def test_a_partial_of_torchs_loss_has_its_classes_second():
    labels = torch.tensor([[0, 1, 2]])
    square = answers(labels).movedim(-1, 1).clone()
    square[0, :, 2] = torch.tensor([9.0, 0.0, 0.0])  # wrong by column, and other answers by row
    whole, part = (score(loss, square, labels) for loss in (F.cross_entropy, partial(F.cross_entropy)))
    assert (whole.right, whole.answers) == (part.right, part.answers) == (2, 3)
