"""What the seconds of a session say of a client."""

import math
from dataclasses import replace

import pytest
from flower_cases import settings, write_four

from cutwater.base.errors import EngineError
from cutwater.flower.shared_study import study_for
from cutwater.flower.updates import _check_seconds, observed, phases
from cutwater.flower.wire import Report
from cutwater.plan.latency import PHASES, Phases
from cutwater.train.session import Task

TASK = Task("watch", 1, 2, 0, 0.05, 90)
SPLIT = Phases(0.5, 1.0, 2.0, 0.1, 0.2, 4.0, 3.0, 0.25)
PLANNED = replace(SPLIT, model_download=0.7, model_upload=0.8)
CROSSED = (1000, 500)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_for(settings(write_four(tmp_path_factory.mktemp("measured"))))


def model(study, task):
    """Bytes of the model that travel up and down in a round."""
    down, up = study.job().model_bytes(task)
    return up, down


def report(session, setup, steps=0.0):
    seconds = {name: getattr(SPLIT, name) for name in PHASES}
    more = {"session": session, "setup": setup, "steps": steps}
    return Report("r1", "watch", 1, 3, 90, 1.25, True, {**seconds, **more})


def test_a_real_models_transfer_is_what_a_message_takes_beyond_the_session_and_an_empty_one():
    found, timed = phases(report(session=9.0, setup=1.0), PLANNED, 62.0, 2.0, emulated=False)
    assert timed
    assert found == replace(SPLIT, model_download=25.0, model_upload=25.0)


@pytest.mark.parametrize(("wall", "overhead"), [(10.0, 2.0), (12.0, 2.0), (21.9, 2.0), (1e6, None)])
def test_one_that_is_lost_in_the_polling_is_taken_as_planned(wall, overhead):
    found, timed = phases(report(session=9.0, setup=1.0), PLANNED, wall, overhead, emulated=False)
    assert not timed
    assert found == replace(SPLIT, model_download=0.7, model_upload=0.8)


def test_an_emulated_transfer_has_its_own_seconds():
    assert phases(report(session=9.0, setup=1.0), PLANNED, 62.0, 2.0, emulated=True) == (SPLIT, True)


@pytest.mark.parametrize("timed", [True, False])
def test_compute_is_the_flops_of_a_session_over_its_seconds(study, timed):
    found = observed(study, TASK, SPLIT, CROSSED, model(study, TASK) if timed else (0, 0))
    costs, steps = study.profile.cuts[TASK.cut - 1], 3 * 16
    flops = steps * (costs.client_forward_flops + costs.client_backward_flops)
    assert found.compute == pytest.approx(flops / 4.0)


def test_the_stream_tells_the_rates_and_so_does_a_model_that_was_timed(study):
    found = observed(study, TASK, SPLIT, CROSSED, (0, 0))
    assert (found.up, found.down) == (8000 / 2.0, 4000 / 4.0)
    up, down = model(study, TASK)
    found = observed(study, TASK, SPLIT, CROSSED, (up, down))
    assert found.up == pytest.approx((8000 + 8 * up) / 2.25)
    assert found.down == pytest.approx((4000 + 8 * down) / 4.5)


def test_without_a_stream_the_model_alone_tells_the_rates_or_nothing_does(study):
    task = replace(TASK, cut=len(study.model))
    took = Phases(20.0, 1.0, 0.0, 0.0, 0.0, 0.0, 3.0, 40.0)
    up, down = model(study, task)
    found = observed(study, task, took, (0, 0), (up, down))
    assert (found.up, found.down) == (pytest.approx(8 * up / 40), pytest.approx(8 * down / 20))
    found = observed(study, task, took, (0, 0), (0, 0))
    assert math.isnan(found.up)
    assert math.isnan(found.down)
    assert found.compute > 0


def test_what_is_priced_is_what_is_counted(study):
    """The planner's bits of a cut are the bytes that a session's counters and estimates are made of."""
    costs = study.problem([study.client("watch")]).costs
    for cut in range(1, len(study.model) + 1):
        up, down = model(study, replace(TASK, cut=cut))
        assert 8 * up == costs.bits[cut - 1]
        assert 8 * down == costs.bits[cut - 1] + costs.once[cut - 1]


def test_seconds_that_were_not_there_are_refused_in_turn_by_their_sum_and_overlapped_by_the_longest():
    """In turn they are 11.05 s; overlapped, the download of 4 s takes longest, beside the model's 0.75."""
    overlapped = replace(TASK, schedule="overlapped")
    for task, enough, steps in ((TASK, 11.1, 0.0), (overlapped, 4.8, 0.0), (overlapped, 6.8, 6.0)):
        _check_seconds(report(9.0, 1.0, steps), task, enough)
        with pytest.raises(EngineError, match="s of work, but its reply came after"):
            _check_seconds(report(9.0, 1.0, steps), task, enough / 1.2)
