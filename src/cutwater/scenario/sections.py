"""All sections of a scenario file: from here follow its checks, its reference and its JSON Schema.

A further section is a described dataclass and a line in SECTIONS; a further key is a field of its class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from cutwater.base.errors import ScenarioError
from cutwater.base.kinds import Choice, JsonSchema, Kind, Many, Number, Table, Text, Whole
from cutwater.base.schema import Field, Schema, Told, check, described, schema_of
from cutwater.plan.fleet import Client
from cutwater.plan.prices import Prices
from cutwater.plan.problem import Server, SharedLink
from cutwater.plan.session import Session, Wires
from cutwater.profile.options import check_option
from cutwater.profile.values import COUNTS
from cutwater.scenario.generate import FLEET
from cutwater.scenario.judging import JudgeSettings
from cutwater.scenario.settings import ConditionSettings, DataSettings, TrainSettings


@described("[model]", ScenarioError)
@dataclass(frozen=True)
class ModelSpec:
    """The [model] table: which model, and how its cost is counted."""

    name: Annotated[
        str,
        Text(),
        "a model by name (an unknown one lists them all) or your own as `package.module:function`, which "
        "returns a torch module and may take `input` and `classes`",
    ]
    input: Annotated[
        str,
        Text(),
        'one sample: `"1x28x28"` for an image, `"128"` for so many tokens; `"floats:128"` or `"tokens:128"` '
        "where your own model leaves it open; several by the names that its forward gives them, as "
        '`"input_ids=128,attention_mask=128"`',
    ] = "1x28x28"
    classes: Annotated[int | None, Whole(1, quoted=True), "number of classes"] = 10
    count: Annotated[
        str,
        Choice(COUNTS),
        "`exact` (what really runs) or `paper` (mult-adds, a backward pass of κ forward passes)",
    ] = "exact"
    kappa: Annotated[float | None, Number(above=0), "κ of `paper`; 4.7 if not given"] = None
    optimizer: Annotated[
        str,
        Text(),
        "whose state counts in a client's memory: `sgd`, `momentum`, `adam` …; for one of your own `adam` "
        "is taken",
        Told("that of `[train]`"),
    ] = "sgd"
    options: Annotated[
        Mapping[str, Any] | None, Table(), "arguments of the model, such as `{ depth = 24 }`", Told("`{}`")
    ] = None

    def __post_init__(self) -> None:
        check(self)
        for option in self.options or ():
            check_option(option, f"[model] option {option!r}")

    @property
    def given(self) -> dict[str, Any]:
        """The table of what is known: what is None is left to others."""
        return {key: value for key, value in vars(self).items() if value is not None}


_TABLE = Table()


@dataclass(frozen=True)
class TableList(Many):
    """Tables of one kind, as TOML lists them."""

    each: Kind = _TABLE

    def _allowed(self) -> str:
        return "tables, each under its own [[…]]"

    def label(self, key: str) -> str:
        """As TOML begins each of them."""
        return f"[[{key}]]"


@dataclass(frozen=True)
class Section:
    """One section of a scenario file."""

    key: str
    meaning: str
    schema: Schema
    made: type | None = None
    """What training makes of it; planning keeps it as it stands."""
    many: bool = False

    @property
    def title(self) -> str:
        """As TOML begins it."""
        return f"[[{self.key}]]" if self.many else f"[{self.key}]"


SECTIONS = {
    section.key: section
    for section in (
        Section("model", "which model, and how its cost is counted", schema_of(ModelSpec)),
        Section("server", "the parameter server", schema_of(Server)),
        Section("uplink", "one line to the server that all clients share", schema_of(SharedLink)),
        Section("downlink", "one line from the server that all clients share", schema_of(SharedLink)),
        Section("session", "how much a client trains in one round", schema_of(Session)),
        Section("wire", "how smashed data and gradients may cross a cut", schema_of(Wires)),
        Section("client", "one device; the columns of a CSV file are the same", schema_of(Client), many=True),
        Section("fleet", "clients that are drawn: each key but clients and seed is a column", FLEET),
        Section("prices", "what more of each thing costs", schema_of(Prices)),
        Section("data", "which samples there are and who holds them", schema_of(DataSettings), DataSettings),
        Section("train", "how long, with what, and with whom", schema_of(TrainSettings), TrainSettings),
        Section(
            "conditions",
            "how the truth departs from the scenario",
            schema_of(ConditionSettings),
            ConditionSettings,
        ),
        Section("judge", "what an update may be before it counts", schema_of(JudgeSettings), JudgeSettings),
    )
}
LATER = tuple(section.key for section in SECTIONS.values() if section.made is not None)
"""Sections that planning keeps but does not read."""
_NEEDED = ("server", "session")
TOP = Schema(
    "the scenario",
    ScenarioError,
    (
        Field(
            "profile",
            Text(file=True),
            "a saved profile, which is planned from without torch; training needs `[model]`",
            told="needed, or `[model]`",
        ),
        Field(
            "clients",
            Text(file=True),
            "a CSV file whose columns are the keys of `[[client]]`; cuts in `forbidden` have spaces between "
            "them",
            told="needed, or `[[client]]` or `[fleet]`",
        ),
        *(
            Field(
                section.key,
                TableList() if section.many else _TABLE,
                section.meaning,
                told="" if section.key in _NEEDED else "none",
            )
            for section in SECTIONS.values()
        ),
    ),
    either=((("profile",), ("model",)), (("client",), ("clients",), ("fleet",))),
)
"""The keys at the top of a file, sections among them."""


def json_schema() -> JsonSchema:
    """The JSON Schema of a scenario file, for editors."""
    schema = TOP.json_schema()
    for section in SECTIONS.values():
        table = {"description": section.meaning} | section.schema.json_schema()
        whole: JsonSchema = {"type": "array", "items": table, "minItems": 1} if section.many else table
        schema["properties"][section.key] = whole
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A scenario of Cutwater",
        **schema,
    }
