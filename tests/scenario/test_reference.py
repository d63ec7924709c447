"""The reference: every key described, the documentation fresh, and a JSON Schema that editors can use."""

import json
import re
import runpy
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cutwater.base.errors import CutwaterError
from cutwater.base.kinds import Text
from cutwater.base.schema import NO_DEFAULT, schema_of
from cutwater.profile.count import COUNTERS
from cutwater.profile.values import COUNTS
from cutwater.scenario.jobs import mistakes
from cutwater.scenario.reference import refreshed, rows
from cutwater.scenario.sections import SECTIONS, TOP, json_schema
from cutwater.stream.ticket import Claims

ROOT = Path(__file__).parents[2]
ALL_EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
EXAMPLES = [path for path in ALL_EXAMPLES if "job" not in tomllib.loads(path.read_text())]
SCHEMA = Draft202012Validator(json_schema())
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
ALL = {name: section.schema for name, section in SECTIONS.items()}
ALL |= {"top": TOP, "claims": schema_of(Claims), **SCRIPT["OTHERS"]}


@pytest.mark.parametrize("name", ALL)
def test_every_key_says_what_it_is_and_what_is_allowed(name):
    for field in ALL[name]:
        assert len(field.meaning) > 1, field.key
        assert field.kind.written
        assert not re.search(r"[.\n]$", field.meaning), field.key


@pytest.mark.parametrize("name", ALL)
def test_every_default_is_a_value_that_its_own_key_allows(name):
    for field in ALL[name]:
        if field.default is NO_DEFAULT or (field.default is None and (field.may_be_none or field.told)):
            continue
        assert field.kind.check(field.default, field.key, CutwaterError) == field.default


@pytest.mark.parametrize("page", SCRIPT["PAGES"])
def test_the_tables_of_the_documentation_are_fresh(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert re.search("<!-- (keys|fields) of ", text)
    assert refreshed(text, SCRIPT["OTHERS"]) == text, "run make reference"


def test_every_section_and_format_has_its_one_table_in_the_documentation():
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in SCRIPT["PAGES"])
    assert sorted(re.findall(r"<!-- (?:keys|fields) of ([\w-]+) -->", text)) == sorted(
        ["top", *SECTIONS, *SCRIPT["OTHERS"]]
    )


def test_a_needed_key_is_told_as_such_and_a_default_as_a_file_writes_it():
    found = {row.key: row for row in rows("train")}
    assert found["lr"].default == "`0.05`"
    assert found["deadline"].default == "none"
    assert {row.key: row.default for row in rows("server")} == {
        "compute": "needed",
        "memory": "no limit",
    }


def test_the_json_schema_is_one():
    Draft202012Validator.check_schema(json_schema())
    assert json.loads(json.dumps(json_schema(), allow_nan=False)) == json_schema()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid_by_the_json_schema_and_has_no_mistakes(path):
    SCHEMA.validate(tomllib.loads(path.read_text()))
    assert mistakes(path) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_misspelt_key_is_refused_by_the_json_schema_and_by_us(path, data, tmp_path_factory):
    tables = tomllib.loads(path.read_text())
    places = [tables, *(table for table in tables.values() if isinstance(table, dict))]
    places += tables.get("client", [])
    place = data.draw(st.sampled_from(places))
    key = data.draw(st.sampled_from(sorted(place)))
    place[f"{key}x"] = place.pop(key)
    assert not SCHEMA.is_valid(tables)
    from cutwater.base.toml import to_toml

    spoilt = tmp_path_factory.mktemp("spoilt") / "spoilt.toml"
    spoilt.write_text(to_toml(tables))
    assert f"unknown key '{key}x': did you mean '{key}'" in str(mistakes(spoilt)[0])


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("train", {"rounds": 0}),
        ("train", {"rounds": "60"}),
        ("train", {"lr": 0}),
        ("data", {"source": "minst"}),
        ("data", {"local_test": 1}),
        ("conditions", {"change": 3}),
        ("server", {"compute": 3000}),
        ("session", {"epochs": 1, "steps": 1}),
        ("session", {}),
        ("fleet", {"clients": 3, "compute": ["1 GFLOPS"], "rate": "1 MB/s", "samples": 3}),
        ("fleet", {"clients": 3, "compute": {"distribution": "normal"}, "rate": "1 MB/s", "samples": 3}),
        ("fleet", {"clients": 3, "compute": "1 GFLOPS", "rate": "1 MB/s", "up": "1 MB/s", "samples": 3}),
    ],
)
def test_what_we_refuse_the_json_schema_refuses(section, table):
    part = Draft202012Validator(json_schema()["properties"][section])
    assert not part.is_valid(table)
    assert SECTIONS[section].schema.sift(table)[1]


def test_ones_own_function_is_valid():
    part = Draft202012Validator(json_schema()["properties"]["data"])
    assert part.is_valid({"source": "my_package.data:load"})


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text(
        '[model]\nname = "cnn"\nclases = 3\n[server]\ncompute = 3\n[session]\nsteps = 0\n'
        '[[client]]\nname = "a"\ncompute = "1 GFLOPS"\nrate = "1 MB/s"\nsamples = -1\n'
        '[[client]]\ncompute = "fast"\nrate = "1 MB/s"\nsamples = 1\n'
        "[train]\nround = 3\nlr = -1\n"
    )
    found = [str(mistake).removeprefix(f"{path}: ") for mistake in mistakes(path)]
    assert [sentence.split(",")[0].split(":")[0] for sentence in found] == [
        "[model] has an unknown key 'clases'",
        "[server] compute is 3",
        "[session] steps is 0",
        "[[client]] 'a' samples is -1",
        "[[client]] 2 compute is 'fast'",
        "[train] has an unknown key 'round'",
        "[train] lr is -1",
    ]


def test_what_several_keys_tell_together_is_found_when_each_is_right(tmp_path):
    path = tmp_path / "quorum.toml"
    text = (ROOT / "examples" / "digits.toml").read_text()
    path.write_text(text.replace("clients_per_round = 5", "clients_per_round = 5\nquorum = 6"))
    assert [str(mistake) for mistake in mistakes(path)] == [
        "[train] quorum is 6, but must be at most clients_per_round (5)"
    ]


def test_a_byte_order_mark_is_passed_over(tmp_path):
    text = (ROOT / "examples" / "fleet.toml").read_text()
    head = text[: text.index("[[client]]")] + text[text.index("[data]") :]
    (tmp_path / "marked.toml").write_bytes(b'\xef\xbb\xbfclients = "fleet.csv"\n' + head.encode())
    (tmp_path / "fleet.csv").write_bytes(b"\xef\xbb\xbfname,compute,rate,samples\na,1 GFLOPS,1 MB/s,30\n")
    assert mistakes(tmp_path / "marked.toml") == []


def test_the_ways_of_counting_are_those_that_there_are():
    assert tuple(COUNTERS) == COUNTS


def test_a_key_that_names_a_file_says_so():
    assert all(field.kind == Text(file=True) for field in TOP if field.key in ("profile", "clients"))
