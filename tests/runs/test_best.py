"""The best model is kept, a run ends where it gets no better, and both survive a stop."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from collecting import run
from small_study import small_study

from cutwater.base.errors import CutwaterError, RunError
from cutwater.execute import local
from cutwater.runs import metrics
from cutwater.runs.checkpoint import load_run
from cutwater.scenario.goal import Goal, Target
from cutwater.scenario.settings import TrainSettings
from cutwater.train.aggregate import weights_sha256


def by_round(**train):
    """A study whose metric "score" goes up and down, yet follows from the weights alone."""
    return small_study(train={"rounds": 8, **train}, metrics={"score": hashed})


def hashed(outputs, labels):
    return float(outputs.double().sum() * 1000 % 1)


def before(last, round_):
    return round_.record.round < last


def told(folder):
    return [replace(line, wall_seconds=0.0) for line in metrics.read(folder / "metrics.jsonl")]


@pytest.mark.parametrize("goal", ["accuracy", "test_loss", "min score", "max score"])
def test_the_best_model_is_that_of_the_best_round(tmp_path, goal):
    run(by_round(keep_best=goal), tmp_path / "run")
    lines = told(tmp_path / "run")
    parsed = Goal.parse(goal)
    values = [line.value(parsed.metric) for line in lines]
    best = load_run(tmp_path / "run", best=True)
    # The first of equals, since a later one is not better.
    assert best.round == 1 + values.index(parsed.best(values))
    assert weights_sha256(best.weights) == lines[best.round - 1].weights_sha256
    assert (best.best.metric, best.best.value) == (parsed.metric, parsed.best(values))
    assert lines[-1].best.round == best.round
    assert load_run(tmp_path / "run").round == 8


def test_patience_ends_a_run_and_says_why(tmp_path):
    study = by_round(keep_best="max score", patience=1)
    trained = local.run(study, tmp_path / "run")
    lines = told(tmp_path / "run")
    assert len(lines) < 8
    assert lines[-1].stopped == trained.stopped
    assert trained.stopped.startswith("stopped early: score was not better than in round")
    assert lines[-1].best.waited == 1
    assert all(line.stopped is None for line in lines[:-1])
    values = [line.metrics["score"] for line in lines]
    assert values[-1] <= max(values[:-1])
    assert all(later > max(values[:place]) for place, later in enumerate(values[:-1]) if place)


def test_a_run_that_ran_out_of_patience_stays_ended_and_goes_on_with_more(tmp_path):
    study = by_round(keep_best="max score", patience=1)
    run(study, tmp_path / "run")
    ended = told(tmp_path / "run")
    assert run(study, tmp_path / "run", resume=True) == []
    assert told(tmp_path / "run") == ended
    assert run(by_round(keep_best="max score", patience=5), tmp_path / "run", resume=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_a_callback_stops_and_another_resumes_is_as_if_never_stopped(tmp_path, workers):
    study = by_round(keep_best="max score", patience=3)
    local.run(study, tmp_path / "whole")
    for last in (1, 2, 4):
        local.run(
            study,
            tmp_path / "parts",
            resume=last > 1,
            workers=workers,
            callbacks=[partial(before, last)],
        )
    local.run(study, tmp_path / "parts", resume=True, workers=workers)
    assert told(tmp_path / "parts") == told(tmp_path / "whole")
    one, other = (load_run(tmp_path / name, best=True) for name in ("parts", "whole"))
    assert (one.round, one.best) == (other.round, other.best)
    assert all(torch.equal(tensor, other.weights[name]) for name, tensor in one.weights.items())


def test_a_callback_that_returns_false_stops_after_the_round_and_it_is_said(tmp_path):
    said = []
    trained = local.run(
        small_study(), tmp_path / "run", callbacks=[lambda round_: round_.record.round < 2], say=said.append
    )
    assert trained.progress.round == len(told(tmp_path / "run")) == 2
    assert trained.stopped == "stopped after round 2: a callback returned False"
    assert said == [trained.stopped]
    assert local.run(small_study(), callbacks=[lambda round_: None]).stopped is None


def test_another_goal_begins_anew(tmp_path):
    run(by_round(rounds=3, keep_best="max score"), tmp_path / "run")
    rounds = run(by_round(rounds=5, keep_best="test_loss"), tmp_path / "run", resume=True)
    assert rounds[0].record.best.round == 4
    assert load_run(tmp_path / "run", best=True).best.metric == "test_loss"


def test_a_damaged_best_model_is_never_taken_for_a_whole_one(tmp_path):
    run(by_round(rounds=2, keep_best="accuracy"), tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "best.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CutwaterError, match=r"best\.safetensors is damaged"):
        load_run(tmp_path / "run", best=True)


def test_a_run_without_a_best_model_says_what_keeps_one(tmp_path):
    run(small_study(train={"rounds": 1}), tmp_path / "run")
    with pytest.raises(RunError, match="keeps no best model: keep_best of TrainSettings would have"):
        load_run(tmp_path / "run", best=True)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"keep_best": "f1"}, "keep_best is 'f1', but must be accuracy, test_loss, mae, rmse, or 'max NAME'"),
        ({"keep_best": "most f1"}, "keep_best is 'most f1', but must be"),
        ({"keep_best": " "}, "keep_best is ' ', but must be"),
        ({"patience": 3}, "TrainSettings patience is 3, but there is no keep_best"),
    ],
)
def test_goals_that_say_nothing_are_refused(train, message):
    with pytest.raises(CutwaterError, match=message):
        TrainSettings(**train)


def test_a_goal_that_no_metric_has_is_refused_before_the_first_round():
    with pytest.raises(RunError, match="keep_best is 'max f1', but this run has no metric 'f1'"):
        small_study(train={"keep_best": "max f1"})
    with pytest.raises(RunError, match="no metric 'mae'"):
        small_study(train={"keep_best": "mae"})


@pytest.mark.parametrize("text", ["f1", "f1>0.9", "f1>=", ">=0.9", "f1>=nan", "f1>=much", "a b>=1"])
def test_what_is_no_target_is_one_sentence(text):
    with pytest.raises(CutwaterError, match="can't be read: write a metric, >= or <=, and a number"):
        Target.parse(text)


def test_a_target_is_reached_in_its_direction():
    more, less = Target.parse("f1 >= 0.9"), Target.parse("loss<=1e-1")
    assert [more.reached(value) for value in (0.8, 0.9, None)] == [False, True, False]
    assert [less.reached(value) for value in (0.2, 0.1)] == [False, True]
