"""Updates are judged before they count: liars are left out by name, and nobody else is."""

import os

import pytest
import torch
from collecting import run
from hypothesis import given, settings
from hypothesis import strategies as st
from liars import changed, times, weights_of, with_liars
from small_study import small_clients, small_data, small_model, small_study
from torch import nn

from cutwater.base.errors import ScenarioError
from cutwater.federate.aggregators import find_aggregator
from cutwater.federate.conditions import Condition
from cutwater.federate.executor import Update
from cutwater.federate.judge import Judged, Refused
from cutwater.model.traffic import Traffic
from cutwater.plan.latency import NOTHING
from cutwater.plan.session import Session
from cutwater.runs.checkpoint import load, load_newest
from cutwater.runs.folder import RunFolder
from cutwater.scenario.judging import JudgeSettings
from cutwater.train.expected import BadUpdate
from cutwater.train.session import Task

TEN = {"clients": small_clients(10, 9), "session": Session(steps=4, batch_size=5)}


def ten_clients(aggregator="average", rounds=8, **more):
    more = {**TEN, "train": {"rounds": rounds, "aggregator": aggregator}, **more}
    return small_study(**more)


def hashes(rounds):
    return [each.record.weights_sha256 for each in rounds]


@pytest.mark.parametrize("aggregator", ["average", "fedadam", "median", "trimmed", "clipped"])
def test_one_client_with_weights_of_a_million_is_named_and_ruins_nothing(aggregator, record_property):
    honest = run(ten_clients(aggregator))
    poisoned = with_liars(ten_clients(aggregator), {(1, "c3"): weights_of(1e6)})
    assert set(poisoned[0].record.lost) == {"c3"}
    assert "moves the weights by a norm of" in poisoned[0].record.lost["c3"]
    assert all(not each.record.lost and each.record.failed is None for each in poisoned[1:])
    cost = 100 * (honest[-1].record.accuracy - poisoned[-1].record.accuracy)
    record_property("accuracy that the lie costs after 8 rounds, points", round(max(cost, 0.0), 2))
    assert poisoned[-1].record.accuracy >= honest[-1].record.accuracy - 0.01


def test_without_the_judge_that_client_ruins_the_run():
    """What the test above would miss: the lie does harm where nobody looks."""
    poisoned = with_liars(
        ten_clients(rounds=2, judge=JudgeSettings(active=False)), {(1, "c3"): weights_of(1e6)}
    )
    assert poisoned[-1].record.accuracy < 0.7


@pytest.mark.parametrize("lie", [weights_of(1e6), times(-8.0), weights_of(0.0)], ids=["1e6", "-8 w", "0"])
@pytest.mark.parametrize("aggregator", ["median", "trimmed"])
def test_three_liars_of_ten_in_every_round_move_a_tolerant_aggregator_little(aggregator, lie):
    """With nobody judging: it is the aggregator that stands it."""
    lies = {(number, f"c{k}"): lie for number in range(1, 9) for k in (1, 4, 8)}
    study = ten_clients(aggregator, judge=JudgeSettings(active=False))
    assert with_liars(study, lies)[-1].record.accuracy >= run(study)[-1].record.accuracy - 0.01


def test_a_round_with_a_liar_is_that_of_the_others_bit_for_bit():
    lied = with_liars(ten_clients(rounds=1), {(1, "c3"): times(50.0)})
    others = [name for name in ten_clients().fleet.names if name != "c3"]
    without = with_liars(ten_clients(rounds=1), {(1, "c3"): changed("weight", lambda t: t * torch.nan)})
    assert lied[0].outcome.done == without[0].outcome.done == tuple(others)
    assert hashes(lied) == hashes(without)


def test_honest_rounds_have_the_bits_that_they_had_without_a_judge():
    assert hashes(run(small_study())) == hashes(run(small_study(judge=JudgeSettings(active=False))))


@pytest.mark.parametrize("lr", [0.05, 5.0])
def test_honest_updates_that_go_far_are_set_aside_and_count_all_the_same(lr):
    """Nothing is taken in at once where the model's own norm allows nothing: the others' say counts."""
    strict = JudgeSettings(norm_of_model=0.0)
    judged = run(small_study(train={"lr": lr}, judge=strict))
    assert not any(each.record.lost for each in judged)
    assert hashes(judged) == hashes(run(small_study(train={"lr": lr}, judge=JudgeSettings(active=False))))


def test_a_client_that_trains_a_hundred_times_as_long_is_not_refused_for_it():
    clients = small_clients(5, 5)
    clients[2] = type(clients[2])(name="c2", compute=2e4, rate=4e4, samples=60, batch_size=1)
    study = small_study(
        model=nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        clients=clients,
        session=Session(epochs=8, batch_size=5),
        train={"rounds": 2, "lr": 0.01},
        judge=JudgeSettings(norm_of_model=0.0, norm_of_others=2.0),
    )
    assert not any(each.record.lost for each in run(study))


