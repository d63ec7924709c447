"""Measuring κ and the effective FLOPS of a device."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn

import cutwater
from cutwater.base.errors import ModelError
from cutwater.profile.count import load_model, profile_layered
from cutwater.profile.measure import WARM_UP, Spread, measure


def readings(steps):
    """A clock that advances by the given steps, again and again, one for each time it is read."""
    moments = itertools.accumulate(itertools.cycle(steps))
    return lambda: next(moments)


def test_kappa_and_speed_follow_from_the_clock():
    layered = cutwater.layered(nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 2)))
    # Read before forward, before backward and after it: forward takes 2 s, backward 6 s.
    result = measure(layered, torch.zeros(4, 8), 5, clock=readings([1.0, 2.0, 6.0]))
    total = 2 * (8 * 6 + 6 * 2) + 2 * (8 * 6 + 2 * 6 * 2)
    assert result.forward_seconds == Spread(2, 2, 2)
    assert result.backward_seconds == Spread(6, 6, 6)
    assert result.kappa == Spread(3, 3, 3)
    assert result.flops.median == 4 * total / 8
    assert (result.batch_size, result.repetitions, result.device) == (4, 5, "cpu")


def test_the_spread_is_median_and_quartiles():
    assert Spread.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(median=3, low=2, high=4)


def test_flops_over_effective_flops_is_the_time_measured():
    layered, x = load_model("cnn", "1x12x12", 10, 8)
    profile = profile_layered(layered, x, count="paper")
    result = measure(layered, x, 3, flops_per_sample=profile.total_flops, clock=readings([1.0, 1.0, 3.0]))
    assert 8 * profile.total_flops / result.flops.median == pytest.approx(4)


def test_a_real_measurement_leaves_the_model_as_it_is_and_says_it_in_json():
    layered, x = load_model("cnn", "1x12x12", 10, 8)
    before = {key: value.clone() for key, value in layered.module.state_dict().items()}
    generator, calls = torch.get_rng_state(), []
    result = measure(layered, x, 3, after_each=lambda: calls.append(1))
    assert len(calls) == 3
    assert torch.equal(generator, torch.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in layered.module.state_dict().items())
    assert all(parameter.grad is None for parameter in layered.module.parameters())
    for spread in (result.forward_seconds, result.backward_seconds, result.kappa, result.flops):
        assert 0 < spread.low <= spread.median <= spread.high
    assert json.loads(json.dumps(result.to_json()))["kappa"]["median"] == result.kappa.median


def test_the_first_passes_are_not_timed():
    layered = cutwater.layered(nn.Sequential(nn.Linear(2, 2)))
    slow_start = itertools.chain([0, 100, 100] * WARM_UP, itertools.cycle([0, 1, 1]))
    moments = itertools.accumulate(slow_start)
    assert measure(layered, torch.zeros(1, 2), 4, clock=lambda: next(moments)).kappa == Spread(1, 1, 1)


@pytest.mark.parametrize("repetitions", [0, -3, 2.5, True])
def test_measuring_takes_at_least_one_repetition(repetitions):
    layered = cutwater.layered(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(ModelError, match="repetitions"):
        measure(layered, torch.zeros(1, 2), repetitions)


def test_repetitions_may_be_a_number_of_numpys():
    found = measure(cutwater.layered(nn.Sequential(nn.Linear(2, 2))), torch.zeros(1, 2), np.int64(2))
    assert json.loads(json.dumps(found.to_json()))["repetitions"] == 2


def test_a_model_that_can_not_learn_has_no_backward_pass():
    layered = cutwater.layered(nn.Sequential(nn.Flatten()))
    with pytest.raises(ModelError, match="no output of the model has a gradient"):
        measure(layered, torch.zeros(1, 2), 1)


def test_a_model_that_fails_is_one_sentence():
    layered = cutwater.layered(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(ModelError, match="layer 1"):
        measure(layered, torch.zeros(1, 2), 1)
