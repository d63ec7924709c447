"""What the seconds of a session say of a client."""

import math
from dataclasses import replace

import pytest
from flower_cases import settings, write_four
from flwr.app import RecordDict
from hypothesis import given
from hypothesis import strategies as st

from cutwater.base.errors import EngineError
from cutwater.flower.clocks import AtDevice, bounded, bounded_whole, check_seconds
from cutwater.flower.shared_study import study_for
from cutwater.flower.updates import Reply, observed, phases, time_at_device
from cutwater.flower.wire import Report
from cutwater.plan.latency import NOTHING, PHASES, Phases
from cutwater.serve.hosting import SessionClock, Trained
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


def reply(wall, overhead, transfers=None):
    return Reply(RecordDict(), wall, overhead, transfers)


def test_letters_of_a_lease_are_timed_by_the_server():
    found, timed = phases(
        report(session=9.0, setup=1.0), PLANNED, reply(62.0, None, (0.4, 0.3)), emulated=False
    )
    assert timed
    assert found == replace(SPLIT, model_download=0.4, model_upload=0.3)


def test_a_real_models_transfer_is_what_a_message_takes_beyond_the_session_and_an_empty_one():
    found, timed = phases(report(session=9.0, setup=1.0), PLANNED, reply(62.0, 2.0), emulated=False)
    assert timed
    assert found == replace(SPLIT, model_download=25.0, model_upload=25.0)


@pytest.mark.parametrize(("wall", "overhead"), [(10.0, 2.0), (12.0, 2.0), (21.9, 2.0), (1e6, None)])
def test_one_that_is_lost_in_the_polling_is_taken_as_planned(wall, overhead):
    found, timed = phases(report(session=9.0, setup=1.0), PLANNED, reply(wall, overhead), emulated=False)
    assert not timed
    assert found == replace(SPLIT, model_download=0.7, model_upload=0.8)


def test_an_emulated_transfer_has_its_own_seconds():
    assert phases(report(session=9.0, setup=1.0), PLANNED, reply(62.0, 2.0), emulated=True) == (SPLIT, True)


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
        check_seconds(report(9.0, 1.0, steps), task, enough)
        with pytest.raises(EngineError, match="s of work, but its reply came after"):
            check_seconds(report(9.0, 1.0, steps), task, enough / 1.2)


def test_work_that_took_no_time_is_a_fault_and_not_a_session_that_nobody_saw():
    free = report(9.0, 1.0)
    free = replace(free, seconds={**free.seconds, "client_forward": 0.0, "client_backward": 0.0})
    with pytest.raises(EngineError, match="reports 0 s for the 3 steps that it computed"):
        check_seconds(free, TASK, 60.0)


def _trained(**clock):
    return Trained({}, 1.0, 3, 90, 1000, 500, 1.0, 1.0, None, SessionClock(**clock))


OWN = ("client_forward", "client_backward", "smashed_upload", "gradient_download", "round_trips")


def _own(took):
    return sum(getattr(took, name) for name in OWN)


def test_what_an_honest_device_says_is_taken_as_it_is():
    real = _own(SPLIT) + SPLIT.server_forward + SPLIT.server_backward
    clock = {"session": real + 0.4, "server": SPLIT.server_forward + SPLIT.server_backward}
    assert bounded(SPLIT, _trained(**clock, up=0.5), overlapped=False) == SPLIT
    assert bounded(SPLIT, _trained(), overlapped=False) == SPLIT


@pytest.mark.parametrize("lie", [0.001, 0.1, 3.0, 1000.0])
def test_a_device_divides_its_seconds_but_their_sum_is_the_servers(lie):
    told = replace(SPLIT, **{name: lie * getattr(SPLIT, name) for name in OWN})
    found = bounded(told, _trained(session=31.0, server=1.0), overlapped=False)
    assert _own(found) * (1 + 1e-9) >= 30.0 / 1.5 - 1.0
    assert _own(found) <= 1.1 * 30.0 * (1 + 1e-9)
    assert found.client_forward / found.smashed_upload == pytest.approx(
        SPLIT.client_forward / SPLIT.smashed_upload
    )


def test_an_upload_takes_at_least_what_the_server_saw_of_it_and_parts_at_most_the_session():
    found = bounded(replace(SPLIT, smashed_upload=0.0), _trained(session=12.0, up=1.5), overlapped=False)
    assert found.smashed_upload >= 1.5
    long = bounded(replace(SPLIT, client_forward=99.0), _trained(session=12.0), overlapped=True)
    assert long.client_forward == pytest.approx(1.1 * 12.0)


WHOLE = Phases(2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0)
CLAIM = st.floats(1e-12, 1e12)


@given(forward=CLAIM, backward=CLAIM, away=st.floats(0.1, 1e4), transfers=st.floats(0.0, 100.0))
def test_whatever_a_whole_model_client_claims_its_compute_is_within_the_servers_clock(
    forward, backward, away, transfers
):
    """1e-9 s and 1e9 s alike: planned on is what the server's clock allows."""
    told = replace(WHOLE, client_forward=forward, client_backward=backward)
    at_device = AtDevice(away, away + transfers)
    found = bounded_whole(told, at_device, emulated=False)
    assert found.client * (1 + 1e-9) >= min(away / 1.5 - 1.0, 1.1 * at_device.most)
    assert found.client <= 1.1 * at_device.most * (1 + 1e-9)
    assert (found.model_download, found.model_upload) == (2.0, 3.0)
    if away / 1.5 - 1.0 <= told.client <= 1.1 * at_device.most:
        assert found == told, "an honest claim is taken as it is"


@given(
    claims=st.tuples(*[CLAIM] * 5),
    steps=CLAIM,
    session=st.floats(0.1, 1e4),
    server=st.floats(0.0, 1.0),
)
def test_whatever_an_overlapped_client_claims_its_session_took_what_the_server_saw(
    claims, steps, session, server
):
    told = replace(NOTHING, **dict(zip(OWN, claims, strict=True)))
    told = replace(told, overlap=max(sum(claims) - steps, 0.0))
    found = bounded(told, _trained(session=session, server=server * session), overlapped=True)
    assert all(getattr(found, name) <= 1.1 * session * (1 + 1e-9) for name in OWN)
    assert _own(found) * (1 + 1e-9) >= (1 - server) * session / 1.5 - 1.0
    assert found.total <= 1.1 * session * (1 + 1e-6)
    assert found.total * (1 + 1e-6) + 1e-9 >= min(session / 1.5 - 1.0, _own(found))


def test_over_a_lease_the_time_at_the_device_is_exact_and_in_a_message_less_flowers_own():
    said, took = report(session=9.0, setup=1.0), replace(WHOLE, client_forward=1e-9)
    leased = Reply(RecordDict(), 50.0, None, (2.0, 3.0), away=44.0)
    assert time_at_device(said, took, leased, emulated=False) == (44.0, 45.0)
    assert time_at_device(said, took, leased, emulated=True) == (44.0, 50.0)
    assert time_at_device(said, took, reply(50.0, 12.0), emulated=False) == (22.0, 45.0)
    assert time_at_device(said, took, reply(50.0, None), emulated=False) == (0.0, 45.0)
    hides = report(session=9.0, setup=1e6)
    assert time_at_device(hides, took, reply(1000.0, 12.0), emulated=False).least == 913.0