class Positions(nn.Module):
    """Adds a learned number to every feature, looked up by a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("position_ids", torch.arange(6))
        self.embedding = nn.Embedding(6, 1)

    def forward(self, features):
        return features + self.embedding(self.position_ids).squeeze(1)


def positioned():
    torch.manual_seed(3)
    return nn.Sequential(Positions(), *small_model())


def positioned_without_means(micro_batches):
    """Parts of one sample have no variance: a counter of its own instead of batch normalisation."""
    return positioned() if micro_batches < 3 else nn.Sequential(Counting(), nn.Linear(6, 8), nn.Linear(8, 3))


class Counting(nn.Module):
    """Counts the parts that pass in training."""

    def __init__(self):
        super().__init__()
        self.register_buffer("num_batches_tracked", torch.tensor(0))
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, features):
        if self.training:
            self.num_batches_tracked.add_(1)
        return features * self.scale


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize(
    ("which", "change", "sentence"),
    [
        ("position_ids", lambda t: torch.full_like(t, 2**62), r"moves '0\.position_ids' by up to 4\.61e\+18"),
        (
            "position_ids",
            lambda t: t + 5,
            r"moves '0\.position_ids' by up to 5, but .* must stay as they are",
        ),
        ("position_ids", lambda t: t.flip(0), r"moves '0\.position_ids' by up to 5"),
        ("num_batches_tracked", lambda t: t + 10**6, "advances .*num_batches_tracked' by 1e"),
        ("num_batches_tracked", lambda t: t + 1, "advances .*num_batches_tracked' by 3, .* allows at most 2"),
        ("num_batches_tracked", lambda t: t - 10**6, "takes back .*num_batches_tracked' by 1e"),
        ("num_batches_tracked", lambda t: t - 3, "takes back .*num_batches_tracked' by 1"),
        ("running_var", lambda t: -t, "running_var', but a variance is never negative"),
    ],
)
def test_statistics_and_counters_that_can_not_be_are_refused_by_name(count, which, change, sentence):
    study = small_study(model=positioned(), clients=small_clients(count), train={"rounds": 1})
    found = with_liars(study, {(1, "c1"): changed(which, change)})[0].record
    assert list(found.lost) == ["c1"]
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(found.lost["c1"])


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("running_var", lambda t: t * 1e6),
        ("running_mean", lambda t: t + 1e4),
    ],
)
def test_what_the_others_do_not_do_is_refused_where_they_are_a_majority(which, change):
    study = small_study(model=positioned(), train={"rounds": 1})
    assert list(with_liars(study, {(1, "c1"): changed(which, change)})[0].record.lost) == ["c1"]


def test_whole_tables_that_all_move_are_refused_all_the_same():
    study = small_study(model=positioned(), clients=small_clients(2), train={"rounds": 2})
    lie = changed("position_ids", lambda t: t + 5)
    first, second = with_liars(study, {(1, name): lie for name in study.fleet.names})
    assert set(first.record.lost) == set(study.fleet.names)
    assert first.record.failed is not None
    assert not second.record.lost, "the model is as it was, and the next round goes on with it"


@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("micro_batches", [1, 2, 5])
def test_a_counter_may_advance_by_the_parts_trained_and_by_not_one_more(count, micro_batches):
    session = Session(steps=2, batch_size=5, micro_batches=micro_batches)
    study = small_study(
        model=positioned_without_means(micro_batches),
        clients=small_clients(count),
        session=session,
        train={"rounds": 1},
    )
    assert not run(study)[0].record.lost
    found = with_liars(study, {(1, "c1"): changed("num_batches_tracked", lambda t: t + 1)})[0].record.lost
    assert f"by {2 * micro_batches + 1}," in found["c1"]


class Twice(nn.Module):
    """A normalisation that is used twice in a pass, and so counts each part twice."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, features):
        return self.norm(self.norm(features))


def twice():
    torch.manual_seed(3)
    return nn.Sequential(Twice(), *small_model())


def test_a_layer_that_counts_twice_is_nobodys_lie_where_all_do_and_a_setting_where_few_are():
    assert not run(small_study(model=twice(), train={"rounds": 2}))[-1].record.lost
    few = {"model": twice(), "clients": small_clients(2), "train": {"rounds": 1}}
    assert not run(small_study(**few, judge=JudgeSettings(counters=2.0)))[0].record.lost
    with pytest.raises(Refused, match=r"by 4, but counters of \[judge\] allows at most 2"):
        run(small_study(**few))


