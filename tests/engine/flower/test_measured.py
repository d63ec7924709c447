"""What the seconds of a session say of a client."""

import math
from dataclasses import replace

import pytest
from flower_cases import settings, write_four

from cutwater.engine.flower.measured import observed
from cutwater.engine.flower.study import study_for
from cutwater.plan.latency import Phases
from cutwater.train.session import Task
from cutwater.train.step import state_bytes

TASK = Task("watch", 1, 2, 0, 0.05, 90)
SPLIT = Phases(0.5, 1.0, 2.0, 0.1, 0.2, 4.0, 3.0, 0.25)
CROSSED = (1000, 500)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_for(settings(write_four(tmp_path_factory.mktemp("measured"))))


def whole(study, seconds):
    task = replace(TASK, cut=len(study.model))
    return task, Phases(seconds / 2, 1.0, 0.0, 0.0, 0.0, 0.0, 3.0, seconds / 2)


def model_bits(study, cut):
    """|w^C| as the planner counts it, so that its next prediction is this transfer's time."""
    return 8 * state_bytes(study.model.split(cut).client.parameters())


@pytest.mark.parametrize("emulated", [True, False])
def test_compute_is_the_flops_of_a_session_over_its_seconds(study, emulated):
    found = observed(study, TASK, SPLIT, CROSSED, emulated=emulated)
    costs, steps = study.profile.cuts[TASK.cut - 1], 3 * 16
    flops = steps * (costs.client_forward_flops + costs.client_backward_flops)
    assert found.compute == pytest.approx(flops / 4.0)


def test_the_stream_tells_the_rates_of_a_real_link_and_the_model_nothing(study):
    found = observed(study, TASK, SPLIT, CROSSED, emulated=False)
    assert (found.up, found.down) == (8000 / 2.0, 4000 / 4.0)
    slow = replace(SPLIT, model_download=60.0, model_upload=60.0)
    assert observed(study, TASK, slow, CROSSED, emulated=False) == found


def test_an_emulated_link_is_known_exactly_for_the_model_too(study):
    found = observed(study, TASK, SPLIT, CROSSED, emulated=True)
    bits = model_bits(study, TASK.cut)
    assert found.up == pytest.approx((8000 + bits) / 2.25)
    assert found.down == pytest.approx((4000 + bits) / 4.5)
    found = observed(study, *whole(study, 1.0), None, emulated=True)
    assert found.up == found.down == pytest.approx(model_bits(study, len(study.model)) / 0.5)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 9.9])
def test_a_message_that_hardly_took_longer_than_an_empty_one_says_nothing_of_the_link(study, seconds):
    found = observed(study, *whole(study, seconds), None, emulated=False)
    assert math.isnan(found.up)
    assert math.isnan(found.down)
    assert found.compute > 0


def test_one_that_took_much_longer_does(study):
    found = observed(study, *whole(study, 60.0), None, emulated=False)
    assert found.up == found.down == pytest.approx(model_bits(study, len(study.model)) / 30)
