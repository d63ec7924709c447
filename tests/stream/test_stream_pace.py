"""Pacing: nobody sends faster than its part of a shared line, and what is delivered is accounted for."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_rig import QUICK, Echo, Raw, example, expected, issue

from cutwater.base.errors import FileFormatError
from cutwater.stream.client import StreamClient
from cutwater.stream.frames import MAX_FRAME, FrameKind
from cutwater.stream.messages import Packer
from cutwater.stream.pace import Pace, Reading, Sending
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Claims

ROWS, WIDTH = 4, 16 * 1024
RATE = 32e6
"""Four megabytes a second; a step of 256 KiB takes a sixteenth of a second each way."""
ARRIVALS = st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.0, 5.0)), min_size=1, max_size=30)


@settings(deadline=None)
@given(ARRIVALS, st.floats(1e3, 1e9), st.integers(0, 10**6))
def test_over_any_stretch_a_bucket_lets_no_more_pass_than_its_rate_and_burst(arrivals, rate, burst):
    line, now, passed = Reading(rate, burst), 0.0, []
    for size, pause in arrivals:
        now += pause
        passed.append((line.passed(size, now), size))
    times = [when for when, _ in passed]
    assert times == sorted(times)
    for i in range(len(passed)):
        for j in range(i, len(passed)):
            sizes = sum(size for _, size in passed[i + 1 : j + 1])
            assert 8 * sizes <= (times[j] - times[i]) * rate * (1 + 1e-6) + 8 * burst + 1e-3 * rate * 1e-3


def test_frames_are_small_and_each_has_its_time_on_the_line():
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(RATE, clock=lambda: now[0], sleep=sleep)
    smashed, labels = example(ROWS, WIDTH)
    packed = Packer(expected(ROWS, WIDTH).at_server).pack(
        FrameKind.PART, 0, tensors=[*smashed, labels], rows=ROWS
    )
    frames = list(pace.spread(packed.frames, 1 << 20))
    assert max(map(len, frames)) < 2 * Sending(RATE).size
    assert len(frames) > 2
    assert sum(slept) == pytest.approx(8 * sum(map(len, frames)) / RATE)


@pytest.fixture
def server():
    with StreamServer(Echo(), limits=QUICK) as server:
        yield server


def steps(server, count=2, **rates):
    """The record of a session, and the seconds that its steps took the client."""
    smashed, labels = example(ROWS, WIDTH)
    expect = expected(ROWS, WIDTH, steps=count)
    ticket = issue(server, expect, **rates)
    with StreamClient(ticket, expect, client="k1", limits=QUICK) as client:
        began = time.monotonic()
        for number in range(count):
            client.step(number, smashed, labels)
        seconds = time.monotonic() - began
        client.finish()
    return server.wait(ticket, timeout=10.0), seconds


@pytest.mark.parametrize(
    "rates", [{"rate_up": RATE}, {"rate_down": RATE}, {"rate_up": RATE, "rate_down": RATE}]
)
def test_a_session_takes_at_least_as_long_as_its_rates_say(server, rates):
    record, seconds = steps(server, **rates)
    assert record.failure is None
    assert record.steps == 2
    least = sum(
        8 * size / rates[way]
        for way, size in (("rate_up", record.tensors_up), ("rate_down", record.tensors_down))
        if way in rates
    )
    assert seconds >= 0.99 * least
    if "rate_down" in rates:
        assert record.rates[1] <= 1.01 * RATE
        assert record.timed_down >= record.tensors_down
    if "rate_up" in rates:
        assert record.tensors_up / 2 < record.timed_up < record.bytes_up


def test_a_session_without_rates_is_not_timed_by_frames_that_are_whole_messages(server):
    record, _ = steps(server)
    assert record.timed_up == 0
    assert record.rates[0] is None


def test_what_is_on_its_way_is_timed_before_it_is_there(server):
    smashed, labels = example(ROWS, WIDTH)
    expect = expected(ROWS, WIDTH)
    ticket = issue(server, expect, rate_up=RATE / 4)
    seen = []
    with StreamClient(ticket, expect, client="k1", limits=QUICK) as client:
        step = threading.Thread(target=client.step, args=(0, smashed, labels))
        began = time.monotonic()
        step.start()
        while step.is_alive():
            (record,) = server.records()
            if not record.timed_up:
                seen.append((*record.coming, time.monotonic() - began))
            time.sleep(0.01)
        client.finish()
    coming = [found[:2] for found in seen]
    assert coming == sorted(coming)
    assert len(set(coming)) > 3, "frame by frame"
    # By our own clock: on a busy machine the server may read the first frame late, and the rest sooner after.
    assert all(8 * size <= 1.01 * RATE / 4 * passed and seconds <= passed for size, seconds, passed in seen)
    record = server.wait(ticket, timeout=10.0)
    assert 0 < coming[-1][0] < record.timed_up
    assert record.coming == (0, 0.0), "once it is there, it is counted with all that was"


def test_a_client_that_sends_faster_than_it_may_is_read_no_faster(server):
    """Of what it sends ahead, one frame passes; the rest waits for its time."""
    count = 12
    expect = expected(ROWS, WIDTH, steps=count)
    ticket = issue(server, expect, rate_up=RATE)
    smashed, labels = example(ROWS, WIDTH)
    pack = Packer(expect.at_server)
    began = time.monotonic()
    with Raw(ticket) as raw:
        for number in range(count):
            packed = pack.pack(FrameKind.PART, number, tensors=[*smashed, labels], rows=ROWS)
            raw.send(*packed.frames(1 << 20))
        for _ in range(1 + count):  # the welcome, and the replies
            next(raw.call)
    late = 8 * (count * ROWS * WIDTH * 4 - MAX_FRAME)
    assert time.monotonic() - began >= 0.99 * late / RATE


def test_a_rate_that_is_none_is_refused():
    claims = {
        "id": "a",
        "run": "r",
        "round": 1,
        "client": "c",
        "cut": 1,
        "address": "h:1",
        "server_name": "s",
        "fingerprint": "f",
        "open_seconds": 1.0,
        "session_seconds": 1.0,
    }
    with pytest.raises(FileFormatError, match="rate_up is -1"):
        Claims(**claims, rate_up=-1.0)
    assert Claims(**claims).rate_up == 0.0
