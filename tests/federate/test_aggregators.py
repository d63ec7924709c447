"""What becomes of a round's updates: server optimizers beside the average, resumable, the same everywhere."""

import numpy as np
import pytest
import torch
from collecting import run
from hypothesis import given, settings
from hypothesis import strategies as st
from small_study import small_study

from cutwater.base.errors import CutwaterError
from cutwater.federate.aggregators import (
    AGGREGATORS,
    BadUpdate,
    FedAdam,
    FedAvgM,
    WeightedAverage,
    find_aggregator,
)
from cutwater.federate.conditions import Condition
from cutwater.federate.executor import Update
from cutwater.model.traffic import Traffic
from cutwater.plan.latency import NOTHING
from cutwater.scenario import settings as settings_of
from cutwater.train.session import Task

SHAPES = {"a.weight": (3, 4), "b.bias": (5,)}
MODEL = Traffic({"a.weight": 48, "b.bias": 20}, {}, {}, {})
STEPPED = {
    "fedavgm": (FedAvgM, {"lr": 0.7, "momentum": 0.8}),
    "fedadam": (FedAdam, {"lr": 0.05, "beta_1": 0.85, "beta_2": 0.97, "tau": 1e-2}),
}


def update(client, samples, weights):
    task = Task(client, 1, 1, 0, 0.1, samples)
    return Update(task, weights, 1.0, 0, 0, NOTHING, Condition(1.0, 1.0, 1.0))


def drawn(seed):
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=random) for name, shape in SHAPES.items()}


def rounds_of(aggregator, rounds, seed=0):
    """The weights after each of some rounds, in which each client's are drawn."""
    weights = drawn(seed)
    memory = aggregator.start(weights)
    for number in range(rounds):
        collection = aggregator.collect(weights, memory, MODEL)
        for k, samples in enumerate((30, 50, 20)):
            collection.add(update(f"c{k}", samples, drawn(100 * seed + 10 * number + k + 1)))
        weights, memory = collection.result()
        yield weights


def flowers(strategy, rounds, seed=0):
    """The same rounds by a strategy of Flower's own."""
    flwr = pytest.importorskip("flwr.app")
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    # What Flower's own processes set before an app runs.
    identity.run_id, identity.task_id, identity.node_id = 1, 1, 1
    arrays = flwr.ArrayRecord(drawn(seed))
    for number in range(rounds):
        # What configure_train does, without nodes to configure.
        strategy.current_arrays = (
            arrays
            if type(strategy).__name__ == "FedAvgM"
            else {name: array.numpy() for name, array in arrays.items()}
        )
        replies = []
        for k, samples in enumerate((30, 50, 20)):
            content = flwr.RecordDict(
                {
                    "arrays": flwr.ArrayRecord(drawn(100 * seed + 10 * number + k + 1)),
                    "metrics": flwr.MetricRecord({"num-examples": samples}),
                }
            )
            replies.append(flwr.Message(content, dst_node_id=k + 1, message_type="train"))
        arrays, _ = strategy.aggregate_train(number + 1, replies)
        yield {name: array.numpy() for name, array in arrays.items()}


@pytest.mark.parametrize("name", STEPPED)
def test_a_server_optimizer_gives_what_flowers_own_gives_on_the_same_updates(name):
    strategies = pytest.importorskip("flwr.serverapp.strategy")
    _, options = STEPPED[name]
    if name == "fedadam":
        named = {"eta": 0.05, "beta_1": 0.85, "beta_2": 0.97, "tau": 1e-2}
        theirs = strategies.FedAdam(**named)
    else:
        theirs = strategies.FedAvgM(server_learning_rate=0.7, server_momentum=0.8)
    ours = find_aggregator(name, options)
    for mine, flower in zip(rounds_of(ours, 6), flowers(theirs, 6), strict=True):
        for key in SHAPES:
            np.testing.assert_allclose(mine[key].numpy(), flower[key], rtol=0, atol=1e-6)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(sorted(AGGREGATORS)), st.permutations(range(4)), st.integers(0, 99))
