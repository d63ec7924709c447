"""An evaluation of one's own: a function of the model whose numbers count as metrics do."""

import json

import pytest
import torch
from collecting import run
from small_study import small_data, small_study
from torch import nn
from typer.testing import CliRunner

from cutwater.base.errors import RunError, ScenarioError
from cutwater.cli.main import app
from cutwater.data.custom import from_datasets
from cutwater.execute import local
from cutwater.execute.finished import evaluate
from cutwater.runs import metrics
from cutwater.runs.checkpoint import load_run
from cutwater.scenario.settings import TrainSettings

PROBE = torch.randn(9, 6, generator=torch.Generator().manual_seed(8))


def probe(model):
    """Numbers that follow from the weights alone, one of which goes up and down."""
    outputs = model(PROBE)
    return {"size": outputs.norm(), "wave": float(outputs.double().sum() * 1000 % 1)}


def untested():
    return from_datasets(small_data().train._dataset, classes=3, name="clusters")


def test_its_numbers_are_recorded_whoever_trains_and_change_no_training(tmp_path):
    study = small_study(
        train={"rounds": 2}, metrics={"m": lambda outputs, labels: outputs.mean()}, evaluate=probe
    )
    alone = run(study, tmp_path / "run", workers=1)
    together, without = run(study, workers=2), run(small_study(train={"rounds": 2}))
    assert [one.record.metrics for one in alone] == [one.record.metrics for one in together]
    assert alone[-1].record.metrics.keys() == {"m", "size", "wave"}
    assert [one.record.weights_sha256 for one in alone] == [one.record.weights_sha256 for one in without]
    lines = metrics.read(tmp_path / "run" / "metrics.jsonl")
    assert [line.metrics for line in lines] == [one.record.metrics for one in alone]
    assert study.fingerprint() == small_study(train={"rounds": 2}).fingerprint()
    found = evaluate(study, alone[-1].progress.weights)
    assert found.values == alone[-1].record.scores


def test_whatever_it_does_to_its_model_stays_with_it_and_what_it_draws_is_the_same():
    seen = []

    def rough(model):
        seen.append((model.training, torch.is_grad_enabled(), torch.get_num_threads()))
        drawn = float(torch.rand(1))
        model.train()(PROBE)
        for weight in model.parameters():
            weight.zero_()
        return {"drawn": drawn}

    before = torch.get_rng_state()
    rounds = run(small_study(train={"rounds": 2}, evaluate=rough))
    assert torch.equal(before, torch.get_rng_state())
    assert [one.record.weights_sha256 for one in rounds] == [
        one.record.weights_sha256 for one in run(small_study(train={"rounds": 2}))
    ]
    assert len({one.record.metrics["drawn"] for one in rounds}) == 1
    assert seen == [(False, False, 1)] * 3, "before the first round, and after each"


def test_without_a_test_set_a_run_is_scored_kept_and_ended_by_it(tmp_path):
    study = small_study(
        data=untested(), train={"rounds": 8, "keep_best": "max wave", "patience": 1}, evaluate=probe
    )
    said = []
    trained = local.run(study, tmp_path / "run", say=said.append)
    lines = metrics.read(tmp_path / "run" / "metrics.jsonl")
    waves = [line.metrics["wave"] for line in lines]
    assert all(line.test_loss is None for line in lines)
    assert said == [trained.stopped]
    assert trained.stopped.startswith("stopped early: wave was not better")
    best = load_run(tmp_path / "run", best=True)
    assert best.round == 1 + waves.index(max(waves))
    assert evaluate(study, best.weights).values["wave"] == max(waves)
    target = f"size>={min(line.metrics['size'] for line in lines)}"
    told = CliRunner().invoke(app, ["runs", str(tmp_path / "run"), "--target", target, "--json"])
    assert told.exit_code == 0, told.output
    assert "size" in json.dumps(json.loads(told.stdout))


def test_it_is_asked_as_often_as_the_model_is_evaluated():
    calls = []
    run(small_study(train={"rounds": 5, "evaluate_every": 2}, evaluate=lambda model: calls.append(1) or {}))
    assert len(calls) == 1 + 3


def broken(model):
    raise KeyError("questions")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda model: 0.5, r"evaluate failed \(TypeError: it returned float.*numbers by name, such as"),
        (lambda model: {"f1": torch.ones(2)}, r"'f1' is a tensor of shape \[2\]"),
        (lambda model: {"f1": "good"}, "could not convert string to float"),
        (lambda model: {"accuracy": 0.5}, "evaluate returned 'accuracy', but .* none of accuracy, test_loss"),
        (lambda model: {"m": 0.5}, "evaluate returned 'm', but .* none of .*, m: choose another"),
        (lambda model: {"top 5": 0.5}, "evaluate returned 'top 5', but a number has a name without spaces"),
        (lambda model: {3: 0.5}, "evaluate returned 3, but"),
        (broken, r"KeyError: 'questions', at .*test_own_evaluation\.py:\d+"),
    ],
)
def test_what_it_may_not_return_ends_the_run_before_its_first_round(function, reason):
    study = small_study(train={"rounds": 1}, metrics={"m": lambda outputs, labels: 0.0}, evaluate=function)
    seen = []
    with pytest.raises(RunError, match=reason):
        local.run(study, callbacks=[seen.append])
    assert not seen


def test_a_goal_that_it_says_nothing_of_is_refused_before_the_first_round():
    study = small_study(train={"rounds": 1, "keep_best": "max waves"}, evaluate=probe)
    with pytest.raises(RunError, match=r"no metric 'waves'; did you mean 'wave'\?.*returned by evaluate"):
        run(study)
    with pytest.raises(RunError, match="keep_best is 'accuracy', but 'clusters' has no test set"):
        small_study(data=untested(), train={"keep_best": "accuracy"}, evaluate=probe)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "evaluate is 3, but must be a function: it takes the model"),
        ("os:path", r"evaluate is 'os:path', but must be a function.*TrainSettings\(evaluate="),
    ],
)
def test_what_is_no_function_is_refused(given, reason):
    with pytest.raises(RunError, match=reason):
        small_study(evaluate=given)


def test_settings_name_it_and_python_gives_it_to_the_study():
    with pytest.raises(ScenarioError, match=r"evaluate is .*, but must be a name: .*Study.of\(evaluate="):
        TrainSettings(evaluate=probe)
    with pytest.raises(RunError, match="evaluate 'no_such:thing' can't be imported"):
        small_study(train={"evaluate": "no_such:thing"})
    (after,) = run(small_study(train={"rounds": 1, "evaluate": "test_own_evaluation:probe"}))
    assert after.record.metrics.keys() == {"size", "wave"}


def test_it_gets_the_users_own_model():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.last(torch.relu(self.first(x)))

        def certainty(self, x):
            return self(x).softmax(1).amax(1).mean()

    study = small_study(model=Net(), train={"rounds": 1}, evaluate=lambda net: {"sure": net.certainty(PROBE)})
    assert 0 < run(study)[0].record.metrics["sure"] <= 1
