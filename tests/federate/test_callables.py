"""Optimizers and schedules as Python has them: classes and functions, not only their names."""

from functools import partial

import pytest
import torch
from collecting import run
from small_study import small_study

from cutwater.base.errors import CutwaterError, RunError


def digest(**train):
    # No momentum, which not every optimizer takes.
    return run(small_study(train={"rounds": 2, "momentum": 0.0, **train}))[-1].record.weights_sha256


def test_a_class_of_torch_is_the_optimizer_of_that_name():
    assert digest(optimizer=torch.optim.AdamW, lr=0.01) == digest(optimizer="adamw", lr=0.01)
    options = {"betas": [0.8, 0.9]}
    assert digest(optimizer=torch.optim.Adam, optimizer_options=options) == digest(
        optimizer="adam", optimizer_options=options
    )


def test_a_function_of_the_parameters_keeps_its_own_rate_which_the_schedule_scales():
    own = partial(torch.optim.AdamW, lr=0.01)
    assert digest(optimizer=own, lr=0.5) == digest(optimizer="adamw", lr=0.01)
    halves = {"schedule": "step", "gamma": 0.5, "every": 1}
    made = lambda parameters: torch.optim.AdamW(parameters, lr=0.01)  # noqa: E731
    assert digest(optimizer=made, lr=0.5, **halves) == digest(optimizer="adamw", lr=0.01, **halves)


def test_a_function_that_takes_the_rate_is_given_it():
    made = lambda parameters, lr: torch.optim.SGD(parameters, lr=lr)  # noqa: E731
    assert digest(optimizer=made, lr=0.02) == digest(optimizer="sgd", lr=0.02)


def test_a_function_is_a_schedule():
    assert digest(schedule=lambda round_: 0.5 ** (round_ - 1)) == digest(schedule="exponential", gamma=0.5)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"optimizer": torch.optim.LBFGS}, "can't be used: its line search"),
        ({"optimizer": lambda parameters: None}, "made NoneType, but must make a torch.optim.Optimizer"),
        ({"optimizer": 3}, "TrainSettings optimizer is 3, but must be text"),
        ({"schedule": lambda round_: -1.0}, "gave -1.0 for round 1, but must give a factor"),
        ({"schedule": 3}, "TrainSettings schedule is 3, but must be text"),
        ({"loss": print}, r"TrainSettings loss is .*give the function to Study.of\(loss=...\)"),
        ({"metrics": [print]}, r"TrainSettings metrics is .*to Study.of\(metrics={name: function}\)"),
        ({"metrics": {"p": print}}, r"TrainSettings metrics is .*to Study.of\(metrics={name: function}\)"),
    ],
)
def test_what_can_not_train_is_one_sentence_before_the_first_round(train, message):
    with pytest.raises(CutwaterError, match=message):
        small_study(train={"momentum": 0.0, **train})


def test_a_schedule_that_fails_is_told_with_file_and_line():
    def broken(round_):
        raise KeyError(round_)

    with pytest.raises(RunError, match=r"failed at round 1 \(KeyError: 1, at .*test_callables.py:\d+\)"):
        small_study(train={"schedule": broken})


def test_a_run_goes_on_only_with_the_same_optimizer_and_the_values_that_it_carries(tmp_path):
    def study(rate):
        return small_study(
            train={"rounds": 1, "momentum": 0.0, "optimizer": partial(torch.optim.AdamW, lr=rate)}
        )

    assert study(0.01).fingerprint() == study(0.01).fingerprint()
    assert study(0.01).fingerprint() != study(0.02).fingerprint()
    run(study(0.01), tmp_path / "run")
    with pytest.raises(RunError, match=r"they differ in train\.optimizer"):
        run(study(0.02), tmp_path / "run", resume=True)


def test_python_is_told_of_arguments_and_a_scenario_of_keys(tmp_path):
    run(small_study(train={"rounds": 1}), tmp_path / "run")
    with pytest.raises(RunError, match="go on with it by resume=True"):
        run(small_study(train={"rounds": 1}), tmp_path / "run")
    with pytest.raises(
        CutwaterError, match=r"^TrainSettings quorum is 3, but must be at most clients_per_round"
    ):
        small_study(train={"quorum": 3, "clients_per_round": 2})
