"""Rounds one after the other: what is averaged, what a failed round leaves, what the clock shows."""

import math
from dataclasses import replace

import pytest
import torch
from collecting import run, tasks_done, trained_by
from small_study import small_clients, small_data, small_model, small_study

from cutwater.base.errors import EngineError, RunError
from cutwater.data.partition import Partition
from cutwater.execute import local
from cutwater.execute.local import LocalTrainer
from cutwater.federate.clock import VirtualClock, clock_only
from cutwater.federate.conditions import Condition, Conditions
from cutwater.federate.loop import play_round, start
from cutwater.federate.round import under
from cutwater.plan.fleet import Held
from cutwater.plan.session import Session
from cutwater.train.aggregate import weights_sha256
from cutwater.train.scores import Score, Scored
from cutwater.train.session import run_both_sides


def test_survivors_are_averaged_by_their_own_samples():
    study = small_study(train={"rounds": 1}, conditions={"dropout": 0.5})
    (step,) = run(study)
    done = step.outcome.done
    assert 0 < len(done) < len(study.fleet)

    tasks = tasks_done(study, step.outcome)
    assert [task.client for task in tasks] == list(done)
    states = []
    for task in tasks:
        result = run_both_sides(study.job(), task, study.initial)
        states.append({name: tensor.clone() for name, tensor in result.state.items()})
    total = sum(task.samples for task in tasks)
    for name, tensor in step.progress.weights.items():
        if tensor.is_floating_point():
            weighted = [
                state[name].double() * task.samples for state, task in zip(states, tasks, strict=True)
            ]
            assert torch.equal(tensor, (sum(weighted) / total).float()), name


@pytest.mark.parametrize("lost", [math.inf, -math.inf, math.nan])
def test_a_test_loss_that_is_no_number_is_none(lost):
    assert Scored.of([Score(6.0, 3, 1, 3), Score(2.0, 1, 1, 1)]).loss == 2.0
    assert Scored.of([Score(6.0, 3, 1, 3), Score(lost, 1, 1, 1)]).loss is None
    assert Scored.of([]) is None


def test_a_round_below_quorum_leaves_the_model_as_it_was_and_training_goes_on():
    study = small_study(train={"rounds": 6, "quorum": 4}, conditions={"dropout": 0.4})
    steps = run(study)
    failed = [step for step in steps if step.record.failed]
    assert failed
    assert len(failed) < len(steps)
    before = weights_sha256(study.initial)
    for step in steps:
        assert (step.record.weights_sha256 == before) == (step.record.failed is not None)
        before = step.record.weights_sha256
        if step.record.failed:
            assert step.record.loss is None
            assert step.record.clients == ()
            assert step.record.bytes_up == step.record.bytes_down == 0
            assert step.record.actual_seconds > 0  # a failed round takes its time all the same


@pytest.mark.parametrize("change", ["constant", "jitter", "markov"])
@pytest.mark.parametrize("estimate", ["nominal", "average"])
def test_the_clock_without_training_is_the_clock_of_training(change, estimate):
    study = small_study(
        train={"rounds": 5, "clients_per_round": 3, "over_selection": 0.5, "deadline": 0.05},
        conditions={"change": change, "estimate": estimate, "dropout": 0.1},
    )
    trained = [step.record.actual_seconds for step in run(study)]
    assert [outcome.seconds for outcome in clock_only(study, 5)] == trained


def test_virtual_time_adds_up_and_the_exact_plan_is_never_slower_than_fedavg():
    study = small_study(train={"rounds": 5, "clients_per_round": 4})
    steps = run(study)
    total = 0.0
    for step in steps:
        total += step.record.actual_seconds
        assert step.record.virtual_seconds == pytest.approx(total)
    fedavg = list(clock_only(study.with_planner("fedavg"), 5))
    assert all(ours.record.actual_seconds <= whole.seconds for ours, whole in zip(steps, fedavg, strict=True))
    assert total < sum(outcome.seconds for outcome in fedavg)


def test_estimates_follow_what_was_seen():
    """A fleet whose devices are half as fast as they say is planned better when the planner watches."""
    trace = {"change": "markov", "degrade": 1.0, "recover": 0.0, "slow_compute": 0.5, "slow_rate": 0.3}
    errors = {}
    for estimate in ("nominal", "last", "average", "true"):
        study = small_study(train={"rounds": 6}, conditions={**trace, "estimate": estimate})
        outcomes = list(clock_only(study, 6))
        errors[estimate] = [abs(o.plan.latency - o.seconds) / o.seconds for o in outcomes]
    assert max(errors["true"]) < 1e-9
    assert max(errors["last"][1:]) < 1e-9
    assert errors["average"][-1] < 0.5 * errors["average"][0]
    assert errors["nominal"][-1] == pytest.approx(errors["nominal"][0])


