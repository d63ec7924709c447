"""`cutwater coverage`: what becomes of models that are right, wrong or refused, and the page about them."""

import json

import pytest
import sample_models as models
import torch
from torch import nn
from typer.testing import CliRunner

from cutwater.base.errors import ModelError
from cutwater.cli.main import app
from cutwater.coverage import one_step
from cutwater.coverage.case import CLASSES, Case, Result
from cutwater.coverage.checks import check, try_remedy
from cutwater.coverage.models import all_cases
from cutwater.coverage.page import page
from cutwater.coverage.run import choose


def vectors(batch, size):
    return torch.randn(batch, size)


def case(build, inputs=vectors, sizes=(6,)):
    return Case("here", "model", build, inputs, sizes)


class Broken(models.Deep):
    def forward(self, x):
        raise ValueError("out of order")


class TiedEnds(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x):
        return self.last(self.second(self.first(x)).relu())


@pytest.mark.parametrize(
    ("build", "outcome", "reason"),
    [
        (models.Deep, "right", ""),
        (models.Deciding, "refused", "decides by the values of a tensor"),
        (Broken, "skipped", "ValueError: out of order"),
        (TiedEnds, "right", ""),
    ],
)
def test_a_model_ends_in_its_class(build, outcome, reason):
    result = check(case(build))
    assert (result.outcome, reason in result.reason) == (outcome, True)


def test_a_model_tied_at_both_ends_is_checked_in_three_parts(monkeypatch):
    result = check(case(TiedEnds))
    assert (result.tied, result.cuts, result.outcome) == (True, 2, "right")
    right = one_step._back
    monkeypatch.setattr(one_step, "_back", lambda kept, sent, more: right(kept, sent, ()))
    result = check(case(TiedEnds))
    assert result.outcome == "wrong"
    assert "at cuts 1-2" in result.reason


def test_a_remedy_is_done_as_it_is_printed():
    model = models.Deep()
    row = "hand them over: cutwater.layered(model, example, layers=[model.stem, *model.blocks, model.head])"
    assert try_remedy(row, model, vectors(2, 6)) == "works"
    wrong = row.replace("*model.blocks", "model.blocks.0")
    assert try_remedy(wrong, model, vectors(2, 6)).startswith("fails: the layers handed over")
    assert (
        try_remedy("it can be with model.stem.dropped = 0.0, so set that first", model, vectors(2, 6))
        == "works"
    )
    assert model.stem.dropped == 0.0
    assert try_remedy("if it is a row of steps, hand them over", model, vectors(2, 6)) == "general"


def test_another_length_is_tried():
    result = check(case(models.Decoder, lambda batch, size: torch.randint(0, 11, (batch, size)), (7, 5)))
    assert (result.outcome, result.other_size) == ("right", "works")
    assert result.cuts >= result.blocks - 1


def test_the_list_is_long_and_its_keys_are_distinct():
    cases = all_cases()
    assert len({each.key for each in cases}) == len(cases) >= 150
    assert len({each.library for each in cases}) >= 8
    assert {each.library for each in choose(cases, ["timm"])} == {"timm"}
    with pytest.raises(ModelError, match="no library or model of the list is named 'tim'"):
        choose(cases, ["tim"])


def test_the_page_counts_and_names_what_is_not_right():
    results = [Result("one", "good", other_size="works"), Result("one", "bad").ends("wrong", "x differs")]
    text = page([*results, Result("two", "absent").ends("skipped", "two is not installed")])
    assert "**1 of 2 right.**" in text
    assert f"| one | {' | '.join(str(int(name in ('right', 'wrong'))) for name in CLASSES)} |" in text
    assert "- one bad: wrong. x differs" in text
    assert "- two absent: skipped. two is not installed" in text


def test_the_command_checks_models_in_processes_of_their_own(tmp_path):
    written = tmp_path / "coverage.md"
    result = CliRunner().invoke(app, ["coverage", "torch", "--json", "--page", str(written)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {each["library"] for each in found} == {"torch"}
    assert [each["outcome"] for each in found if each["name"] == "TransformerEncoder"] == ["right"]
    assert "| torch " in written.read_text()


def test_a_model_that_takes_too_long_is_given_up_and_the_next_one_checked():
    command = ["coverage", "torch/Transformer", "torch/TransformerEncoder", "--json", "--seconds", "1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [each["reason"] for each in json.loads(result.stdout)] == ["takes longer than 1 seconds"] * 2
