"""A field is described once: what it refuses, in which words, and what its description turns into."""

import json
import math
from dataclasses import InitVar, dataclass, field, replace
from typing import Annotated

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.base.errors import PlanError, ScenarioError, UnitError
from cutwater.base.kinds import (
    Choice,
    Flag,
    ForeignText,
    Kind,
    Many,
    Named,
    Number,
    Quantity,
    Table,
    Text,
    Whole,
    quote,
)
from cutwater.base.schema import (
    Field,
    Nested,
    Schema,
    Told,
    check,
    described,
    read,
    read_all,
    schema_of,
    table,
)


@described("[box]", ScenarioError, either=((("all",), ("wide", "high")),), instead={"deep": "it is flat"})
@dataclass(frozen=True, kw_only=True)
class Box:
    """A table as good as any."""

    name: Annotated[str, Text(), "what it is called"]
    count: Annotated[int, Whole(1, 9), "how many there are"] = 3
    all: InitVar[Annotated[float | None, Number(above=0), "both sides at once"]] = None
    wide: Annotated[float | None, Number(above=0), "its width"] = None
    high: Annotated[float | None, Number(above=0), "its height", Told("as wide")] = None
    unread: int = 7

    def __post_init__(self, all: float | None) -> None:
        sides = {"all": all, "wide": self.wide, "high": self.high}
        check(self, given={key for key, value in sides.items() if value is not None})


GOOD = {"name": "a", "wide": 1, "high": 2.5}


def told(table, cls=Box):
    with pytest.raises(ScenarioError) as refused:
        read(cls, table)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_table_becomes_an_object_whose_values_have_their_form():
    made = read(Box, GOOD)
    assert made == Box(name="a", wide=1.0, high=2.5)
    assert type(made.wide) is float
    assert made.count == 3


def test_each_mistake_has_one_wording():
    assert told({"nmae": "a"} | GOOD) == (
        "[box] has an unknown key 'nmae': did you mean 'name'? Known: all, count, high, name, wide"
    )
    assert told({"wide": 1, "high": 1}) == "[box] lacks name: add name, text that is not empty"
    assert told(GOOD | {"count": 10}) == "[box] count is 10, but must be a whole number from 1 to 9"
    assert told(GOOD | {"count": "3"}) == "[box] count is '3', but must be a whole number from 1 to 9"
    assert told(GOOD | {"deep": 1}) == "[box] deep can't be used: it is flat"
    assert told({"name": "a"}) == "[box] has none of all, wide, high: give either all, or wide and high"
    assert told({"name": "a", "all": 1, "high": 1}) == (
        "[box] has all and high: give either all, or wide and high"
    )
    assert told([3]) == "[box] is [3], but must be a table of keys and values"


def test_construction_in_python_refuses_in_the_same_words_and_names_the_class():
    with pytest.raises(ScenarioError, match=r"^Box count is 10, but must be a whole number from 1 to 9$"):
        Box(name="a", count=10, all=1.0)
    with pytest.raises(ScenarioError, match=r"^Box has none of all, wide, high: give either all, or"):
        Box(name="a")


def test_a_caller_says_what_the_table_is_called_and_what_is_raised():
    with pytest.raises(PlanError, match=r"^mine\.toml: \[box\] count is 0, but must be"):
        read(Box, GOOD | {"count": 0}, "mine.toml: [box]", PlanError)


def test_everything_that_is_wrong_is_found_at_once_and_what_is_misspelt_comes_first():
    values, mistakes = schema_of(Box).sift({"nmae": "a", "count": 0, "wide": 1, "high": 2})
    assert [str(mistake).split(":")[0] for mistake in mistakes] == [
        "[box] has an unknown key 'nmae'",
        "[box] lacks name",
        "[box] count is 0, but must be a whole number from 1 to 9",
    ]
    assert values == {"wide": 1.0, "high": 2.0}


