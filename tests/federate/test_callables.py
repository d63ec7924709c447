"""Optimizers, schedules, planners and partitions as Python has them: functions, not only their names."""

from functools import partial

import pytest
import torch
from collecting import run
from small_study import small_study

from cutwater import DataSettings, solve
from cutwater.base.errors import CutwaterError, RunError
from cutwater.extend import Partition, assemble


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


# ---- planners ----


def all_at(problem, /, *, cut=1):
    return assemble(problem, "all-at", cut, problem.server.compute / len(problem))


def test_a_function_plans_the_rounds_of_a_study(tmp_path):
    study = small_study(train={"rounds": 1}, planner=all_at, planner_options={"cut": 2})
    (after,) = run(study, tmp_path / "run")
    assert {part.cut for part in after.outcome.parts} == {2}
    assert (study.planner_name, after.outcome.plan.planner) == ("all_at", "all-at")
    named = small_study(train={"rounds": 1}, planner="test_callables:all_at", planner_options={"cut": 2})
    assert run(named)[0].outcome.plan.latency == after.outcome.plan.latency
    problem = study.problem(study.fleet)
    assert solve(problem, all_at, cut=3).latency == solve(problem, "test_callables:all_at", cut=3).latency
    assert {part.cut for part in run(study.with_planner(all_at))[0].outcome.parts} == {1}


def test_a_run_goes_on_only_with_the_planner_and_the_values_that_it_carries(tmp_path):
    def study(cut):
        return small_study(train={"rounds": 1}, planner=lambda problem: all_at(problem, cut=cut))

    assert study(1).fingerprint() == study(1).fingerprint() != study(2).fingerprint()
    assert small_study().fingerprints()["planner"] == small_study(planner="exact").fingerprints()["planner"]


def failing(problem):
    raise KeyError("cuts")


@pytest.mark.parametrize(
    ("planner", "message"),
    [
        (3, "planner is 3, but must be a name or a function of a Problem"),
        ("exakt", "there is no planner 'exakt': did you mean 'exact'.*your own is package.module:function"),
        ("no_such:thing", "planner 'no_such:thing' can't be imported"),
        (lambda: None, "planner '<lambda>' takes nothing, but must be a function of a Problem"),
        (lambda problem: 3, "planner '<lambda>' returned int, but must return a Plan"),
        (failing, r"planner 'failing' failed \(KeyError: 'cuts', at .*test_callables\.py:\d+\)"),
    ],
)
def test_what_is_no_planner_is_one_sentence(planner, message):
    with pytest.raises(CutwaterError, match=message):
        run(small_study(train={"rounds": 1}, planner=planner))


def test_an_option_that_a_function_does_not_name_is_refused():
    with pytest.raises(CutwaterError, match="planner 'all_at' has no option 'cuts': did you mean 'cut'"):
        small_study(planner=all_at, planner_options={"cuts": 1})


# ---- partitions ----


def in_turn(data, samples):
    """Each client takes the next samples, as many as it has, in the fleet's order turned round."""
    starts, at = {}, 0
    for name, count in samples.items():
        starts[name] = range(at, at + count)
        at += count
    assert at <= len(data.train)
    return dict(reversed(starts.items()))


def drawn(data, samples):
    order = torch.randperm(len(data.train)).tolist()
    return {name: [order.pop() for _ in range(count)] for name, count in samples.items()}


def test_a_function_shares_the_data_out():
    given = small_study(share_out=in_turn).partition
    assert given.clients == tuple(f"c{k}" for k in range(6))
    assert given["c1"].train.tolist() == list(range(20, 41))
    named = small_study(share_out=DataSettings(partition="test_callables:in_turn", local_test=0.5)).partition
    assert (len(named["c1"].train), len(named["c1"].test)) == (11, 10)
    held = {name: given[name].train.tolist() for name in given.clients}
    assert (
        small_study(share_out=held).fingerprint() == small_study(share_out=Partition.of(held)).fingerprint()
    )


def test_a_function_that_shares_well_is_not_asked_for_its_name():
    class Nameless:
        def __call__(self, data, samples):
            return in_turn(data, samples)

        def __repr__(self):
            raise RuntimeError("no name yet")

    assert small_study(share_out=Nameless()).partition.clients == tuple(f"c{k}" for k in range(6))


def test_what_a_partition_draws_follows_from_the_seed():
    before = torch.get_rng_state()
    one, same, other = (small_study(share_out=drawn, train={"seed": seed}) for seed in (1, 1, 2))
    assert one.partition.order.tolist() == same.partition.order.tolist() != other.partition.order.tolist()
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("share_out", "message"),
    [
        ("iid", r"share_out is 'iid', but must be DataSettings\(partition='iid'\), a Partition"),
        (3, r"share_out is 3, but must be DataSettings\(partition=...\)"),
        (lambda data, samples: 3, r"partition '.*<lambda>' returned int: it takes the data and a dict"),
        (lambda data: {}, r"partition '.*<lambda>' failed \(TypeError: .*: it takes the data and a dict"),
        (lambda data, samples: {"c0": [0]}, "the clients of the partition and of the fleet differ in 'c1'"),
        (
            lambda data, samples: {name: [0] for name in samples},
            "client 'c0' has samples 20, but the part.*1",
        ),
        (lambda data, samples: {n: [999] * s for n, s in samples.items()}, "has position 999, but there are"),
        ({"c0": "all"}, "client 'c0' must hold a list of positions"),
    ],
)
def test_what_is_no_partition_is_one_sentence(share_out, message):
    with pytest.raises(CutwaterError, match=message):
        small_study(share_out=share_out)
