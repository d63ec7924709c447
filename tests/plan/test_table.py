"""A plan as columns: CSV, Parquet and JSON say what the plan does."""

import csv
import io
import json

import numpy as np
import pytest
from plan_cases import network_like, random_problem, shared_problem
from wire_cases import random_wire_problem

from cutwater.plan import table
from cutwater.plan.busy import Busy
from cutwater.plan.exact import exact
from cutwater.plan.value import Plan


@pytest.fixture(params=["in turn", "overlapped", "shared"], scope="module")
def plan(request):
    if request.param == "shared":
        return exact(shared_problem(0, 5))
    if request.param == "overlapped":
        return exact(random_wire_problem(np.random.default_rng(3), 4))
    problem = random_problem(np.random.default_rng(3), network_like(), 7, limits=True)
    names = ["=1+1", "a,b", 'say "hi"', "plain", "ä ö", "x\ny", "-z"]
    return exact(problem.replace(clients=problem.fleet.replace(names=names)))


def test_columns_are_written_as_python_writes_numbers_whether_many_are_alike_or_none():
    rng = np.random.default_rng(0)
    for values in (
        rng.random(3000) * 1e12,
        np.where(rng.random(3000) < 0.6, 0.0, rng.random(3000)),
        rng.integers(0, 5, 3000),
        np.arange(3000),
        np.array([0.0, 1e300, np.inf]),
    ):
        assert table._numbers(values, table._all_digits) == list(map(repr, values.tolist()))
        assert table._numbers(values, table._fourteen_digits) == [f"{each:.14g}" for each in values.tolist()]


@pytest.mark.parametrize("odd", ["=1", "-a", "@b", "+c", "\td", "e,f", 'g"h', "i\nj", "k\rl"])
def test_one_odd_name_among_many_is_seen(odd):
    names = ["plain", "also-plain", odd, "c=d"]
    assert table._csv_cells(names) == [table._csv_text(name) for name in names]
    assert table._csv_cells(names)[2] != odd


def test_the_json_in_pieces_is_the_document(plan, monkeypatch):
    monkeypatch.setattr(table, "PIECE", 3)
    found = json.loads(b"".join(table.json_pieces(plan)))
    assert found == plan.to_json()
    more = json.loads(b"".join(table.json_pieces(plan, {"knee": {"compute": 1.0}})))
    assert Plan.from_json(more) == plan


def test_a_row_of_the_csv_is_a_client(plan, monkeypatch):
    monkeypatch.setattr(table, "PIECE", 2)
    text = b"".join(table.csv_pieces(plan)).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == len(plan)

    def told(row, key):
        assert len(row[key].partition("e")[0].replace(".", "").strip("-0")) <= 14
        return float(row[key])

    for row, client in zip(rows, plan.clients, strict=True):
        assert row["name"].removeprefix("'") == client.name
        assert not row["name"].startswith(("=", "-"))
        assert int(row["cut"]) == client.cut
        assert told(row, "share_flops") == pytest.approx(client.share, rel=1e-13)
        assert (row["mode"], row["up"]) == (client.mode, client.up if client.mode == "split" else "")
        assert row["waits_for"] == Busy.of(client.phases).waits_for
        assert told(row, "latency_seconds") == pytest.approx(client.latency, rel=1e-13)
        assert ("rate_up_bits_per_second" in row) == (client.rate_up is not None)
        if client.rate_up is not None:
            assert told(row, "rate_up_bits_per_second") == pytest.approx(client.rate_up, rel=1e-13)
            assert told(row, "rate_down_bits_per_second") == pytest.approx(client.rate_down, rel=1e-13)
        assert told(row, "smashed_upload_seconds") == pytest.approx(client.phases.smashed_upload, rel=1e-13)


def test_parquet_holds_the_same_columns(plan, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table.write_plan(tmp_path / "plan.parquet", plan)
    found = parquet.read_table(tmp_path / "plan.parquet").to_pydict()
    assert found["name"] == list(plan.names)
    assert found["share_flops"] == plan.shares.tolist()
    assert list(found) == list(table.spreadsheet(plan))
