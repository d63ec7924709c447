"""What a page sends and holds: checked like any scenario, written so that it reads back the same."""

import io
import json
import tomllib
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import CutwaterError
from cutwater.base.toml import to_toml
from cutwater.base.units import parse_compute, parse_quantities, parse_rate, parse_size, parse_time
from cutwater.codec.registry import CODECS
from cutwater.model import zoo
from cutwater.plan.fleet import NO_LIMIT, SCHEDULES, SETS, Fleet
from cutwater.plan.prices import Price, PriceKind
from cutwater.plan.session import Wires
from cutwater.runs.reader import Folder
from cutwater.scenario.clients import csv_table, fleet_from_rows, fleet_from_table
from cutwater.scenario.file import load_scenario, read_scenario
from cutwater.web.answers import details_answer, plan_answer
from cutwater.web.catalogue import ZOO, Catalogue
from cutwater.web.files import export_toml, from_scenario, from_toml
from cutwater.web.fleet_text import MOST_CLIENTS, fleet_of, scaled, to_csv
from cutwater.web.quantities import price_text, quantities, quantity
from cutwater.web.serve import make_site
from cutwater.web.state import read_asked, read_clients

CATALOGUE = Catalogue()
MODEL = {"name": "mlp", "input": "1x8x8", "classes": 10}
BODY = {
    "model": MODEL,
    "server": "20 GFLOPS",
    "session": {"steps": 5, "batch_size": 16},
    "fleet": {"csv": "name,compute,rate,samples\na,1 GFLOPS,1 MB/s,80\nb,0.1 GFLOPS,2 MB/s,90\n"},
    "planner": "exact",
}
TABLES = {
    "model": MODEL,
    "server": {"compute": "20 GFLOPS"},
    "session": {"steps": 5},
    "client": [{"name": "a", "compute": "1 GFLOPS", "rate": "1 MB/s", "samples": 80}],
}
PARTS = {"session": {"steps": 5, "batch_size": 16, "micro_batches": 4}}
CODED_CSV = (
    "name,compute,rate,samples,rtt,codecs,schedules\n"
    "a,1 GFLOPS,1 MB/s,80,40 ms,fp32 int4,in turn\nb,0.1 GFLOPS,2 MB/s,90,,,in turn overlapped\n"
)
amounts = st.floats(min_value=1e-3, max_value=1e18)


@given(amounts)
def test_a_quantity_reads_back_as_the_very_same_number(value):
    for kind, read in (("compute", parse_compute), ("rate", parse_rate), ("size", parse_size)):
        assert read(quantity(kind, value)) == value


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_time_reads_back_as_the_very_same_number(value):
    assert parse_time(quantity("time", value)) == value


def shortest(kind: str, value: float) -> str:
    """The shortest of all texts that are tried, each read back: what columns at once must come to."""
    read, units, exact = {
        "compute": (parse_compute, (("TFLOPS", 1e12), ("GFLOPS", 1e9)), "FLOPS"),
        "rate": (parse_rate, (("MB/s", 8e6),), "bit/s"),
        "size": (parse_size, (("GB", 8e9), ("MB", 8e6)), "bit"),
        "time": (parse_time, (("s", 1.0), ("ms", 1e-3)), "s"),
    }[kind]
    able = [one for one in units if value >= one[1]] or [units[-1]]
    texts = [f"{value / scale:.{digits}g} {unit}" for unit, scale in able for digits in (4, 8, 17)]
    good = [text for text in texts if "e" not in text and read(text) == value]
    return min(good, key=len) if good else f"{value!r} {exact}"


round_amounts = st.builds(lambda n, p: n * 10.0**p, st.integers(1, 10**9), st.integers(-3, 12))


@pytest.mark.parametrize("kind", ["compute", "rate", "size", "time"])
@settings(deadline=None)
@given(values=st.lists(amounts.filter(lambda value: value < 1e15) | round_amounts, max_size=20))
def test_a_column_is_written_as_its_values_one_by_one(kind, values):
    assert quantities(kind, np.array(values, dtype=float)) == [shortest(kind, value) for value in values]


written = st.lists(
    st.builds(
        lambda value, digits, unit: f"{value:.{digits}f} {unit}",
        st.floats(0, 1e9),
        st.integers(0, 9),
        st.sampled_from(["MB/s", "bit/s", "Kibit/s", "kB/s"]),
    )
    | st.sampled_from(["4 MB/s", "1,500 kB/s", "4MB/s", "4", "4 GFLOPS", "1\n2 MB/s", "0 MB/s", "1e3 B/s"]),
    max_size=6,
)