def test_what_is_not_described_is_no_part_of_a_file():
    assert [each.key for each in schema_of(Box)] == ["name", "count", "all", "wide", "high"]
    assert "unknown key 'unread'" in told(GOOD | {"unread": 3})


KINDS: dict[str, tuple[Kind, object]] = {
    "text": (Text(), "a"),
    "file": (Text(file=True), "a.csv"),
    "choice": (Choice(("one", "two")), "one"),
    "own": (Choice(("one", "two"), own=True), "mine:function"),
    "flag": (Flag(), True),
    "whole": (Whole(1), 3),
    "number": (Number(0, 1), 0.5),
    "open": (Number(above=0), 1e300),
    "compute": (Quantity(above=0, per="compute"), "3 GFLOPS"),
    "rate": (Quantity(above=0, per="rate"), "4 MB/s"),
    "size": (Quantity(above=0, per="size"), "512 MB"),
    "table": (Table(), {"a": 1}),
    "list": (Many(Text()), ["a", "b"]),
    "record": (Nested(Schema("", ScenarioError, (Field("a", Whole(1), "a number"),))), {"a": 1}),
}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted(KINDS)), anything)
def test_any_value_is_read_or_refused_in_one_sentence_that_names_the_key(name, value):
    sentence = "[box] key is fine"
    try:
        KINDS[name][0].read(value, "[box] key", ScenarioError)
    except (ScenarioError, UnitError) as error:
        sentence = str(error)
    assert sentence.startswith(("[box] key ", "[box] key["))
    assert "\n" not in sentence


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_any_value_of_a_wrong_kind_is_refused(name, data):
    kind, good = KINDS[name]
    kind.read(good, "[box] key", ScenarioError)
    others = [other for other, (_, value) in KINDS.items() if type(value) is not type(good)]
    wrong = KINDS[data.draw(st.sampled_from(others))][1]
    if type(wrong) is int and isinstance(kind, Number) and not isinstance(kind, Quantity):
        return  # 3 is as good as 3.0
    with pytest.raises((ScenarioError, UnitError), match=r"^\[box\] key"):
        kind.read(wrong, "[box] key", ScenarioError)


def test_a_list_that_is_too_short_is_refused_from_a_file_and_from_python():
    kind = Many(Whole(1), 2)
    for take in (kind.read, kind.check):
        assert take([1, 2], "[box] key", ScenarioError) == (1, 2)
        with pytest.raises(ScenarioError, match=r"^\[box\] key is \[1\], but must be a list of at least 2"):
            take([1], "[box] key", ScenarioError)


@given(st.floats() | st.integers(), st.floats(-5, 5), st.floats(0, 5), st.booleans(), st.booleans())
def test_a_number_is_held_as_its_bounds_say_alone_and_in_an_array(value, low, width, above, below):
    high = low + width
    kind = Number(
        None if above else low, None if below else high, low if above else None, high if below else None
    )
    good = (value > low if above else value >= low) and (value < high if below else value <= high)
    assert bool(kind.holds(value)) == good
    assert kind.holds(np.array([float(value)]))[0] == kind.holds(float(value))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Number(), "a finite number"),
        (Number(0), "a finite number of at least 0"),
        (Number(0, 1), "a number from 0 to 1"),
        (Number(0, below=1), "a number of at least 0 and below 1"),
        (Number(above=0, most=1), "a number above 0 and at most 1"),
        (Number(above=0, most=math.inf), "a number above 0"),
        (Number(above=0, unit="seconds"), "a finite number of seconds above 0"),
        (Whole(0), "a whole number of at least 0"),
        (Whole(1, 9), "a whole number from 1 to 9"),
        (Choice(("a", "b", "c")), "a, b or c"),
        (Choice(("a",), own=True), "a or your own"),
    ],
)
def test_bounds_are_told_in_words(kind, words):
    assert kind.allowed == words


