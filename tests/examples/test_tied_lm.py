"""GPT-2 with tied weights in three parts: planned with pairs of cuts, verified, trained."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="TRANSFORMERS IS MISSING: the tied example is not tested")

from test_regression import cutwater

SCENARIO = Path(__file__).parents[2] / "examples" / "tied_lm.toml"
__all__ = ["cutwater"]


def test_a_tied_language_model_is_planned_and_verified_in_three_parts(cutwater, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = json.loads(cutwater("plan", SCENARIO, "--json")[0])
    cut = {client["name"]: (client["cut"], client["second_cut"]) for client in plan["clients"]}
    assert 0 < cut["watch"][0] < cut["watch"][1] < plan["layers"]
    assert cut["laptop"] == (plan["layers"], 0)
    shown, _ = cutwater("plan", SCENARIO)
    assert f"{cut['watch'][0]}-{cut['watch'][1]}" in shown
    found = json.loads(cutwater("verify", SCENARIO, "--rounds", 1, "--workers", 1, "--json")[0])
    assert found["agrees"]
    assert len(set(found["rounds"][0]["weights_sha256"].values())) == 1
    assert "random cuts, over the stream" in found["rounds"][0]["cuts"]
