"""However many rounds there are, the loop holds one set of weights: counted, not by memory."""

import gc

import pytest
import torch
from small_study import small_data, small_study
from torch import nn

from cutwater.execute import local
from cutwater.plan.session import Session

ROUNDS = 300
SHAPE = (17, 6)
"""Of a weight that nothing else in this process has."""


def model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 17), nn.ReLU(), nn.Linear(17, 3))


def live_models() -> int:
    """Tensors of the weight's shape, each with its own memory."""
    gc.collect()
    found = [each for each in gc.get_objects() if type(each) in (torch.Tensor, nn.Parameter)]
    return len({each.untyped_storage().data_ptr() for each in found if tuple(each.shape) == SHAPE})


@pytest.mark.parametrize("aggregator", ["average", "fedadam"])
def test_the_number_of_live_models_does_not_grow_with_the_rounds(aggregator, tmp_path):
    study = small_study(
        model=model(),
        data=small_data(),
        session=Session(steps=1, batch_size=5),
        train={
            "rounds": ROUNDS,
            "clients_per_round": 2,
            "evaluate_every": ROUNDS,
            "aggregator": aggregator,
            "lr": 1e-3,
        },
    )
    counted = {}

    def count(round_):
        if round_.record.round in (5, 50, 150, ROUNDS):
            counted[round_.record.round] = live_models()

    local.run(study, tmp_path / "run", callbacks=[count])
    assert len(counted) == 4
    assert len(set(counted.values())) == 1, counted