def test_the_order_of_arrival_changes_no_bit(name, order, seed):
    aggregator = find_aggregator(name, STEPPED[name][1] if name in STEPPED else {})
    weights, found = drawn(seed), []
    for places in (range(4), order):
        collection = aggregator.collect(weights, aggregator.start(weights), MODEL)
        for k in places:
            collection.add(update(f"c{k}", 10 + k, drawn(seed + k + 1)))
        found.append(collection.result())
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_without_momentum_and_at_rate_1_it_is_the_average():
    stepped, averaged = (list(rounds_of(a, 3)) for a in (FedAvgM(momentum=0.0), WeightedAverage()))
    for one, other in zip(stepped, averaged, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in SHAPES)


def test_buffers_are_averaged_and_fixed_weights_stay():
    model = Traffic({"w": 4}, {"running": 4}, {"frozen": 4}, {"tied": "w"})
    weights = {name: torch.full((1,), 2.0) for name in ("w", "running", "frozen", "tied")}
    collection = FedAdam(lr=0.1).collect(weights, {}, model)
    moved = {"w": 3.0, "running": 5.0, "frozen": 2.0, "tied": 3.0}
    collection.add(update("c1", 1, {name: torch.full((1,), value) for name, value in moved.items()}))
    after, memory = collection.result()
    assert float(after["running"]) == 5.0
    assert float(after["frozen"]) == 2.0
    assert 2.0 < float(after["w"]) < 3.0
    assert torch.equal(after["tied"], after["w"])
    assert set(memory) == {"steps", "m.w", "v.w"}


def test_an_update_that_changes_a_weight_which_does_not_learn_is_refused_by_name():
    model = Traffic({"w": 4}, {}, {"frozen": 4}, {})
    weights = {"w": torch.zeros(1), "frozen": torch.zeros(1)}
    collection = WeightedAverage().collect(weights, {}, model)
    with pytest.raises(BadUpdate, match="'c9' changes 'frozen', which must stay as it is"):
        collection.add(update("c9", 1, {"w": torch.ones(1), "frozen": torch.ones(1)}))


@pytest.mark.parametrize("name", [*STEPPED, "median", "trimmed", "clipped"])
def test_a_run_with_another_aggregator_goes_on_to_the_same_bits_after_a_stop(name, tmp_path):
    def study(rounds):
        return small_study(train={"rounds": rounds, "aggregator": name, "lr": 0.02})

    straight = run(study(4))
    run(study(2), tmp_path / "run")
    rest = run(study(4), tmp_path / "run", resume=True)
    assert [each.record.weights_sha256 for each in rest] == [
        each.record.weights_sha256 for each in straight[2:]
    ]
    averaged = run(small_study(train={"rounds": 4, "lr": 0.02}))
    assert averaged[-1].record.weights_sha256 != straight[-1].record.weights_sha256


def test_a_server_optimizer_gives_the_same_bits_wherever_the_model_is_cut():
    study = small_study(train={"rounds": 3, "aggregator": "fedadam", "aggregator_options": {"lr": 0.01}})
    whole, split = run(study.with_planner("fedavg")), run(study.with_planner("random", seed=3))
    assert [each.record.weights_sha256 for each in whole] == [each.record.weights_sha256 for each in split]


def combined(name, options, values, samples=None):
    """One weight of some clients, aggregated; the global one is 0."""
    weights = {"w": torch.zeros(2), "n": torch.tensor(7)}
    collection = find_aggregator(name, options).collect(weights, {}, Traffic({"w": 8}, {"n": 8}, {}, {}))
    for k, value in enumerate(values):
        state = {"w": torch.tensor([value, -value]), "n": torch.tensor(7 + k)}
        collection.add(update(f"c{k}", (samples or [1] * len(values))[k], state))
    return collection.result()[0]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=11))
def test_median_and_trimmed_mean_are_what_numpy_says(values):
    held = np.array(values, dtype=np.float32).astype(np.float64)
    assert float(combined("median", {}, values)["w"][0]) == np.float32(np.median(held))
    cut = int(0.3 * len(values) + 1e-9)
    mean = np.sort(held)[cut : len(held) - cut].mean()
    assert float(combined("trimmed", {}, values)["w"][0]) == pytest.approx(mean, rel=1e-5, abs=1e-5)


def test_of_counters_the_middle_one_is_taken_and_nobody_has_two_votes():
    made = combined("median", {}, [1.0, 2.0, 900.0], samples=[1, 1, 1000])
    assert float(made["w"][0]) == 2.0
    assert int(made["n"]) == 8


