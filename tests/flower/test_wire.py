"""Records as they travel: what is packed comes back bit for bit, what was not asked for is refused."""

import pytest
import torch
from flower_cases import settings  # noqa: F401 - skips where Flower is missing
from flwr.app import ConfigRecord, RecordDict
from hypothesis import given
from hypothesis import settings as checked
from hypothesis import strategies as st

from cutwater.flower.wire import (
    MEASURES,
    Order,
    Report,
    WireError,
    order_records,
    pack,
    read_order,
    read_report,
    report_records,
    unpack,
)
from cutwater.train.session import Task

TASK = Task("c1", 3, 2, seed=2**62 + 1, lr=0.05, samples=90)
ORDER = Order("r1", TASK, "f" * 64, "ticket", {"w": "a" * 64})
SECONDS = dict.fromkeys(MEASURES, 0.5)
REPORT = Report("r1", "c1", 3, 4, 90, 1.25, True, SECONDS)
STATE = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(7)}
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@checked(deadline=None, max_examples=50)
@given(dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 4), max_size=4), seed=st.integers(0, 99))
def test_any_tensor_comes_back_bit_for_bit(dtype, shape, seed):
    generator = torch.Generator().manual_seed(seed)
    tensor = (torch.randn(shape, generator=generator) * 9).to(dtype)
    back = unpack(pack({"x": tensor}), {"x": torch.empty_like(tensor)})["x"]
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_orders_and_reports_come_back_equal():
    order, weights = read_order(order_records(ORDER, STATE))
    assert order == ORDER
    assert torch.equal(unpack(weights, STATE)["w"], STATE["w"])
    report, weights = read_report(report_records(REPORT, STATE))
    assert report == REPORT
    assert unpack(weights, STATE).keys() == STATE.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cut", "2"),
        ("cut", True),
        ("cut", 2.0),
        ("lr", 1),
        ("client", 5),
        ("ticket", b"x"),
        ("samples", None),
    ],
)
def test_an_order_with_a_value_of_another_type_is_refused_by_name(name, value):
    records = order_records(ORDER, STATE)
    body = {key: held for key, held in records["order"].items() if key != name}
    records["order"] = ConfigRecord(body if value is None else {**body, name: value})
    with pytest.raises(WireError, match=name):
        read_order(records)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_seconds_that_make_no_sense_are_refused(value):
    records = report_records(REPORT, STATE)
    records["seconds"] = ConfigRecord({**records["seconds"], "session": value})
    with pytest.raises(WireError, match="session"):
        read_report(records)


def test_seconds_of_unknown_phases_are_refused():
    records = report_records(REPORT, STATE)
    records["seconds"] = ConfigRecord({**records["seconds"], "coffee": 1.0})
    with pytest.raises(WireError, match="coffee"):
        read_report(records)
    with pytest.raises(WireError, match="report"):
        read_report(RecordDict({}))
