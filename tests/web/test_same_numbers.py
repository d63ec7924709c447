"""One folder, one set of numbers: `runs`, `audit`, `report`, `train` and the pages show the same."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest
from run_folders import write_run
from running import SCENARIO, start
from test_client_answers import decoded
from typer.testing import CliRunner

from cutwater.cli.main import app
from cutwater.cli.rounds import plan_error_text
from cutwater.plan.latency import latency_alone
from cutwater.plan.timeline import timeline
from cutwater.runs.reader import read_run
from cutwater.runs.summary import summary
from cutwater.web.answers import compare, plan_answer
from cutwater.web.catalogue import Catalogue
from cutwater.web.files import from_toml
from cutwater.web.state import read_asked
from cutwater.web.step import client_data

ASSETS = Path(__file__).parents[2] / "src" / "cutwater"


def asked(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Two runs with a failed round each, and one of them with a client that was lost."""
    folder = tmp_path_factory.mktemp("made")
    write_run(folder / "split", rounds=5, measured=True)
    write_run(folder / "whole", rounds=4, planner="fedavg", seed=2)
    return folder


def test_every_command_and_page_shows_the_same_numbers_of_a_run(made):
    runs = {Path(row["run"]).name: row for row in asked("runs", made)["runs"]}
    assert [(row["failed"], row["lost"]) for row in runs.values()] == [(1, 1), (1, 1)]
    report = asked("report", made / "split", made / "whole")
    audits = {name: asked("audit", made / name) for name in runs}
    for server in start(made, "--runs", str(made)):
        listed = {row["name"]: row for row in json.loads(server.get("/api/runs")[2])["runs"]}
        viewed = json.loads(server.get("/api/report?run=split&run=whole")[2])
    assert viewed == report
    for run in report["runs"]:
        name = run["name"]
        numbers = asdict(summary(read_run(made / name).lines))
        audit = audits[name]
        assert numbers["plan_error"]["mean"] > 0
        assert audit["summary"] == numbers
        for row in (runs[name], run["summary"], listed[name]):
            assert {key: row[key] for key in numbers} == numbers
        assert run["summary"]["time_to_target"] == runs[name]["time_to_target"]
        assert run["summary"]["speed_up"] == runs[name]["speed_up"]
        assert run["planner"] == runs[name]["planner"] == listed[name]["planner"]
        assert run["phases"] == audit["phases"]
        deviations = [line["deviation"] for line in run["lines"]]
        assert deviations == [each["deviation"] for each in run["rounds"]]
        assert deviations == [each["deviation"] for each in audit["rounds"]]
        assert deviations.count(None) == numbers["failed"] == 1


def test_the_runs_are_compared_at_the_same_accuracy_everywhere(made):
    target = asked("runs", made)["target"]
    assert target == asked("report", made / "split", made / "whole")["target"]
    assert target["metric"] == "accuracy"
    assert target["value"] > 0.5


def test_the_audit_ends_with_the_error_of_the_plan_that_the_summary_has(made):
    error = summary(read_run(made / "split").lines).plan_error
    shown = CliRunner().invoke(app, ["audit", str(made / "split")]).output
    assert f"All rounds: {plan_error_text(error)}." in shown


BAND = '\n[uplink]\ncapacity = "0.6 MB/s"\n[downlink]\ncapacity = "2 MB/s"\n'


def test_where_lines_are_shared_the_page_says_what_the_command_plans_and_one_fedavg(tmp_path):
    file = tmp_path / "band.toml"
    file.write_text(SCENARIO + BAND)
    catalogue = Catalogue()
    question = read_asked(from_toml(file.read_text(), catalogue), catalogue)
    head, columns = decoded(plan_answer(question))
    planned = asked("plan", file)
    for key in ("rate_up", "rate_down", "share", "alone", "cut"):
        assert columns[key].tolist() == [client[key] for client in planned["clients"]], key
    assert head["band"]["up"] == 0.6 * 8e6
    assert columns["rate_up"].sum() <= 0.6 * 8e6 * (1 + 1e-12)
    rows = {row["planner"]: row["latency"] for row in compare(question.problem)}
    whole = asked("plan", file, "--planner", "fedavg")["latency"]
    assert head["fedavg"] == pytest.approx(rows["fedavg"], rel=1e-12) == pytest.approx(whole, rel=1e-12)
    assert head["fedavg"] > 1.2 * latency_alone(question.problem).max(), "as though nobody shared"
    name = question.shown
    step = client_data(question.problem, question.plan, name)["step"]
    at_rates = question.problem.at_rates(*question.plan.rates)
    assert step["seconds"] == timeline(at_rates, question.plan, name).seconds
    assert step["seconds"] > timeline(question.problem, question.plan, name).seconds


def test_no_page_computes_how_far_a_plan_was_off_or_when_an_accuracy_was_reached():
    scripts = [*ASSETS.glob("report/assets/report*.js"), ASSETS / "web" / "assets" / "runs.js"]
    assert len(scripts) == 4
    for script in scripts:
        content = script.read_text()
        assert not re.search(r"(actual|planned|measured)(_seconds)?\s*/", content), script.name
        assert not re.search(r"accuracy\s*>=", content), script.name


@pytest.mark.parametrize("command", ["runs", "audit", "report"])
def test_damage_is_told_and_no_command_falls_over_it(made, tmp_path, command):
    folder = write_run(tmp_path / "run", rounds=2)
    evil = "\x1b[2J"
    file = folder / "rounds" / "00002.json"
    body = json.loads(file.read_text())
    body["clients"][0]["name"] = evil
    body["clients"][1]["actual"]["smashed_upload"] = "soon"
    file.write_text(json.dumps(body))
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"round": 3, "accuracy": NaN}\nnonsense\n')
    (folder / "measured" / "00001.json").mkdir(parents=True)
    done = CliRunner().invoke(app, [command, str(folder)])
    assert done.exit_code == 0, done.output
    assert "\x1b[2J" not in done.output
    if command != "report":
        assert "line 3 of metrics.jsonl is left out" in done.stderr
    notes = [*asked("report", folder)["runs"][0]["notes"]]
    for words in ("line 3 of metrics", "line 4 of metrics", "smashed_upload", "measured/00001.json"):
        assert any(words in note for note in notes)
