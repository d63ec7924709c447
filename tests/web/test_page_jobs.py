"""Jobs on the page, and what a round of some time takes: the numbers of the commands."""

import json

import pytest
from running import SCENARIO
from test_page_state import BODY, CATALOGUE
from typer.testing import CliRunner

from cutwater.base.errors import CutwaterError
from cutwater.cli.main import app
from cutwater.plan.exact import exact
from cutwater.plan.jobs import OBJECTIVES
from cutwater.web.answers import size_answer
from cutwater.web.files import export_jobs, export_toml, from_toml
from cutwater.web.jobs import MOST_JOBS, jobs_answer, read_jobs_asked
from cutwater.web.state import read_asked

OTHER = from_toml(SCENARIO, CATALOGUE)
JOBS = {
    "server": "0.3 GFLOPS",
    "objective": "slowdown",
    "jobs": [
        {
            "name": "phones",
            "weight": 2,
            "scenario": {key: BODY[key] for key in ("model", "session", "fleet")},
        },
        {"name": "cameras", "weight": 1, "scenario": OTHER | {"rates": 0.5}},
    ],
}


def told(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_jobs_of_a_page_have_the_numbers_of_the_command(tmp_path, objective):
    asked = read_jobs_asked(JOBS | {"objective": objective}, CATALOGUE)
    answer = jobs_answer(asked)
    (tmp_path / "jobs.toml").write_text(export_jobs(asked, CATALOGUE))
    printed = told("jobs", tmp_path / "jobs.toml")
    for key in ("objective", "value", "lower_bound", "server_compute"):
        assert answer[key] == printed[key]
    for row, job in zip(answer["jobs"], printed["jobs"], strict=True):
        plan = job.pop("plan")
        cuts = [client["cut"] for client in plan["clients"]]
        assert row == job | {"clients": len(cuts), "split": sum(cut < plan["layers"] for cut in cuts)}
    assert sum(row["part"] for row in answer["jobs"]) <= 0.3e9 * (1 + 1e-12)


def test_an_exported_file_of_jobs_opens_again():
    content = export_jobs(read_jobs_asked(JOBS, CATALOGUE), CATALOGUE)
    page = from_toml(content, CATALOGUE)
    assert [(job["name"], job["weight"]) for job in page["jobs"]] == [("phones", 2), ("cameras", 1)]
    assert page["objective"] == "slowdown"
    body = {key: page[key] for key in ("server", "objective", "jobs")}
    assert jobs_answer(read_jobs_asked(body, CATALOGUE)) == jobs_answer(read_jobs_asked(JOBS, CATALOGUE))
    scenario = {key: value for key, value in page.items() if key not in ("jobs", "objective")}
    first = read_asked(scenario, CATALOGUE)
    assert first.problem.fleet.names == read_asked(BODY, CATALOGUE).problem.fleet.names
    assert "[job.model]" in content


def job(**change):
    return JOBS | {"jobs": [JOBS["jobs"][0] | change]}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (job(weight=0), "weight is 0, but must be"),
        (job(weight="much"), "weight is 'much'"),
        (job(name=""), "name is ''"),
        (job(scenario={}), "the scenario lacks"),
        (job(scenario=BODY | {"model": {"name": "os:system"}}), "is not one that this page may run"),
        (job(scenario=BODY | {"uplink": {"capacity": "1 MB/s"}}), "shares links"),
        (JOBS | {"jobs": []}, "the jobs jobs is [], but must be a list of at least 1"),
        (JOBS | {"jobs": [JOBS["jobs"][0]] * 2}, "two jobs are called 'phones'"),
        (JOBS | {"jobs": [JOBS["jobs"][0]] * (MOST_JOBS + 1)}, "at most: use cutwater jobs"),
        (JOBS | {"objective": "best"}, "objective is 'best'"),
        ([], "the jobs is [], but must be a table"),
    ],
)
def test_bad_jobs_are_refused_in_one_sentence(body, sentence):
    with pytest.raises(CutwaterError) as raised:
        jobs_answer(read_jobs_asked(body, CATALOGUE))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('scenario = "/etc/passwd"', "a job is the scenario file '/etc/passwd', which a page does not read"),
        ('clients = "/etc/passwd"', "takes its clients from '/etc/passwd', which a page does not read"),
        ('profile = "../p.json"', "there is no saved profile '../p.json'"),
        ('model = { name = "os:system" }', "is not one that this page may run"),
        ("fleet = { clients = 5000000 }", "a page shows 100,000 at most"),
    ],
)
def test_a_job_of_an_uploaded_file_names_no_file_and_no_code(row, sentence):
    with pytest.raises(CutwaterError) as raised:
        from_toml(f'[server]\ncompute = "1 GFLOPS"\n[[job]]\n{row}\n', CATALOGUE)
    assert sentence in str(raised.value)


SHARED = {"uplink": {"capacity": "1 MB/s"}}
PRICES = {"compute": "0.02 EUR / GFLOPS / h", "link": "0.5 EUR / MB/s / h"}


@pytest.mark.parametrize("factor", [0.4, 0.9, 1.5])
@pytest.mark.parametrize("prices", [{}, PRICES])
@pytest.mark.parametrize("links", [{}, SHARED])
def test_what_a_round_takes_is_what_the_command_says(tmp_path, factor, prices, links):
    body = OTHER | links | ({"prices": prices} if prices else {})
    asked = read_asked(body, CATALOGUE)
    seconds = asked.plan.latency * factor
    (tmp_path / "page.toml").write_text(export_toml(asked, CATALOGUE))
    command = ["size", str(tmp_path / "page.toml"), "--round", f"{seconds!r} s", "--json"]
    done = CliRunner().invoke(app, command)
    if done.exit_code:
        with pytest.raises(CutwaterError) as raised:
            size_answer(asked, f"{seconds!r} s")
        assert str(raised.value) == str(done.exception)
        return
    printed, answer = json.loads(done.stdout), size_answer(asked, f"{seconds!r} s")
    assert (answer["infeasible"], answer["money"]) == (printed["infeasible"], printed["money"])
    if printed["server"]:
        for key in ("compute", "at_least", "cost"):
            assert answer["server"][key] == printed["server"][key]
    if links or not prices:
        assert answer["cheapest"] is None
        return
    mix = answer["cheapest"]
    assert {one["name"]: one["more"] for one in mix["links"]} == printed["cheapest"]["links"]
    assert (mix["compute"], mix["cost"]) == (printed["cheapest"]["compute"], printed["cheapest"]["cost"])
    used = read_asked(body | {"server": mix["text"], "fleet": {"csv": mix["csv"]}}, CATALOGUE)
    assert exact(used.problem).latency <= seconds * (1 + 1e-9)
