"""Emulation, by a clock of the tests' own."""

import pytest

from cutwater.execute.emulate import EmulatedDevice, LinkWay, Meter, Pacer
from cutwater.federate.conditions import Condition


class Clock:
    """Time that passes by sleeping, a little more than asked for."""

    def __init__(self, late=0.0):
        self.now, self.late = 100.0, late

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds + self.late


def test_stages_take_as_long_as_they_should_though_every_sleep_is_late():
    clock = Clock(late=0.01)
    pacer = Pacer(clock, clock.sleep)
    for _ in range(100):
        clock.now += 0.003
        pacer.hold(0.05, 0.003)
    assert clock.now - 100 == pytest.approx(100 * 0.05, abs=0.02)


def test_a_hiccup_of_the_machine_is_made_up_for():
    clock = Clock()
    pacer = Pacer(clock, clock.sleep)
    clock.now += 1.0
    pacer.hold(0.1, 1.0)
    for _ in range(20):
        pacer.hold(0.1, 0.0)
    assert clock.now - 100 == pytest.approx(2.1)


def test_a_device_takes_flops_over_its_compute_and_bits_over_its_rates():
    clock = Clock()
    device = EmulatedDevice(
        Condition(compute=1e6, up=8e3, down=16e3), client_forward=1e4, client_backward=2e4
    )
    meter = Meter(device, clock)
    meter._pacer = Pacer(clock, clock.sleep)
    meter.begin(10)
    with meter.watch("client_forward"):
        clock.now += 0.02
    with meter.watch("client_backward"):
        pass
    meter.carry("smashed_upload", 500, up=True)
    meter.carry("gradient_download", 500, up=False, taken=0.0)
    assert meter.seconds == pytest.approx(
        {"client_forward": 0.1, "client_backward": 0.2, "smashed_upload": 0.5, "gradient_download": 0.25}
    )


def test_without_a_device_nothing_sleeps_and_real_seconds_are_kept():
    clock = Clock()
    meter = Meter(clock=clock)
    with meter.watch("client_forward"):
        clock.now += 0.5
    meter.carry("gradient_download", 10**9, up=False, taken=0.25)
    assert dict(meter.seconds) == {"client_forward": 0.5, "gradient_download": 0.25}


def test_a_device_takes_the_flops_of_each_part_whatever_their_order():
    clock = Clock()
    device = EmulatedDevice(
        Condition(compute=1e6, up=8e3, down=16e3), client_forward=1e4, client_backward=2e4
    )
    meter = Meter(device, clock)
    meter._pacer = Pacer(clock, clock.sleep)
    meter.micro_batches = 3
    for _ in range(2):
        meter.begin(10)
        for seconds in (0.04, 0.03, 0.03):
            began = clock.now
            with meter.watch("client_forward"):
                pass
            assert clock.now - began == pytest.approx(seconds)
        for seconds in (0.08, 0.06, 0.06):
            began = clock.now
            with meter.watch("client_backward"):
                pass
            assert clock.now - began == pytest.approx(seconds)
    assert meter.seconds == pytest.approx({"client_forward": 0.2, "client_backward": 0.4})


def test_steps_are_what_passes_while_a_mini_batch_is_worked_on():
    clock = Clock()
    meter = Meter(clock=clock)

    def loading():
        for place in range(3):
            clock.now += 10.0
            yield place

    for place in meter.timed(loading()):
        clock.now += place + 1.0
    assert meter.seconds["steps"] == 6.0


def test_in_turn_a_round_trip_is_a_pause_for_parts_and_none_for_the_model():
    clock = Clock()
    device = EmulatedDevice(
        Condition(compute=1e6, up=8e3, down=8e3, rtt=1.0), client_forward=1.0, client_backward=1.0
    )
    meter = Meter(device, clock)
    meter._pacer = Pacer(clock, clock.sleep)
    for phase in ("model_download", "smashed_upload", "gradient_download"):
        meter.carry(phase, 1000, up=phase == "smashed_upload")
    assert meter.seconds == pytest.approx(
        {"model_download": 1.0, "smashed_upload": 1.0, "gradient_download": 1.0, "round_trips": 1.0}
    )


def test_a_link_carries_one_message_at_a_time_and_its_way_occupies_nobody():
    way = LinkWay(rate=8e3, rtt=4.0)
    assert [way(1000, 0.0) for _ in range(3)] == [3.0, 4.0, 5.0]
    assert way(1000, 10.0) == 13.0
    assert way(0, 10.5) == 13.0, "what has no bytes waits its turn all the same"
    assert way.busy == 4.0