@given(written)
def test_a_column_is_read_as_its_texts_one_by_one(texts):
    try:
        one_by_one = [parse_rate(text) for text in texts]
    except CutwaterError:
        with pytest.raises(CutwaterError):
            parse_quantities("rate", texts)
    else:
        assert parse_quantities("rate", texts) == one_by_one


prices = st.builds(Price, st.floats(1e-20, 1e6), st.sampled_from(["", "EUR", "$"]), st.booleans())


@given(prices)
def test_a_price_reads_back_as_the_very_same_amount(price):
    for per in ("compute", "rate"):
        assert PriceKind(per).parse(price_text(per, price)) == price


def test_quantities_are_written_as_people_write_them():
    assert quantity("compute", 3e12) == "3 TFLOPS"
    assert quantity("compute", 130e9) == "130 GFLOPS"
    assert quantity("rate", 32e6) == "4 MB/s"
    assert quantity("rate", 4e5) == "0.05 MB/s"
    assert quantity("size", 8 * 512e6) == "512 MB"
    assert quantity("time", 0.04) == "40 ms"
    assert quantity("time", 1.5) == "1.5 s"


@st.composite
def fleets(draw):
    count = draw(st.integers(1, 5))
    column = st.lists(amounts, min_size=count, max_size=count)
    counts = st.lists(st.integers(1, 10**6), min_size=count, max_size=count)
    names = draw(
        st.lists(st.text(min_size=1).filter(str.strip), min_size=count, max_size=count, unique_by=str.strip)
    )
    memory = st.lists(amounts | st.just(NO_LIMIT), min_size=count, max_size=count)
    return Fleet.from_columns(
        names=[name.strip() for name in names],
        compute=draw(column),
        up=draw(column),
        down=draw(column),
        samples=draw(counts),
        min_cut=draw(counts),
        memory=draw(memory),
        steps=draw(st.none() | counts),
        rtt=draw(st.lists(st.just(0.0) | st.floats(1e-6, 9.0), min_size=count, max_size=count)),
        holds=draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)),
        holds_last=draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)),
        forbidden={0: frozenset(draw(st.sets(st.integers(1, 50), max_size=3)))},
        codecs={0: frozenset(draw(st.sets(st.sampled_from(CODECS), max_size=3)))},
        schedules={count - 1: frozenset(draw(st.sets(st.sampled_from(SCHEDULES))))},
    )


def same(one: Fleet, other: Fleet) -> bool:
    columns = {each.name for each in fields(Fleet)} - {"names", *SETS}
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
    sets = [[{k: s for k, s in getattr(fleet, n).items() if s} for n in SETS] for fleet in (one, other)]
    return equal and list(one.names) == list(other.names) and sets[0] == sets[1]


@settings(deadline=None)
@given(fleets().filter(lambda fleet: not any(set(name) & set("\r\n\0\ud800") for name in fleet.names)))
def test_any_fleet_comes_back_from_csv_bit_for_bit(fleet):
    content = to_csv(fleet)
    header, rows = csv_table(io.StringIO(content), "the CSV")
    assert same(fleet_from_table(header, rows, "the CSV"), fleet)
    one_by_one = [{key: cell for key, cell in zip(header, cells, strict=True) if cell} for cells in rows]
    assert same(fleet_from_rows(one_by_one, "the CSV"), fleet)
    assert same(read_clients({"csv": content}), fleet)


def test_a_group_is_multiplied_and_nobody_else():
    fleet = fleet_of(
        "name,compute,rate,samples\na,1 GFLOPS,1 MB/s,80\nb,2 GFLOPS,2 MB/s,3\nc,4 GFLOPS,4 MB/s,90\n"
    )
    faster = scaled(fleet, {"key": "rate", "factor": 1.25, "clients": [0, 2]})
    assert (faster.up / 8e6).tolist() == (faster.down / 8e6).tolist() == [1.25, 2, 5]
    assert scaled(fleet, {"key": "samples", "factor": 0.1, "clients": [0, 1]}).samples.tolist() == [8, 1, 90]
    assert fleet.up.tolist() == [8e6, 16e6, 32e6]
    for change, sentence in (
        ({"key": "rate", "factor": 0, "clients": []}, "factor is 0"),
        ({"key": "rate", "factor": "two", "clients": []}, "factor is 'two'"),
        ({"key": "name", "factor": 2, "clients": []}, "key is 'name'"),
        ({"key": "rate", "factor": 2, "clients": [3]}, "is of client 4, but the fleet has 3"),
        ("twice", "must be a table"),
    ):
        with pytest.raises(CutwaterError) as raised:
            scaled(fleet, change)
        assert sentence in str(raised.value)


