"""Run reports: the numbers of the run folder, whatever state it is in, in a file that fetches nothing."""

import base64
import hashlib
import json
import re
import shutil
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_folders import a_row, coded_problem, small_problem, write_run
from typer.testing import CliRunner

from cutwater.base.errors import RunError
from cutwater.base.jsonfile import document
from cutwater.cli.main import app
from cutwater.plan.latency import PHASES, whole_model_latency
from cutwater.report import run_report
from cutwater.report.figures import PHASE_COLOURS
from cutwater.report.html import asset, embed, escape, fill, report_html
from cutwater.report.run_report import list_entry, report_data
from cutwater.runs.confined import Folder
from cutwater.runs.reader import stamp


def run_data(name, folder):
    return report_data([(name, folder)])["runs"][0]


def read_lines(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_real_run_is_shown_number_for_number(real_run):
    data = run_data("real", Folder(real_run))
    lines = read_lines(real_run)
    for key in (
        "round",
        "accuracy",
        "loss",
        "virtual_seconds",
        "bytes_up",
        "planned_seconds",
        "actual_seconds",
    ):
        assert [line[key] for line in data["lines"]] == [line[key] for line in lines]
    assert [round_["round"] for round_ in data["rounds"]] == [line["round"] for line in lines]
    assert len(data["losses"]) == sum(len(line["lost"]) for line in lines)
    assert data["scenario"] == (real_run / "scenario.toml").read_text()
    assert data["info"]["planner"] == "exact"
    assert data["info"]["versions"]["torch"]
    assert data["model"] == "mlp"
    assert data["notes"] == []


def test_the_phases_of_a_real_round_add_up_to_its_seconds(real_run):
    first = json.loads((real_run / "rounds" / "00001.json").read_text())
    shown = run_data("real", Folder(real_run))["rounds"][0]
    for client, row in zip(shown["clients"], first["clients"], strict=True):
        assert sum(client["actual"]) == pytest.approx(row["actual_seconds"], rel=1e-5)
        assert sum(client["planned"]) == pytest.approx(row["planned_seconds"], rel=1e-5)
        assert (client["lost"] is None) == (row["outcome"] == "done")


def test_an_overlapped_session_is_as_long_as_its_seconds_and_not_as_its_busy_times(tmp_path):
    run = write_run(tmp_path / "run", rounds=3, problem=coded_problem())
    data = run_data("coded", Folder(run))
    clients = [client for each in data["rounds"] for client in each["clients"]]
    assert any(client["actual_overlap"] > 0 for client in clients)
    for client in clients:
        for kind in ("actual", "planned"):
            busy, overlap = sum(client[kind]), client[f"{kind}_overlap"]
            assert busy - overlap == pytest.approx(client[f"{kind}_seconds"], rel=1e-4)
    totals = {row["phase"]: row for row in [*data["phases"], *data["overlap"]]}
    for kind in ("actual", "planned"):
        phases = sum(totals[phase][kind] for phase in PHASES)
        assert phases - totals["overlap"][kind] == pytest.approx(totals["total"][kind])
    assert totals["round_trips"]["actual"] > 0


def test_a_lossy_run_is_called_so_and_no_other(tmp_path):
    lossy = run_data("a", Folder(write_run(tmp_path / "a", rounds=1, problem=coded_problem())))
    assert lossy["lossy"].startswith(
        "This run is lossy: smashed data crossed the cut as int8 (lossy), so that"
    )
    assert lossy["wires"] == ["overlapped; int8 (lossy) up, fp32 down"]
    assert "overlapped; int8 (lossy) up, fp32 down" in lossy["crossing"]
    for up in ("fp32", "lossless"):
        run = write_run(tmp_path / up, rounds=1, problem=coded_problem(up, "in turn"))
        data = run_data(up, Folder(run))
        assert data["lossy"] is None
        assert data["wires"] == [f"in turn; {up} up, fp32 down"]
    whole = run_data("b", Folder(write_run(tmp_path / "b", planner="fedavg", problem=coded_problem())))
    assert (whole["lossy"], whole["crossing"], whole["wires"]) == (None, None, [])


def test_someones_own_codec_may_be_lossy_and_is_not_loaded_to_tell(tmp_path):
    run = write_run(tmp_path / "run", rounds=1)
    for file in (run / "rounds").iterdir():
        body = json.loads(file.read_text())
        for client in body["clients"]:
            client["up"] = "antigravity:geohash"
        file.write_text(json.dumps(body))
    data = run_data("own", Folder(run))
    assert data["lossy"].startswith(
        "This run may be lossy: smashed data crossed the cut as antigravity:geohash"
    )
    assert "antigravity" not in sys.modules


def test_a_run_from_before_there_were_codecs_and_overlap_is_shown_as_it_was(tmp_path):
    run = write_run(tmp_path / "run", rounds=2)
    whole = run_data("run", Folder(run))
    for file in (run / "rounds").iterdir():
        body = json.loads(file.read_text())
        for client in body["clients"]:
            for key in ("schedule", "up", "down"):
                del client[key]
            for kind in ("planned", "actual"):
                for key in ("round_trips", "overlap"):
                    del client[kind][key]
        file.write_text(json.dumps(body))
    old = run_data("run", Folder(run))
    assert old == whole
    assert old["lossy"] is None
    assert old["overlap"] == []


def test_what_a_client_would_take_alone_follows_from_its_phases(tmp_path):
    shown = run_data("made up", Folder(write_run(tmp_path / "run", rounds=1)))["rounds"][0]
    alone = [client["alone"] for client in shown["clients"]]
    np.testing.assert_allclose(alone, whole_model_latency(small_problem()), rtol=1e-5)
    assert any(client["share"] > 0 for client in shown["clients"])


def test_totals_by_phase_leave_out_those_who_were_lost(tmp_path):
    data = run_data("made up", Folder(write_run(tmp_path / "run", rounds=3)))
    made_it = [c for r in data["rounds"] for c in r["clients"] if c["lost"] is None and not r["failed"]]
    assert len(made_it) < sum(len(r["clients"]) for r in data["rounds"])
    for place, row in enumerate(data["phases"]):
        assert row["phase"] == PHASES[place]
        assert row["actual"] == pytest.approx(sum(client["actual"][place] for client in made_it))


def test_delivered_shares_are_shown_where_they_are_measured(tmp_path):
    for measured in (True, False):
        run = write_run(tmp_path / str(measured), rounds=1, measured=measured)
        clients = run_data("run", Folder(run))["rounds"][0]["clients"]
        assert any(client["delivered"] for client in clients) == measured


def test_a_run_that_has_just_begun_opens(tmp_path):
    (tmp_path / "run.json").write_text('{"format": "cutwater.run", "version": 1, "planner": "exact"}')
    data = run_data("new", Folder(tmp_path))
    assert data["lines"] == data["rounds"] == data["phases"] == []
    assert list_entry("new", Folder(tmp_path))["rounds"] == 0


def test_a_run_that_was_cut_off_in_the_middle_of_a_line_opens(real_run, tmp_path):
    run = shutil.copytree(real_run, tmp_path / "run")
    content = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(content[:-20])
    assert len(run_data("cut", Folder(run))["lines"]) == len(read_lines(real_run)) - 1


def test_missing_files_are_noted_and_the_rest_is_shown(real_run, tmp_path):
    run = shutil.copytree(real_run, tmp_path / "run")
    for name in ("run.json", "profile.json", "scenario.toml"):
        (run / name).unlink()
    shutil.rmtree(run / "plans")
    data = run_data("bare", Folder(run))
    assert data["notes"] == ["run.json is missing"]
    assert data["scenario"] is None
    assert len(data["rounds"]) == len(data["lines"])
    whole = run_data("whole", Folder(real_run))
    assert [each["clients"] for each in data["rounds"]] == [each["clients"] for each in whole["rounds"]]


def test_a_long_run_is_thinned_to_its_budget_and_keeps_the_last_round(tmp_path, monkeypatch):
    monkeypatch.setattr(run_report, "MOST_SESSIONS", 20)
    data = run_data("long", Folder(write_run(tmp_path / "run", rounds=10)))
    shown = [round_["round"] for round_ in data["rounds"]]
    assert len(shown) * 6 <= 20 + 6
    assert shown[-1] == 10
    assert data["notes"] == [f"{len(shown)} of 10 rounds are shown client by client"]
    assert len(data["lines"]) == 10


def test_a_folder_without_a_run_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(RunError, match="holds no run"):
        run_data("empty", Folder(tmp_path))


def test_the_stamp_changes_with_every_round_and_only_then(tmp_path):
    run = write_run(tmp_path / "run", rounds=2)
    before = stamp(Folder(run))
    assert stamp(Folder(run)) == before
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"round": 3}\n')
    assert stamp(Folder(run)) != before


