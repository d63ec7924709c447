"""Crowds, slow sockets and floods beside honest users, by the clock: what benchmarks/doors.py measures."""

import runpy
from pathlib import Path

import pytest

DOORS = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "doors.py"))

pytestmark = pytest.mark.chaos


def test_idle_and_slow_sockets_at_the_page_cost_an_honest_user_little(record_property):
    found = DOORS["page"]()
    assert set(found) == {"idle", "slow"}
    for name, ratio in found.items():
        record_property(f"page, p99 beside 300 {name} sockets, x", round(ratio, 3))
    assert max(found.values()) <= DOORS["MOST_P99"]


def test_idle_clients_silent_sockets_and_resets_cost_active_clients_little(record_property):
    found = DOORS["stream"]()
    assert len(found) == 3
    for name, ratio in found.items():
        record_property(f"stream, p99 beside {name}, x", round(ratio, 3))
    for name, ratio in found.items():
        assert ratio <= DOORS["MOST_BESIDE_IDLE" if "clients" in name else "MOST_P99"], name


def test_headers_that_never_end_cost_bounded_memory_and_an_honest_session_finishes(record_property):
    growth, finished = DOORS["flooded"]()
    record_property("memory under endless headers, MiB more", round(growth, 1))
    assert finished == 100
    assert growth <= DOORS["MOST_GROWTH"]