toml_values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=6), toml_values, max_size=4))
def test_what_is_written_as_toml_is_what_tomllib_reads(tables):
    tables = json.loads(json.dumps(tables).encode("utf-8", "replace").decode())
    try:
        text = to_toml(tables).encode().decode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text that a file can hold
    assert tomllib.loads(text) == tables


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"rates": 0.3},
        {"devices": 7.7},
        {"min_cut": 2},
        {"server": "0.123 TFLOPS"},
        {"prices": {"compute": "0.02 EUR / GFLOPS / day", "link": "3 EUR / MB/s / month"}},
        {"prices": {"uplink": "3 EUR / MB/s / h", "downlink": "0.2 EUR / MB/s / h"}},
        {"uplink": {"capacity": "0.7 MB/s"}, "downlink": {"capacity": "3 MB/s"}},
        {"planner": "greedy"},
        {"wire": {"up": "int8", "down": ["fp32", "bf16"], "schedule": "overlapped"}} | PARTS,
        {"wire": {"up": ["int4", "fp32"]}, "fleet": {"csv": CODED_CSV}, "rates": 2} | PARTS,
        {"session": {"steps": 5, "batch_size": 16, "autocast": "bf16"}},
    ],
)
def test_an_exported_scenario_gives_the_same_plan_to_every_command(tmp_path, change):
    asked = read_asked(BODY | change, CATALOGUE)
    (tmp_path / "exported.toml").write_text(export_toml(asked, CATALOGUE))
    problem = load_scenario(tmp_path / "exported.toml").problem()
    assert same(problem.fleet, asked.problem.fleet)
    assert problem.profile == asked.problem.profile
    assert problem.server == asked.problem.server
    assert (problem.session, problem.wires) == (asked.problem.session, asked.problem.wires)
    assert load_scenario(tmp_path / "exported.toml").prices == asked.prices
    assert problem.band == asked.problem.band
    if "wire" in change:
        assert problem.wires != Wires()
    back = read_asked(
        from_toml((tmp_path / "exported.toml").read_text(), CATALOGUE) | {"planner": asked.planner}, CATALOGUE
    )
    assert back.plan == asked.plan
    assert back.prices == asked.prices


def test_a_drawn_fleet_is_exported_as_its_table_until_a_slider_moves():
    draw = {
        "clients": 4,
        "compute": ["1 GFLOPS", "2 GFLOPS"],
        "rate": "1 MB/s",
        "samples": [10, 20],
        "seed": 1,
    }
    drawn = read_asked(BODY | {"fleet": {"draw": draw}}, CATALOGUE)
    assert tomllib.loads(export_toml(drawn, CATALOGUE))["fleet"] == draw
    moved = read_asked(BODY | {"fleet": {"draw": draw}, "rates": 2}, CATALOGUE)
    assert len(tomllib.loads(export_toml(moved, CATALOGUE))["client"]) == 4
    assert np.array_equal(moved.problem.fleet.up, drawn.problem.fleet.up * 2)


def test_sections_that_planning_does_not_read_are_carried_along(scenario_file):
    body = from_toml(scenario_file.read_text(), CATALOGUE)
    tables = tomllib.loads(export_toml(read_asked(body, CATALOGUE), CATALOGUE))
    original = tomllib.loads(scenario_file.read_text())
    assert {key: tables[key] for key in ("data", "train")} == {
        key: original[key] for key in ("data", "train")
    }
    assert read_scenario(tables, "exported", scenario_file.parent).sections["train"]["rounds"] == 3