def test_numpys_numbers_are_numbers_and_true_is_none():
    assert type(Whole(1).check(np.int64(3), "it", ScenarioError)) is int
    assert type(Number().check(np.float32(0.5), "it", ScenarioError)) is float
    for kind in (Whole(0), Number()):
        with pytest.raises(ScenarioError, match="it is True, but must be"):
            kind.check(True, "it", ScenarioError)


def test_a_value_is_quoted_from_its_beginning():
    assert quote("a" * 100) == repr("a" * 100)[:60] + "…"
    assert quote(10**5000).startswith("0x")


@described("the note", ScenarioError, open=True)
@dataclass(frozen=True)
class Note:
    """A table that somebody else may have written."""

    text: Annotated[str, ForeignText(), "what it says"]
    seconds: Annotated[float | None, Number(0), "how long it took"] = 7.0
    boxes: Annotated[tuple[Box, ...], Many(Nested(Box)), "what came with it"] = ()
    by: Annotated[dict[str, str], Named(ForeignText()), "who says so"] = field(default_factory=dict)


def test_an_open_table_passes_over_what_it_does_not_know_and_refuses_the_rest_as_any_other():
    assert read(Note, {"text": "a", "later": {}, "seconds": None}) == Note("a")
    assert told({"txt": "a"}, Note) == "the note lacks text: add text, text"
    assert told({"text": "a", "by": {"x": 3}}, Note) == (
        "the note by is {'x': 3}, but must be a table of names, each with text"
    )
    assert schema_of(Note).json_schema()["additionalProperties"] is True


def test_what_a_terminal_must_not_be_shown_is_marked_in_texts_and_names():
    found = read(Note, {"text": "\x1b[2J\ud800", "by": {"\x07a": "b\u202e"}})
    assert (found.text, found.by) == ("\ufffd[2J\ufffd", {"\ufffda": "b\ufffd"})


def test_an_object_becomes_the_table_that_it_is_read_from():
    note = Note("a", None, (Box(name="a", wide=1.0, high=2.5),), {"me": "yes"})
    written = table(note)
    assert written["boxes"] == [{"name": "a", "count": 3, "wide": 1.0, "high": 2.5}]
    assert read(Note, json.loads(json.dumps(written | {"seconds": 0.5}))) == replace(note, seconds=0.5)


rows = st.fixed_dictionaries(
    {"text": st.text(max_size=3) | st.just(7)},
    optional={
        "seconds": st.none() | st.floats() | st.integers() | st.just("1"),
        "boxes": st.lists(st.sampled_from([GOOD, {**GOOD, "count": 0}]), max_size=2),
        "other": st.none(),
    },
)


@given(st.lists(rows | st.none(), max_size=4) | st.builds(lambda row, n: [row] * n, rows, st.integers(1, 4)))
def test_many_tables_at_once_are_read_and_refused_as_each_is_alone(tables):
    try:
        alone = [read(Note, one) for one in tables]
    except ScenarioError:
        with pytest.raises((ValueError, ScenarioError)):
            read_all(Note, tables)
    else:
        assert read_all(Note, tables) == alone


@given(
    st.sampled_from(sorted(KINDS)), st.lists(st.floats() | st.integers() | st.sampled_from(["3 GFLOPS", "a"]))
)
def test_a_column_of_values_is_read_and_refused_as_each_is_alone(name, values):
    kind = KINDS[name][0]
    try:
        alone = [kind.parse(value) for value in values]
    except (ValueError, ScenarioError, UnitError):
        with pytest.raises((ValueError, ScenarioError, UnitError)):
            kind.parse_all(values)
    else:
        assert kind.parse_all(values) == alone


def test_the_mistakes_of_a_table_inside_a_table_name_their_place():
    schema = Schema("the list", ScenarioError, (Field("rows", Many(Nested(Box)), "boxes"),))
    assert schema.read({"rows": [GOOD]}) == {"rows": (read(Box, GOOD),)}
    with pytest.raises(ScenarioError, match=r"^the list rows\[1\] count is 0, but must be"):
        schema.read({"rows": [GOOD, GOOD | {"count": 0}]})