def test_a_clipped_mean_shortens_what_is_longer_than_the_median_and_weighs_by_samples():
    made = combined("clipped", {}, [1.0, 1.0, 2.0, 1e6, 1.0], samples=[1, 1, 1, 4, 1])
    assert made["w"].tolist() == pytest.approx([1.0, -1.0], rel=1e-6)
    assert combined("clipped", {"factor": 1e9}, [1.0, 3.0], samples=[3, 1])["w"].tolist() == [1.5, -1.5]


@pytest.mark.parametrize("name", ["median", "trimmed", "clipped"])
def test_an_aggregator_that_sets_updates_aside_refuses_what_the_average_refuses(name):
    collection = find_aggregator(name, {}).collect(drawn(0), {}, MODEL)
    collection.add(update("c1", 1, drawn(1)))
    with pytest.raises(BadUpdate, match="'c1' arrived twice"):
        collection.add(update("c1", 1, drawn(1)))
    with pytest.raises(BadUpdate, match="not finite"):
        collection.add(update("c2", 1, {name: t * torch.inf for name, t in drawn(2).items()}))
    with pytest.raises(BadUpdate, match="lacks tensor"):
        collection.add(update("c3", 1, {}))


class Loudest:
    """An aggregator of one's own: takes the weights of the client with the most samples."""

    def __init__(self, *, least: int = 1) -> None:
        self.least = least

    def start(self, weights):
        return {}

    def collect(self, weights, memory, model):
        return _Loudest(self.least)


class _Loudest:
    def __init__(self, least):
        self.least, self.most, self.weights = least, 0, None

    def add(self, update):
        if update.task.samples < self.least:
            raise BadUpdate(update.task.client, f"is for fewer than {self.least} samples")
        if update.task.samples > self.most:
            self.most = update.task.samples
            self.weights = {name: tensor.clone() for name, tensor in update.weights.items()}

    def result(self):
        return self.weights, {}


def test_a_scenario_knows_the_aggregators_that_there_are():
    assert tuple(AGGREGATORS) == settings_of.AGGREGATORS
    for name in AGGREGATORS:
        find_aggregator(name, {})


def test_an_aggregator_of_ones_own_is_found_by_name_and_trains():
    options = {"aggregator": "test_aggregators:Loudest", "aggregator_options": {"least": 2}}
    by_name = run(small_study(train={"rounds": 2, **options}))
    given_ = run(small_study(train={"rounds": 2}, aggregator=Loudest(least=2)))
    assert by_name[-1].record.weights_sha256 == given_[-1].record.weights_sha256
    usual = run(small_study(train={"rounds": 2}))
    assert usual[-1].record.weights_sha256 != by_name[-1].record.weights_sha256


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("fedadm", {}, "aggregator is 'fedadm'.*did you mean 'fedadam'.*your own is package.module:Class"),
        ("average", {"lr": 1.0}, "aggregator 'average' has no option 'lr'; it takes none"),
        ("fedadam", {"betas": 0.9}, "aggregator 'fedadam' has no option 'betas'; did you mean"),
        ("fedadam", {"lr": -1.0}, "aggregator 'fedadam' has lr = -1.0, but it must be a number above 0"),
        ("trimmed", {"trim": 0.5}, "aggregator 'trimmed' has trim = 0.5, but it must be at least 0 and"),
        ("clipped", {"factor": 0}, "aggregator 'clipped' has factor = 0, but it must be a number above 0"),
        ("fedavgm", {"momentum": 1.0}, "has momentum = 1.0, but it must be at least 0 and below 1"),
        ("fedavgm", {"momentum": "much"}, "has momentum = 'much', but it must be"),
        ("no_such:thing", {}, "aggregator 'no_such:thing' can't be imported"),
        ("test_aggregators:Loudest", {"most": 3}, "aggregator 'test_aggregators:Loudest' can't be made with"),
    ],
)
def test_an_aggregator_that_can_not_be_is_refused_before_the_first_round(name, options, sentence):
    with pytest.raises(CutwaterError, match=sentence):
        small_study(train={"aggregator": name, "aggregator_options": options})