@pytest.mark.parametrize(
    ("csv", "sentence"),
    [
        ("", "the fleet csv is '', but must be text"),
        ("a,b\n1,2\n", "first line must name the columns"),
        (
            "name,compute,rate,samples\na,fast,1 MB/s,3\n",
            "client 'a' compute is 'fast', but must be a number with a unit",
        ),
        ("name,compute,rate,samples\na,1 GFLOPS,4,3\n", "client 'a' rate is '4'"),
        (
            "name,compute,rate,samples\na,1 GFLOPS,1 MB/s,0\n",
            "client 'a' samples is '0', but must be a whole number",
        ),
        ("name,compute,rate,samples\na,1 GFLOPS,1 MB/s,²\n", "client 'a' samples is '²'"),
        (f"name,compute,rate,samples\na,1 GFLOPS,1 MB/s,{'9' * 5000}\n", "client 'a' samples is '999"),
        (
            "name,compute,rate,samples\na,1 GFLOPS,1 MB/s,3\na,1 GFLOPS,1 MB/s,3\n",
            "'a' appears more than once",
        ),
        ("name,compute,rate,samples\na,1 GFLOPS,1 MB/s\n", "the CSV, line 2, has more or fewer cells"),
        (
            "name,compute,rate,samples\na,1 GFLOPS,1 MB/s,3\n\ud800,1 GFLOPS,1 MB/s,3\n",
            r"the CSV holds '\ud800', half of a character",
        ),
        ("name,compute,rate,samples, compute\n", "the CSV has the column 'compute' more than once"),
        ("name,compute,rate,sampels\n", "unknown key 'sampels': did you mean 'samples'?"),
        ("name,compute,rate,samples\n", "lists no clients"),
    ],
)
def test_a_bad_csv_is_told_in_one_sentence(csv, sentence):
    with pytest.raises(CutwaterError) as raised:
        read_clients({"csv": csv})
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_copied_spreadsheet_with_tabs_or_semicolons_works():
    plain = fleet_of("name,compute,rate,samples\na,1 GFLOPS,1 MB/s,80\n")
    for separator in (";", "\t"):
        pasted = "\ufeff" + "name,compute,rate,samples\r\na,1 GFLOPS,1 MB/s,80\r\n".replace(",", separator)
        assert same(fleet_of(pasted), plain)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model": {"name": "os:system"}}, "is not one that this page may run"),
        ({"model": {"name": "antigravity:geohash"}}, "is not one that this page may run"),
        ({"model": MODEL | {"options": {"widths": [10**6] * 10**3}}}, "takes no options"),
        ({"model": MODEL | {"input": "1x0x0"}}, "1x0x0"),
        ({"model": MODEL | {"count": "wrong"}}, "[model] count is 'wrong': known are exact, paper"),
        ({"planner": "exhaustive"}, "the scenario planner is 'exhaustive': "),
        ({"planner": "package.module:planner"}, "the scenario planner is 'package.module:planner': "),
        ({"rates": 0}, "the scenario rates is 0, but must be a number from 0.001 to 1000"),
        ({"rates": 1e9}, "the scenario rates is 1000000000.0, but must be a number from 0.001 to 1000"),
        ({"min_cut": 99}, "has min_cut 99, but 'mlp' has only"),
        ({"server": "lots"}, "server is 'lots', but must be a number with a unit"),
        ({"session": {"steps": 0}}, "steps is 0"),
        ({"fleet": {"path": "/etc/passwd"}}, "unknown key 'path'"),
        (
            {"fleet": {"draw": {"clients": 10**12, "compute": "1 GFLOPS", "rate": "1 MB/s", "samples": 1}}},
            "at most",
        ),
        ({"wire": {"up": "os:system"}}, "codec 'os:system' is not one that this page may run"),
        ({"wire": {"down": ["fp32", "antigravity:geohash"]}}, "is not one that this page may run"),
        ({"wire": {"up": "int9"}}, "[wire] up is 'int9'"),
        ({"wire": {"upp": "int8"}}, "unknown key 'upp'"),
        ({"session": {"steps": 1, "batch_size": 4, "micro_batches": 5}}, "micro_batches is 5"),
        ({"client": 3}, "the scenario client is 3"),
        ({"sections": {"server": {}}, "export": 1}, "the scenario has an unknown key 'export'"),
    ],
)
def test_what_makes_no_sense_or_is_not_allowed_is_refused_in_one_sentence(change, sentence):
    with pytest.raises(CutwaterError) as raised:
        read_asked(BODY | change, CATALOGUE)
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ("[[[", "is not TOML"),
        ('clients = "/etc/passwd"', "which a page does not read"),
        ('profile = "/etc/passwd"', "there is no saved profile '/etc/passwd'"),
        ('profile = "../p.json"', "there is no saved profile '../p.json'"),
        ('[model]\nname = "os:system"', "is not one that this page may run"),
        (
            to_toml(TABLES | {"wire": {"up": "os:system"}}),
            "codec 'os:system' is not one that this page may run",
        ),
        (f"[fleet]\nclients = {MOST_CLIENTS + 1}", "at most"),
        ('[fleet]\nclients = "5000000"', "the fleet has 5,000,000 clients, but a page shows 100,000 at most"),
        ("[fleet]\nclients = 1000000000000", "but a page shows 100,000 at most"),
        ('[model]\nname = "mlp"', "has none of [[client]], clients, [fleet]"),
        ("a = " + "[" * 5000, "is not TOML"),
        (".".join(["a"] * 5000) + " = 1", "is not TOML"),
        ("a = " + "9" * 5000, "is not TOML"),
        ("a = 0x" + "f" * 5000, "is not TOML"),
        ('[train]\na = "\ud800"', r"the file holds '\ud800', half of a character"),
    ],
)
def test_an_uploaded_scenario_names_no_file_and_no_code(toml, sentence):
    with pytest.raises(CutwaterError) as raised:
        from_toml(toml, CATALOGUE)
    assert sentence in str(raised.value)