def test_a_lone_callback_is_refused_before_the_first_round():
    with pytest.raises(EngineError, match="must be a list of them"):
        local.run(small_study(), callbacks=print)


def test_callbacks_see_every_round_and_what_is_returned_is_the_last_weights_and_a_line_for_each():
    seen = []
    trained = local.run(small_study(), callbacks=[lambda round_: seen.append(round_.record)])
    assert [record.round for record in seen] == [1, 2, 3, 4]
    assert trained.records == tuple(seen)
    assert trained.progress.round == 4
    assert weights_sha256(trained.progress.weights) == seen[-1].weights_sha256


def test_watching_sees_every_session_of_every_round():
    ticks = []
    local.run(small_study(train={"rounds": 2, "clients_per_round": 3}), watch=ticks.append)
    assert [(tick.round, tick.done, tick.sessions) for tick in ticks] == [
        (round_, done, 3) for round_ in (1, 2) for done in (1, 2, 3)
    ]


def test_the_test_set_is_evaluated_as_often_as_asked_and_at_the_end():
    steps = run(small_study(train={"rounds": 5, "evaluate_every": 3}))
    assert [step.record.accuracy is not None for step in steps] == [False, False, True, False, True]


def test_a_schedule_changes_the_learning_rate_by_round_for_everybody():
    study = small_study(train={"schedule": "step", "gamma": 0.5, "every": 1, "lr": 0.08})
    rates = [{task.lr for task in tasks_done(study, step.outcome)} for step in trained_by(study, 3)]
    assert rates == [{0.08}, {0.04}, {0.02}]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_explodes_stops_the_run_and_names_the_client(workers, tmp_path):
    study = small_study(train={"lr": 1e25, "momentum": 0.0, "optimizer": "sgd", "rounds": 3})
    with pytest.raises(RunError, match=r"client 'c\d' (is|has).*(nan|inf|finite|at most)"):
        run(study, tmp_path / "run", workers=workers)


def test_training_learns():
    steps = run(small_study(train={"rounds": 12}, data=small_data(spread=0.3)))
    assert steps[-1].record.accuracy > 0.9 > steps[0].record.accuracy


def test_clients_that_are_not_selected_cost_no_sample_and_no_condition(monkeypatch):
    clients = [replace(client, rate=None, samples=2) for client in small_clients(60)]
    study = small_study(
        clients=clients, session=Session(steps=1, batch_size=2), train={"clients_per_round": 2, "rounds": 2}
    )
    asked = {"samples": set(), "conditions": set()}
    for cls, method, what in ((Partition, "__getitem__", "samples"), (Conditions, "true", "conditions")):
        _listen(monkeypatch, cls, method, asked[what])
    selected = {name for step in run(study) for name in step.outcome.done}
    assert asked["samples"] == selected
    assert asked["conditions"] == selected
    assert len(selected) <= 4


def _listen(monkeypatch, cls, method, heard):
    """The real method, with the names of the clients that it is asked about written down."""
    real = getattr(cls, method)

    def listening(self, client, *more):
        heard.add(getattr(client, "name", client))
        return real(self, client, *more)

    monkeypatch.setattr(cls, method, listening)


def test_an_own_model_needs_no_layers_named():
    """Study.of takes a plain module; its name and its layers are found."""
    study = small_study(model=small_model())
    assert study.profile.model == "Sequential"
    assert len(study.model) == 4


def test_a_round_has_one_torch_thread_and_leaves_as_many_as_there_were():
    study, seen = small_study(train={"rounds": 1}), []

    class Watched(VirtualClock):
        def carry_out(self, orders):
            for arrival in super().carry_out(orders):
                seen.append(torch.get_num_threads())
                yield arrival

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        play_round(study, Watched(study, LocalTrainer(study.job(), study.test())), start(study), 1)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_a_round_is_played_on_the_problem_it_was_planned_on_unless_something_differs():
    study = small_study()
    clients = [study.client(name) for name in study.fleet.names]
    true = [Condition.of(client) for client in clients]
    planned = study.problem(under(clients, true, {}))
    assert study.problem(under(clients, true, {})) is planned
    slower = [true[0].scaled(compute=0.5, rate=1.0), *true[1:]]
    assert study.problem(under(clients, slower, {})).fleet.compute[0] == planned.fleet.compute[0] / 2
    held = study.problem(under(clients, true, {"c1": Held(2, 0)})).fleet
    assert held.holds.tolist() == [0, 2, 0, 0, 0, 0]
    assert planned.fleet.holds.tolist() == [0] * 6
