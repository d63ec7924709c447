"""Scenario files: what they say, and how mistakes in them are named."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cutwater.base.errors import (
    CutwaterError,
    FileFormatError,
    ModelError,
    PlanError,
    ScenarioError,
    UnitError,
)
from cutwater.federate.from_scenario import condition_settings, data_settings
from cutwater.profile.options import RESERVED
from cutwater.profile.values import Cut, Profile
from cutwater.scenario.file import load_scenario
from cutwater.scenario.jobs import load_jobs

HEAD = """
profile = "profile.json"
[server]
compute = "3000 GFLOPS"
[session]
epochs = 20
batch_size = 32
"""
CLIENT = """
[[client]]
name = "c1"
compute = "100 GFLOPS"
rate = "4 MB/s"
samples = 3396
min_cut = 1
"""

UNREADABLE = (
    "rounds = " + "[" * 5000 + "]" * 5000,
    "rounds = " + "{a = " * 5000 + "1" + "}" * 5000,
    ".".join(["a"] * 5000) + " = 1",
    "rounds = " + "9" * 5000,
    "rounds = 0x" + "f" * 5000,
)


def tiny_profile(layers=4):
    cuts = tuple(
        Cut(
            l,
            f"layer{l}",
            "body",
            1000 * l,
            1e6 * l,
            2e6 * l,
            1e6 * (layers - l),
            2e6 * (layers - l),
            800,
            800,
            9000 * l,
        )
        for l in range(1, layers + 1)  # noqa: E741
    )
    return Profile("tiny", "1x8x8", 10, "exact", 2.0, 32, "sgd", cuts)


@pytest.fixture
def scenario(tmp_path):
    """Write a scenario beside a small saved profile, and read it."""
    (tmp_path / "profile.json").write_text(json.dumps(tiny_profile().to_json()))

    def load(text: str, **files: str):
        for name, content in files.items():
            (tmp_path / name.replace("_csv", ".csv")).write_text(content)
        path = tmp_path / "scenario.toml"
        path.write_text(text)
        return load_scenario(path)

    return load


def test_a_listed_client_is_read_with_its_units(scenario):
    found = scenario(HEAD + CLIENT)
    client = found.fleet[0]
    assert (client.name, client.compute, client.up, client.down, client.samples) == (
        "c1",
        1e11,
        3.2e7,
        3.2e7,
        3396,
    )
    assert found.server.compute == 3e12
    assert (found.session.epochs, found.session.batch_size) == (20, 32)
    assert found.problem().work == [20 * 3396]


def test_labels_stay_for_all_or_for_one(scenario):
    stays = HEAD + 'labels = "stay"\n' + CLIENT
    assert scenario(stays).problem().stay.tolist() == [True]
    assert scenario(stays + 'labels = "go"\n').problem().stay.tolist() == [False]
    assert scenario(HEAD + CLIENT + 'labels = "stay"\n').fleet[0].labels == "stay"
    table = "compute,rate,samples,labels\n9 GFLOPS,1 MB/s,5,stay\n9 GFLOPS,1 MB/s,5,\n"
    listed = scenario('clients = "fleet.csv"\n' + HEAD, fleet_csv=table)
    assert listed.problem().stay.tolist() == [True, False]
    with pytest.raises(CutwaterError, match="labels is 'home': known are go, stay"):
        scenario(HEAD + CLIENT + 'labels = "home"\n')


def test_every_key_of_a_client_is_read(scenario):
    text = """
[[client]]
compute = "1.5 TFLOPS"
up = "8 Mbit/s"
down = "2 MB/s"
samples = 10
steps = 7
batch_size = 16
min_cut = 2
memory = "1 MB"
forbidden = [3]
"""
    client = scenario(HEAD + text).fleet[0]
    assert client.name == "c1"
    assert (client.compute, client.up, client.down) == (1.5e12, 8e6, 16e6)
    assert (client.steps, client.batch_size, client.min_cut, client.memory) == (7, 16, 2, 8e6)
    assert client.forbidden == {3}


def test_a_csv_file_is_the_same_as_listing(scenario):
    rows = "name,compute,up,down,samples,steps,min_cut,memory,forbidden\n"
    rows += "a,100 GFLOPS,4 MB/s,8 MB/s,3396,,,,\n" + "b,50 GFLOPS,1 MB/s,1 MB/s,20,5,2,1 MB,3 4\n"
    found = scenario('clients = "fleet.csv"\n' + HEAD, fleet_csv=rows)
    listed = """