def test_nobody_is_refused_where_all_do_the_same():
    """A layer that meets inputs of another scale."""
    lie = changed("running_var", lambda t: t * 1e6)
    study = small_study(train={"rounds": 1})
    assert not with_liars(study, {(1, name): lie for name in study.fleet.names})[0].record.lost


MODEL = Traffic({"w": 4}, {}, {}, {})


def judge_of_one_weight():
    """A judge of updates of one weight, from clients of ten steps."""
    weights = {"w": torch.ones(1)}
    collection = find_aggregator("average", {}).collect(weights, {}, MODEL)
    return Judged(JudgeSettings(), collection, weights, MODEL, lambda _: [[1]] * 10)


def update_of(client, value):
    task = Task(client, 1, 1, 0, 0.1, 10)
    return Update(task, {"w": torch.tensor([value])}, 1.0, 0, 0, NOTHING, Condition(1.0, 1.0, 1.0))


def judged(values, order):
    """Who is refused of updates of one weight, which come in this order, and the average of the rest."""
    judge = judge_of_one_weight()
    refused = set()
    for k in order:
        try:
            judge.add(update_of(f"c{k}", values[k]))
        except Refused as error:
            refused.add(error.client)
    refused |= {error.client for error in judge.settle()}
    return refused, judge.result()[0]["w"]


@pytest.mark.parametrize("first", [1.5, 1e4], ids=["counts at once", "waits for the others"])
def test_a_client_has_one_update_whatever_becomes_of_its_first(first):
    judge = judge_of_one_weight()
    judge.add(update_of("c0", first))
    with pytest.raises(BadUpdate, match="'c0' arrived twice"):
        judge.add(update_of("c0", 1e6))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-1e5, 1e5), min_size=3, max_size=9), st.data())
def test_the_order_of_arrival_changes_no_verdict_and_no_bit(values, data):
    order = data.draw(st.permutations(range(len(values))))
    (refused, made), (other, again) = judged(values, range(len(values))), judged(values, order)
    assert refused == other
    assert torch.equal(made, again)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.floats(0.5, 4.5).map(lambda far: 1 + far), min_size=4, max_size=9),
    st.lists(st.floats(-(2.0**29), 2.0**29), min_size=1, max_size=3),
)
def test_whatever_a_minority_sends_nobody_honest_is_refused(honest, lies):
    """All move a weight of 1 by more than itself, and none by ten times as much as another."""
    refused, _ = judged([*honest, *lies], range(len(honest) + len(lies)))
    assert not refused & {f"c{k}" for k in range(len(honest))}


def test_a_run_of_failed_rounds_leaves_the_last_good_models(tmp_path):
    study = small_study(train={"rounds": 7, "quorum": 6, "keep_best": "accuracy"})
    folder = RunFolder(tmp_path / "run")
    lies = {(number, f"c{k}"): weights_of(1e6) for number in range(4, 8) for k in (1, 2)}
    rounds = with_liars(study, lies, folder)
    assert [each.record.failed is not None for each in rounds] == [False] * 3 + [True] * 4
    names = sorted(path.name for path in folder.checkpoints.iterdir())
    assert names == ["best.safetensors", *(f"round-{n:06d}.safetensors" for n in (2, 3, 6, 7))]
    good = rounds[2].record.weights_sha256
    assert load(folder.checkpoints / "round-000003.safetensors").weights_sha256 == good
    assert load_newest(folder.checkpoints).checkpoint.weights_sha256 == good
    for number in (6, 7):
        (folder.checkpoints / f"round-{number:06d}.safetensors").write_bytes(b"damaged")
    assert load_newest(folder.checkpoints).checkpoint.round == 3


def test_nothing_that_was_set_aside_stays_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    run(small_study(train={"rounds": 2, "aggregator": "median"}, judge=JudgeSettings(norm_of_model=0.0)))
    assert not list(tmp_path.iterdir())
    assert not before or len(os.listdir("/proc/self/fd")) <= before


def test_a_rule_that_can_not_be_is_refused_in_a_sentence():
    with pytest.raises(ScenarioError, match=r"norm_of_others is 0\.5, but must be a finite number of at"):
        JudgeSettings(norm_of_others=0.5)


def test_other_rules_are_another_study():
    assert small_study().fingerprint() == small_study(judge=JudgeSettings()).fingerprint()
    assert small_study().fingerprint() != small_study(judge=JudgeSettings(counters=3)).fingerprint()


def test_data_of_the_small_study_is_learned():
    """What the accuracies above are compared on."""
    assert run(ten_clients(data=small_data()))[-1].record.accuracy > 0.8