def test_saved_profiles_come_from_their_folder_alone(tmp_path):
    profile = read_asked(BODY, CATALOGUE).problem.profile
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "mine.json").write_text(json.dumps(profile.to_json()))
    (folder / "other.json").write_text("{}")
    (tmp_path / "outside.json").write_text(json.dumps(profile.to_json()))
    (folder / "link.json").symlink_to(tmp_path / "outside.json")
    catalogue = Catalogue(Folder(folder))
    assert catalogue.profiles() == ["mine.json"]
    assert catalogue.saved("mine.json") == profile
    for name in (
        "link.json",
        "../outside.json",
        str(tmp_path / "outside.json"),
        "other.json",
        "given",
        3,
        None,
    ):
        with pytest.raises(CutwaterError, match="no saved profile"):
            catalogue.saved(name)


def test_the_owners_own_model_can_be_planned_for_but_not_named_by_a_request(tmp_path, monkeypatch):
    (tmp_path / "owners_model.py").write_text(
        "from torch import nn\n\ndef small(classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))\n"
    )
    text = '[model]\nname = "owners_model:small"\ninput = "1x8x8"\n[server]\ncompute = "1 GFLOPS"\n'
    text += (
        '[session]\nsteps = 2\n[[client]]\nname = "a"\ncompute = "1 MFLOPS"\nrate = "1 MB/s"\nsamples = 50\n'
    )
    (tmp_path / "own.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    site = make_site(load_scenario("own.toml"), None, None)
    asked = read_asked(site.start, site.catalogue)
    assert asked.plan.model == "owners_model:small"
    assert tomllib.loads(export_toml(asked, site.catalogue))["model"]["name"] == "owners_model:small"
    with pytest.raises(CutwaterError, match="may run"):
        read_asked(site.start | {"model": {"name": "owners_model:small"}}, site.catalogue)


def test_links_that_clients_share_are_carried_along_and_planned():
    example = Path(__file__).parents[2] / "examples" / "shared-uplink.toml"
    site = make_site(load_scenario(example), None, None)
    asked = read_asked(site.start, site.catalogue)
    assert asked.problem.band == load_scenario(example).band
    assert asked.plan.rates is not None
    tables = tomllib.loads(export_toml(asked, site.catalogue))
    assert {key: tables[key] for key in ("uplink", "downlink")} == {
        "uplink": {"capacity": "12 MB/s"},
        "downlink": {"capacity": "24 MB/s"},
    }


def test_the_catalogue_is_the_zoo():
    assert list(ZOO) == zoo.names()


def test_a_site_without_a_scenario_opens_with_the_papers_ten_clients():
    example = Path(__file__).parents[2] / "examples" / "paper-ten.toml"
    assert make_site(None, None, None).start == from_scenario(load_scenario(example))


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BODY, "clients", "compute"]), inner)
    ),
    max_leaves=6,
)
places = st.sampled_from(
    [
        *(
            "model",
            "model.classes",
            "model.input",
            "server",
            "session",
            "session.steps",
            "session.batch_size",
        ),
        *("fleet", "fleet.csv", "planner", "rates", "min_cut", "sections", "client"),
        *("session.micro_batches", "wire", "wire.up", "wire.schedule", "prices", "uplink"),
    ]
)


@settings(deadline=None, max_examples=100)
@given(places, junk)
def test_whatever_a_page_sends_the_answer_is_a_plan_or_a_sentence(place, value):
    body = json.loads(json.dumps(BODY | {"wire": {}}))
    table, _, key = place.rpartition(".")
    (body[table] if table else body)[key] = value
    for asked in (body, value):
        with suppress(CutwaterError):
            answer(asked)


@pytest.mark.parametrize("model", ["mlp", "cnn", "vit_tiny", "text_transformer"])
@pytest.mark.parametrize(
    "shape", ["1x99999999x99999999", "99999999999999x1x1", "99999999", "0", "1x8x8x8x8", "tokens:-3"]
)
def test_an_absurd_input_is_a_plan_or_a_sentence(model, shape):
    with suppress(CutwaterError):
        answer(BODY | {"model": {"name": model, "input": shape, "classes": 10**15}})


def answer(body):
    asked = read_asked(body, CATALOGUE)
    assert plan_answer(asked)
    details_answer(asked, 1e9, 1e11)
    export_toml(asked, CATALOGUE)
