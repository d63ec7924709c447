"""`cutwater jobs`, as people and programs see it."""

import json
import sys

import pytest
from plan_cases import network_like

from cutwater.cli.main import main
from cutwater.plan.exact import exact
from cutwater.plan.value import Plan
from cutwater.scenario.file import load_scenario

PHONES = """
profile = "profile.json"
[server]
compute = "1 GFLOPS"
[session]
epochs = 2
[[client]]
name = "slow"
compute = "10 GFLOPS"
rate = "20 MB/s"
samples = 3000
[[client]]
name = "far"
compute = "30 GFLOPS"
rate = "1 MB/s"
samples = 900
"""
JOBS = """
objective = "slowest"
[server]
compute = "300 GFLOPS"
[[job]]
name = "phones"
scenario = "phones.toml"
[[job]]
weight = 2
profile = "profile.json"
[job.session]
epochs = 3
[job.fleet]
clients = 3
seed = 1
compute = "20 GFLOPS"
rate = "10 MB/s"
samples = 2000
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    (tmp_path / "profile.json").write_text(json.dumps(network_like(8).to_json()))
    (tmp_path / "phones.toml").write_text(PHONES)

    def run(*arguments, change=("", ""), command="jobs"):
        path = tmp_path / "jobs.toml"
        path.write_text(JOBS.replace(*change))
        monkeypatch.setattr(sys, "argv", ["cutwater", command, *arguments, str(path)])
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        return exit_.value.code or 0, printed.out, printed.err

    return run


def test_the_table_names_every_job_and_says_how_good_that_is(run):
    code, out, err = run()
    assert (code, err) == (0, "")
    for word in ("phones", "job2", "Slowdown", "The largest weighted round time is", "no plan has a smaller"):
        assert word in out


def test_json_has_every_job_with_the_plan_of_its_clients(run, tmp_path):
    code, out, _ = run("--json", "--objective", "sum", "--out", str(tmp_path / "kept.json"))
    data = json.loads(out)
    assert code == 0
    assert data == json.loads((tmp_path / "kept.json").read_text())
    assert (data["format"], data["objective"]) == ("cutwater.jobs", "sum")
    assert data["lower_bound"] <= data["value"]
    assert sum(job["part"] for job in data["jobs"]) <= data["server_compute"] * (1 + 1e-9)
    for job in data["jobs"]:
        plan = Plan.from_json(job["plan"])
        assert plan.latency == job["latency"]
        assert plan.server_compute == job["part"]
        assert job["slowdown"] >= 1 - 1e-9
        assert job["marginal_seconds_per_flops"] >= 0
    alone = load_scenario(tmp_path / "phones.toml").problem()
    assert data["jobs"][0]["plan"]["clients"][0]["name"] == alone.fleet.names[0]


def test_each_jobs_scenario_is_written_with_its_part_of_the_server(run, tmp_path):
    code, out, err = run("--json", "--out-dir", str(tmp_path / "deployed" / "here"))
    assert code == 0
    for job in json.loads(out)["jobs"]:
        path = tmp_path / "deployed" / "here" / f"{job['name']}.toml"
        assert f"{path.name} is written" in err
        problem = load_scenario(path).problem()  # the profile is found from there, too
        assert problem.server.compute == job["part"]
        plan = exact(problem)
        assert plan.latency == pytest.approx(job["latency"], rel=1e-12)
        assert plan.shares.tolist() == [client["share"] for client in job["plan"]["clients"]]
    odd = ("weight = 2", 'name = "job/2"')
    code, _, _ = run("--out-dir", str(tmp_path / "odd"), change=odd)
    assert code == 0
    assert (tmp_path / "odd" / "job-2.toml").exists()
    alike = JOBS.replace(*odd).replace('name = "phones"', 'name = "job-2"')
    code, _, err = run("--out-dir", str(tmp_path / "twice"), change=(JOBS, alike))
    assert code == 2
    assert "two jobs would be written to" in err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"slowest"', '"fair"'), "objective is 'fair': known are slowdown, slowest, sum"),
        (("weight = 2", "weight = 0"), "[[job]] 'job2' weight is 0, but must be"),
        (('scenario = "phones.toml"', 'scenario = "none.toml"'), "none.toml can't be read"),
        (('scenario = "phones.toml"', ""), "[[job]] 'phones' has none of profile, [model]"),
        (("weight = 2", "[job.server]\ncompute = '1 GFLOPS'"), "has a [server] of its own"),
        (("weight = 2", 'name = "phones"'), "two jobs are called 'phones'"),
        (
            ('scenario = "phones.toml"', 'scenario = "phones.toml"\nprofile = "profile.json"'),
            "has scenario and profile: give a file or its sections, not both",
        ),
        (("[job.session]", "[job.sesion]"), "[[job]] 'job2' has an unknown key 'sesion'"),
        (("weight = 2", "weigt = 2"), "has an unknown key 'weigt'"),
    ],
)
def test_a_mistake_is_one_sentence(run, change, told):
    code, out, err = run(change=change)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_file_with_jobs_is_told_from_a_scenario_and_checked(run):
    code, _, err = run(command="plan")
    assert code == 2
    assert "each a scenario: plan them with cutwater jobs" in err
    assert run("--check", command="scenario")[0] == 0
    assert run("--check", command="scenario", change=("weight = 2", "weight = -1"))[0] == 2