def test_a_run_that_can_not_be_read_does_not_keep_the_others_from_being_listed(tmp_path):
    run = write_run(tmp_path / "run", rounds=1)
    (run / "metrics.jsonl").rename(tmp_path / "elsewhere")
    (run / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    assert list_entry("run", Folder(run))["rounds"] == 0
    with pytest.raises(RunError, match="can't be read"):
        run_data("run", Folder(run))


@pytest.mark.parametrize("number", [10**400, -(10**400), float("nan"), float("inf")])
def test_a_line_with_a_number_that_no_float_holds_is_left_out_and_named(tmp_path, number):
    run = write_run(tmp_path / "run", rounds=1)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(a_row(2, accuracy=number)) + "\n")
    data = run_data("run", Folder(run))
    assert [line["round"] for line in data["lines"]] == [1]
    assert len(data["notes"]) == 1
    assert data["notes"][0].startswith("line 2 of metrics.jsonl is left out: the line accuracy is ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["name", "cut", "share", "planned", "actual", "outcome", "mode", "delivered_share"])
clients = st.lists(st.dictionaries(names, json_values, max_size=8) | json_values, max_size=3)


@settings(deadline=None, max_examples=80)
@given(
    json_values,
    json_values,
    clients,
    st.dictionaries(st.sampled_from(["lost", "clients", "loss"]), json_values),
)
def test_whatever_a_run_folder_holds_its_report_is_json(tmp_path_factory, info, profile, rows, line):
    run = tmp_path_factory.mktemp("junk")
    (run / "rounds").mkdir()
    (run / "run.json").write_text(json.dumps(info))
    (run / "profile.json").write_text(json.dumps(profile))
    told = {"planner": "exact", "planned_seconds": 1.0, "actual_seconds": 2.0, "failed": None}
    whole = {"name": "c1", "cut": 1, "mode": "split", "outcome": "done", "share": 1.0}
    phases = {"planned": dict.fromkeys(PHASES, 1.0), "actual": dict.fromkeys(PHASES, 1.0)}
    clients = [{**whole, **phases, **row} if isinstance(row, dict) else row for row in rows]
    junk = document("cutwater.round", 1, {**told, "clients": clients})
    (run / "rounds" / "00001.json").write_text(json.dumps(junk))
    (run / "metrics.jsonl").write_text(json.dumps({**a_row(1), **line}) + "\n")
    json.dumps(report_data([("junk", Folder(run))]), allow_nan=False)
    json.dumps(list_entry("junk", Folder(run)), allow_nan=False)


def test_the_file_fetches_nothing_and_its_policy_names_its_own_scripts(real_run):
    page = report_html([("real", Folder(real_run))])
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", page)
    assert "@import" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert "default-src 'none'" in policy
    for tag, kind in (("script", "script-src"), ("style", "style-src")):
        inline = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


@pytest.mark.parametrize(
    "evil", ["</script><script>alert(1)</script>", "<!--<script>", "{{styles}}", "a\u2028b"]
)
def test_no_name_in_a_run_can_break_out_of_the_page(tmp_path, evil):
    run = write_run(tmp_path / "run", rounds=1)
    (run / "scenario.toml").write_text(evil)
    page = report_html([(evil, Folder(run))])
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["runs"][0]["name"] == data["runs"][0]["scenario"] == evil
    assert page.count("<script>") == 1


@settings(deadline=None)
@given(st.text())
def test_embedded_and_escaped_text_comes_back_and_holds_no_markup(text):
    assert json.loads(embed({"text": text}))["text"] == text
    assert "<" not in embed(text)
    assert not set('<>"') & set(escape(text))
    assert fill("a{{x}}b{{y}}", x=text, y="") == f"a{text}b"


def test_the_command_writes_one_file_and_says_where(real_run, tmp_path):
    target = tmp_path / "deep" / "report.html"
    done = CliRunner().invoke(app, ["report", str(real_run), "--out", str(target)])
    assert done.exit_code == 0
    assert str(target) in done.output.replace("\n", "")
    assert target.read_text().startswith("<!doctype html>")
    assert target.stat().st_size < 400_000


def test_the_command_compares_runs_under_names_that_tell_them_apart(real_run, tmp_path):
    other = write_run(tmp_path / "other" / "run", rounds=2, planner="fedavg")
    done = CliRunner().invoke(app, ["report", str(real_run), str(other), "--json"])
    runs = json.loads(done.output)["runs"]
    assert [run["name"] for run in runs] == [f"{real_run.parent.name}/run", "other/run"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["nowhere"], "nowhere is no folder"), (["."], "holds no run"), ([".", "."], "is named twice")],
)
def test_a_mistake_is_one_sentence(tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", *arguments])
    assert sentence in str(done.exception)


def test_a_phase_has_the_same_colour_on_pages_as_in_figures():
    for phase in PHASES:
        assert f"--{phase.replace('_', '-')}:{PHASE_COLOURS[phase]};" in asset("phases.css")