[[client]]
name = "a"
compute = "100 GFLOPS"
up = "4 MB/s"
down = "8 MB/s"
samples = 3396
[[client]]
name = "b"
compute = "50 GFLOPS"
rate = "1 MB/s"
samples = 20
steps = 5
min_cut = 2
memory = "1 MB"
forbidden = [3, 4]
"""
    assert list(found.fleet) == list(scenario(HEAD + listed).fleet)


def test_a_session_may_be_counted_in_steps(scenario):
    text = HEAD.replace("epochs = 20", "steps = 5")
    assert scenario(text + CLIENT).problem().work == [5 * 32]


def test_a_server_may_have_nothing_to_share(scenario):
    assert scenario(HEAD.replace("3000 GFLOPS", "0 GFLOPS") + CLIENT).server.compute == 0


def test_sections_for_training_are_kept_and_not_read(scenario):
    text = HEAD + CLIENT + '[data]\nname = "mnist"\n[train]\nrounds = 3\n[conditions]\nanything = [1, 2]\n'
    found = scenario(text)
    assert found.sections == {
        "data": {"name": "mnist"},
        "train": {"rounds": 3},
        "conditions": {"anything": [1, 2]},
    }
    assert len(found.problem()) == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[server]", "[sever]", r"unknown key 'sever': did you mean 'server'\?"),
        ("[session]", "[extra]\nx = 1\n[session]", "unknown key 'extra'"),
        ("epochs = 20", "epoch = 20", r"\[session\] has an unknown key 'epoch': did you mean 'epochs'"),
        (
            "samples = 3396",
            "sample = 3396",
            "client 'c1' has an unknown key 'sample': did you mean 'samples'",
        ),
        ('compute = "3000 GFLOPS"', 'power = "1 GFLOPS"', r"\[server\] has an unknown key 'power'"),
        ("samples = 3396\n", "", "client 'c1' lacks samples"),
        ('compute = "100 GFLOPS"\n', "", "client 'c1' lacks compute"),
        ('rate = "4 MB/s"\n', "", "client 'c1' has none of rate, up, down: give either rate, or up and down"),
        ('rate = "4 MB/s"', 'up = "4 MB/s"', "client 'c1' has up: give either rate, or up and down"),
        ("samples = 3396", "samples = 0", "client 'c1' samples is 0"),
        ("samples = 3396", "samples = -5", "client 'c1' samples is -5"),
        ("samples = 3396", "samples = nan", "client 'c1' samples is nan"),
        ("samples = 3396", "samples = 1.5", "client 'c1' samples is 1.5"),
        ("samples = 3396", "samples = true", "client 'c1' samples is True"),
        ("min_cut = 1", "min_cut = 0", "client 'c1' min_cut is 0"),
        ("epochs = 20", "epochs = 0", r"\[session\] epochs is 0"),
        ("epochs = 20", "", r"\[session\] has none of epochs, steps: give either epochs, or steps"),
        (
            "epochs = 20",
            "epochs = 20\nsteps = 2",
            r"\[session\] has epochs and steps: give either epochs, or steps",
        ),
        ("batch_size = 32", "batch_size = -1", "batch_size is -1"),
        ("[server]", "[server]\n[server.x]", "unknown key 'x'"),
        ('name = "c1"', "name = 3", "must be text"),
        (
            'profile = "profile.json"',
            "",
            r"has none of profile, \[model\]: give either profile, or \[model\]",
        ),
        (
            "[session]",
            '[model]\nname = "cnn"\n[session]',
            r"has profile and \[model\]: give either profile, or \[model\]",
        ),
        (
            "[session]",
            "[fleet]\nclients = 3\n[session]",
            r"has \[\[client\]\] and \[fleet\]: give either \[\[client\]\], or clients, or \[fleet\]",
        ),
        ("[[client]]", "[client]", r"client is \{.*, but must be tables, each under its own \[\[…\]\]"),
        ("min_cut = 1", "forbidden = 3", "must be a list of cuts"),
        ("min_cut = 1", "forbidden = [0]", "at least 1"),
    ],
)
def test_a_mistake_is_named(scenario, old, new, message):
    with pytest.raises(ScenarioError, match=message):
        scenario((HEAD + CLIENT).replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"100 GFLOPS"', "100", "client 'c1' compute is 100, but must be a number with a unit"),
        ('"100 GFLOPS"', '"100"', "client 'c1' compute is '100'"),
        ('"100 GFLOPS"', '"0 GFLOPS"', "client 'c1' compute is '0 GFLOPS'"),
        ('"100 GFLOPS"', '"-1 GFLOPS"', "client 'c1' compute is '-1 GFLOPS'"),
        ('"100 GFLOPS"', '"nan GFLOPS"', "client 'c1' compute is 'nan GFLOPS'"),
        ('"4 MB/s"', '"4 MB"', "client 'c1' rate is '4 MB'"),
        ('"4 MB/s"', "[4]", r"client 'c1' rate is \[4\]"),
        ("min_cut = 1", "memory = 3", "client 'c1' memory is 3"),
        ('"3000 GFLOPS"', '"-3 GFLOPS"', r"\[server\] compute is '-3 GFLOPS'"),
    ],
)
def test_a_quantity_needs_sense_and_a_unit(scenario, old, new, message):
    with pytest.raises(UnitError, match=message):
        scenario((HEAD + CLIENT).replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("min_cut = 1", "min_cut = 5", "client 'c1' has min_cut 5, but 'tiny' has only 4 layers"),
        ("min_cut = 1", 'memory = "1 B"', "client 'c1' has memory 1 B"),
        ("min_cut = 1", "epochs = 1\nsteps = 1", "client 'c1' has both epochs and steps"),
        ("min_cut = 1", CLIENT, "client 'c1' appears more than once"),
    ],
)
def test_what_only_the_model_can_tell_is_named_too(scenario, old, new, message):
    with pytest.raises(PlanError, match=message):
        scenario((HEAD + CLIENT).replace(old, new)).problem()


def test_a_server_without_compute_beside_a_client_without_memory(scenario):
    text = (HEAD + CLIENT).replace("3000 GFLOPS", "0 GFLOPS").replace("min_cut = 1", 'memory = "3 kB"')
    with pytest.raises(PlanError, match=r"client 'c1' can't train the whole model in its 3 kB of memory"):
        scenario(text).problem()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("name,compute,rate,sample\na,1 GFLOPS,1 MB/s,3\n", "unknown key 'sample': did you mean 'samples'"),
        (
            "name,compute,compute,rate,samples\na,1 GFLOPS,2 GFLOPS,1 MB/s,3\n",
            "has the column 'compute' more than once: leave one of them",
        ),
        ("name,compute,rate,samples\na,1 GFLOPS,1 MB/s\n", "line 2, has more or fewer cells"),
        ("name,compute,rate,samples\na,1 GFLOPS,1 MB/s,3,4\n", "line 2, has more or fewer cells"),
        ("name,compute,rate,samples\na,1 GFLOPS,1 MB/s,\n", "client 'a' lacks samples"),
        ("name,compute,rate,samples\na,1 GFLOPS,1 MB/s,many\n", "client 'a' samples is 'many'"),
        *(
            (
                f"name,compute,rate,samples\na,1 GFLOPS,1 MB/s,{odd}\n",
                f"client 'a' samples is '{re.escape(odd[:9])}",
            )
            for odd in ("²", "+-5", "--5", "٣", "1²", "9" * 5000)
        ),
        ("name,compute,rate,samples\na,1 GFLOPS,1,3\n", "client 'a' rate is '1'"),
        ("name,compute,rate,samples\n", "lists no clients"),
        (
            "name,compute,rate,samples\na,1 GFLOPS,1 MB/s,3\na,1 GFLOPS,1 MB/s,3\n",
            "'a' appears more than once",
        ),
    ],
)
def test_a_mistake_in_a_csv_file_is_named(scenario, rows, message):
    with pytest.raises(CutwaterError, match=message):
        scenario('clients = "fleet.csv"\n' + HEAD, fleet_csv=rows)


def test_digits_in_quotes_are_a_whole_number_with_a_sign_and_spaces(scenario):
    text = (HEAD + CLIENT).replace("samples = 3396", 'samples = " +0033 "')
    assert scenario(text).fleet.samples.tolist() == [33]


def test_a_number_beyond_all_use_is_told_the_most(scenario):
    for digits in ("9" * 400, f'"{"9" * 5000}"'):
        with pytest.raises(
            ScenarioError, match=r"samples is .*…, but .* from 1 to 1,000,000,000,000"
        ) as told:
            scenario((HEAD + CLIENT).replace("samples = 3396", f"samples = {digits}"))
        assert len(str(told.value)) < 250
    with pytest.raises(ScenarioError, match=r"kappa is 9999.*…, but must be a finite number above 0"):
        scenario(
            HEAD.replace('profile = "profile.json"', f'[model]\nname = "mlp"\nkappa = {"9" * 400}') + CLIENT
        )


def test_every_file_that_a_scenario_names_may_begin_in_a_home(scenario, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.json").write_text(json.dumps(tiny_profile().to_json()))
    (home / "fleet.csv").write_text("name,compute,rate,samples\na,1 GFLOPS,1 MB/s,40\n")
    monkeypatch.setenv("HOME", str(home))
    head = HEAD.replace("profile.json", "~/mine.json")
    read = scenario(
        'clients = "~/fleet.csv"\n'
        + head
        + '[data]\nfolder = "~/d"\n[conditions]\nchange = "trace"\ntrace = "~/t.csv"\n'
    )
    assert read.fleet.names == ("a",)
    assert read.profile.model == "tiny"
    assert data_settings(read).folder == str(home / "d")
    assert condition_settings(read).trace == str(home / "t.csv")
    (tmp_path / "jobs.toml").write_text('[server]\ncompute = "1 TFLOPS"\n[[job]]\nscenario = "~/job.toml"\n')
    (home / "job.toml").write_text(HEAD.replace("profile.json", "mine.json") + CLIENT)
    assert load_jobs(tmp_path / "jobs.toml").plan().jobs[0].name == "job1"
    for key, text in (
        ("profile", head.replace("~", "~nosuchuser")),
        ("clients", 'clients = "~nosuchuser/x"\n' + HEAD),
    ):
        with pytest.raises(ScenarioError, match=f"{key} is '~nosuchuser/.*home folder is not known"):
            scenario(text if key == "clients" else text + CLIENT)


def test_files_that_cannot_be_read_are_named(scenario, tmp_path):
    with pytest.raises(FileFormatError, match="can't be read"):
        load_scenario(tmp_path / "none.toml")
    with pytest.raises(FileFormatError, match="is not TOML"):
        scenario("[server")
    with pytest.raises(FileFormatError, match=r"none\.csv can't be read"):
        scenario('clients = "none.csv"\n' + HEAD)
    with pytest.raises(FileFormatError, match=r"none\.json can't be read"):
        scenario((HEAD + CLIENT).replace("profile.json", "none.json")).problem()
    (tmp_path / "empty.json").write_text("{}")
    with pytest.raises(FileFormatError, match=r"'cutwater\.profile' document is needed"):
        scenario((HEAD + CLIENT).replace("profile.json", "empty.json")).problem()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileFormatError, match="is not TOML"):
        load_scenario(tmp_path / "bytes.toml")


def test_a_file_whose_name_holds_a_nul_is_refused(scenario):
    odd = '"a\\u0000b"'
    with pytest.raises(
        ScenarioError, match=r"profile is 'a\\x00b', but must be the name of a file without NUL in it"
    ):
        scenario((HEAD + CLIENT).replace('"profile.json"', odd))
    with pytest.raises(
        ScenarioError, match=r"clients is 'a\\x00b', but must be the name of a file without NUL in it"
    ):
        scenario(f"clients = {odd}\n" + HEAD)
    study = scenario(
        HEAD + CLIENT + f'[data]\nfolder = {odd}\n[conditions]\nchange = "trace"\ntrace = {odd}\n'
    )
    with pytest.raises(ScenarioError, match=r"\[data\] folder is 'a\\x00b'"):
        data_settings(study)
    with pytest.raises(ScenarioError, match=r"\[conditions\] trace is 'a\\x00b'"):
        condition_settings(study)


@pytest.mark.parametrize("value", UNREADABLE, ids=lambda value: value[:12])
def test_toml_that_no_sentence_could_quote_is_refused(scenario, value):
    with pytest.raises(FileFormatError, match="is not TOML") as told:
        scenario(HEAD + CLIENT + f"[train]\n{value}\n")
    assert len(str(told.value)) < 300
    assert "\n" not in str(told.value)


FLEET = """
[fleet]
clients = 30
compute = ["50 GFLOPS", "300 GFLOPS"]
rate = ["2 MB/s", "12 MB/s"]
samples = [361, 363]
seed = 3
"""


def test_a_generated_fleet_stays_within_its_ranges(scenario):
    fleet = scenario(HEAD + FLEET).fleet
    assert len(fleet) == 30
    assert fleet.compute.min() >= 50e9
    assert fleet.compute.max() <= 300e9
    assert (fleet.up == fleet.down).all()
    assert set(fleet.samples.tolist()) == {361, 362, 363}  # both ends included


def test_a_generated_fleet_repeats_with_its_seed_and_only_then(scenario):
    first, again = scenario(HEAD + FLEET).fleet, scenario(HEAD + FLEET).fleet
    other = scenario(HEAD + FLEET.replace("seed = 3", "seed = 4")).fleet
    assert (first.compute == again.compute).all()
    assert (first.compute != other.compute).all()


def test_more_columns_or_clients_change_no_other_number(scenario):
    first = scenario(HEAD + FLEET).fleet
    more = scenario(HEAD + FLEET.replace("clients = 30", "clients = 50") + "min_cut = [1, 3]\n").fleet
    assert (more.compute[:30] == first.compute).all()
    assert (more.samples[:30] == first.samples).all()
    assert set(more.min_cut.tolist()) == {1, 2, 3}


@pytest.mark.parametrize(
    "spec",
    [
        '{ distribution = "uniform", low = "1 GFLOPS", high = "9 GFLOPS" }',
        '{ distribution = "loguniform", low = "1 GFLOPS", high = "9 GFLOPS" }',
        '{ distribution = "normal", mean = "5 GFLOPS", std = "2 GFLOPS", '
        'low = "1 GFLOPS", high = "9 GFLOPS" }',
        '{ distribution = "choice", values = ["1 GFLOPS", "9 GFLOPS"], weights = [3, 1] }',
        '{ distribution = "choice", values = ["1 GFLOPS", "9 GFLOPS"] }',
        '"5 GFLOPS"',
    ],
)
def test_distributions_by_name(scenario, spec):
    fleet = scenario(HEAD + FLEET.replace('["50 GFLOPS", "300 GFLOPS"]', spec)).fleet
    assert 1e9 <= fleet.compute.min() <= fleet.compute.max() <= 9e9


def test_a_lognormal_fleet_has_the_median_it_was_given(scenario):
    spec = '{ distribution = "lognormal", median = "5 GFLOPS", sigma = 0.5 }'
    text = FLEET.replace('["50 GFLOPS", "300 GFLOPS"]', spec).replace("clients = 30", "clients = 20000")
    assert np.median(scenario(HEAD + text).fleet.compute) == pytest.approx(5e9, rel=0.05)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("clients = 30\n", "", r"\[fleet\] lacks clients"),
        *(
            (
                "clients = 30",
                f"clients = {many}",
                r"clients is '?1000.*, but must be a whole number from 1 to 100,000,000",
            )
            for many in (10**12, 10**21, 10**400, f'"{10**9}"')
        ),
        ("samples = [361, 363]\n", "", r"\[fleet\] lacks samples"),
        (
            'rate = ["2 MB/s", "12 MB/s"]',
            "",
            r"\[fleet\] has none of rate, up, down: give either rate, or up and down",
        ),
        ("seed = 3", "sed = 3", "unknown key 'sed': did you mean 'seed'"),
        ("seed = 3", "seed = -1", "seed is -1"),
        ("[361, 363]", "[363, 361]", "the low end must come first"),
        ("[361, 363]", "[1, 2, 3]", "must be two values"),
        ("[361, 363]", "[0, 3]", "samples low is 0"),
        ('["2 MB/s", "12 MB/s"]', "[2, 12]", "rate low is 2"),
        ('["2 MB/s", "12 MB/s"]', '{ distribution = "unifrom" }', "did you mean 'uniform'"),
        ('["2 MB/s", "12 MB/s"]', '{ distribution = "uniform", low = "1 MB/s" }', "rate lacks high"),
        ('["2 MB/s", "12 MB/s"]', '{ low = "1 MB/s" }', "rate lacks distribution"),
        (
            '["2 MB/s", "12 MB/s"]',
            '{ distribution = "choice", values = ["1 MB/s"], weights = [1, 2] }',
            "choice of 1, but has 2 weights",
        ),
        ('["2 MB/s", "12 MB/s"]', '{ distribution = "choice", values = [] }', "must be a list"),
        (
            '["2 MB/s", "12 MB/s"]',
            '{ distribution = ["a"] }',
            r"rate distribution is \['a'\], but must be text: known are choice, ",
        ),
        (
            '["2 MB/s", "12 MB/s"]',
            '{ distribution = "choice", values = ["1 MB/s", "2 MB/s"], weights = [1e308, 1e308] }',
            r"rate weights is \[1e\+308, 1e\+308\], but must add up to a finite number",
        ),
        (
            "[361, 363]",
            f"[1, {10**400}]",
            r"samples high is 1000.*…, but must be a whole number from 1 to 1,000,000,000,000",
        ),
        (
            '["2 MB/s", "12 MB/s"]',
            '{ distribution = "lognormal", median = "1 MB/s", sigma = 1e300 }',
            "client 'c1' up is inf, but must be a finite number above 0",
        ),
        (
            '["2 MB/s", "12 MB/s"]',
            '{ distribution = "lognormal", median = "1 MB/s", sigma = -1 }',
            "sigma is -1",
        ),
    ],
)
def test_a_mistake_in_a_generated_fleet_is_named(scenario, old, new, message):
    with pytest.raises(CutwaterError, match=message):
        scenario(HEAD + FLEET.replace(old, new))


def test_another_number_of_clients(scenario):
    listed = scenario(HEAD + CLIENT + CLIENT.replace("c1", "c2"))
    assert [client.name for client in listed.with_clients(1).fleet] == ["c1"]
    with pytest.raises(ScenarioError, match="lists 2 clients, not 3"):
        listed.with_clients(3)
    drawn = scenario(HEAD + FLEET)
    assert len(drawn.with_clients(100).fleet) == 100
    with pytest.raises(
        ScenarioError, match="asked for 1,000,000,000,000 clients, but draws 100,000,000 at most"
    ):
        drawn.with_clients(10**12)


def test_the_model_table_becomes_a_counted_profile(scenario):
    model = '[model]\nname = "mlp"\ninput = "1x8x8"\nclasses = 3\ncount = "paper"\nkappa = 2.5\n'
    model += 'optimizer = "adam"\n'
    found = scenario(HEAD.replace('profile = "profile.json"', model) + CLIENT)
    profile = found.profile
    assert (profile.model, profile.input, profile.classes) == ("mlp", "1x8x8", 3)
    assert (profile.count, profile.kappa, profile.optimizer, profile.batch_size) == ("paper", 2.5, "adam", 32)
    assert found.problem().layers == len(profile)


@pytest.mark.parametrize("name", RESERVED)
def test_an_option_that_is_a_setting_is_refused_with_its_place(scenario, name):
    model = f'[model]\nname = "mlp"\noptions = {{ {name} = "8" }}'
    with pytest.raises(ModelError, match=rf"\[model\] option '{name}' is no option of a model: ."):
        scenario(HEAD.replace('profile = "profile.json"', model) + CLIENT)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda p: p.name
)
def test_every_example_is_a_valid_scenario_or_several(path):
    several = "[[job]]" in path.read_text()
    scenarios = [one for _, one in load_jobs(path).jobs] if several else [load_scenario(path)]
    assert all(len(one.fleet) >= 1 for one in scenarios)
