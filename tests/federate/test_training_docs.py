"""The documentation names every setting with its default."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from cutwater.scenario.settings import ConditionSettings, DataSettings, TrainSettings

DOCS = Path(__file__).parents[2] / "docs"


def table(text: str, heading: str) -> dict[str, str]:
    """The keys of the table below a heading, each with its second column."""
    start = text.index(heading)
    section = text[start : text.find("\n## ", start + 1)]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))


def shown(field: dataclasses.Field) -> str:
    """A default as the documentation shows it."""
    if field.name == "mirrors":
        return "known mirrors"
    if field.default is dataclasses.MISSING:
        return f"`{field.default_factory()}`"
    return "none" if field.default is None else f"`{json.dumps(field.default)}`"


@pytest.mark.parametrize(
    ("settings", "heading"),
    [
        (DataSettings, "## `[data]`"),
        (TrainSettings, "## `[train]`"),
        (ConditionSettings, "## `[conditions]`"),
    ],
)
def test_every_setting_is_documented_with_its_default(settings, heading):
    documented = table((DOCS / "training.md").read_text(), heading)
    assert documented == {field.name: shown(field) for field in dataclasses.fields(settings)}
