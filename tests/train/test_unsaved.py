"""Buffers that no state dict holds: what a session leaves in them reaches no other."""

from dataclasses import replace

import pytest
import torch
from collecting import run
from small_study import small_model, small_study
from torch import nn

from cutwater.base.errors import EngineError


class Centred(nn.Module):
    """Subtracts a running mean that no state dict holds."""

    def __init__(self, *, in_place):
        super().__init__()
        self.register_buffer("mean", torch.zeros(12), persistent=False)
        self.in_place = in_place

    def forward(self, x):
        if self.training and self.in_place:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        elif self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


def test_a_run_that_fails_leaves_them_as_it_found_them():
    def breaks(output, labels):
        if model[1].mean.any() and output.requires_grad:
            raise ValueError("enough")
        return nn.functional.cross_entropy(output, labels)

    model = small_model()
    model.insert(1, Centred(in_place=True))
    study = small_study(model=model)
    with pytest.raises(EngineError, match="enough"):
        run(replace(study, loss=breaks))
    assert not model[1].mean.any()


@pytest.mark.parametrize("in_place", [True, False])
def test_a_session_finds_buffers_that_no_state_dict_holds_as_the_model_came(tmp_path, in_place):
    model = small_model()
    model.insert(1, Centred(in_place=in_place))
    study = small_study(model=model)
    wanted = [step.record.weights_sha256 for step in run(study.with_planner("fedavg"))]
    assert not model[1].mean.any()
    assert [step.record.weights_sha256 for step in run(study)] == wanted
    assert [step.record.weights_sha256 for step in run(study, workers=2)] == wanted
    run(small_study(model=model, train={"rounds": 2}), tmp_path)
    assert run(study, tmp_path, resume=True)[-1].record.weights_sha256 == wanted[-1]
