"""The average of a round: exact, the same bits in any order, closed to what would do harm."""

import math
from fractions import Fraction
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import cutwater
from cutwater.base.errors import RunError
from cutwater.data.batches import batches
from cutwater.execute.local import LocalTrainer
from cutwater.plan.session import Session
from cutwater.scenario.settings import DataSettings
from cutwater.train import aggregate, exactsum
from cutwater.train.aggregate import Average, weights_sha256
from cutwater.train.expected import BadUpdate
from cutwater.train.session import Job, Task
from cutwater.train.step import optimizer_factory


def model(seed=0):
    """A model with parameters, running statistics and a counter."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 10))
    net(torch.randn(8, 1, 8, 8) * (seed + 1))
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


def average(updates, reference=None):
    made = Average(reference or updates[0][2])
    for client, samples, state in updates:
        made.add(client, samples, state)
    return made


def updates_of(count):
    return [(f"c{k}", 361 + 97 * k, model(k)) for k in range(count)]


def test_every_order_of_arrival_gives_the_same_bits():
    updates = updates_of(5)
    hashes = {weights_sha256(average(list(order)).result()) for order in permutations(updates)}
    assert len(hashes) == 1


def test_weights_of_all_magnitudes_are_added_exactly_where_float64_depends_on_the_order():
    updates = [(str(k), 3, {"w": torch.tensor([w])}) for k, w in enumerate((1e9, 1e-9, -1e9, 1 / 3, 3e-5))]
    float_sums = {sum(n * s["w"].double().item() for _, n, s in order) for order in permutations(updates)}
    ours = {average(list(order)).result()["w"].item() for order in permutations(updates)}
    assert len(float_sums) > 1
    assert len(ours) == 1


weights = st.one_of(*(st.floats(-(2.0**top), 2.0**top, width=32) for top in (30, 1, -30, -50)))
values = st.lists(st.tuples(weights, st.integers(1, 10**6)), min_size=1, max_size=8)


@settings(deadline=None, max_examples=300)
@given(values, st.randoms())
def test_the_average_is_the_exact_one_rounded(pairs, random):
    updates = [(str(k), n, {"w": torch.tensor([w])}) for k, (w, n) in enumerate(pairs)]
    shuffled = random.sample(updates, len(updates))
    found = average(updates).result()["w"]
    assert torch.equal(found, average(shuffled).result()["w"])
    exact = sum(Fraction(w) * n for w, n in pairs) / sum(n for _, n in pairs)
    # Half a unit of float32, a little more for rounding twice, and the grid of 2^-60.
    unit = math.ldexp(1.0, math.frexp(float(exact))[1] - 24)
    assert abs(Fraction(float(found)) - exact) <= Fraction(unit) * Fraction(501, 1000) + Fraction(2) ** -60


def test_a_single_client_gives_its_own_weights_back():
    state = model(3)
    result = average([("c1", 7, state)]).result()
    assert weights_sha256(result) == weights_sha256(state)


def test_the_average_is_weighted_by_samples():
    one, three = {"w": torch.tensor([1.0])}, {"w": torch.tensor([5.0])}
    assert average([("a", 1, one), ("b", 3, three)]).result()["w"].item() == 4.0


@pytest.mark.parametrize("size", [1, 70_000, 200_001])
def test_tensors_of_any_size_pass_through_the_chunks(size):
    torch.manual_seed(size)
    states = [{"a": torch.randn(3), "b": torch.randn(size), "c": torch.randn(2, 2)} for _ in range(3)]
    result = average([(str(k), k + 1, state) for k, state in enumerate(states)]).result()
    for name in "abc":
        expected = sum((k + 1) * state[name].double() for k, state in enumerate(states)) / 6
        assert torch.allclose(result[name].double(), expected, rtol=1e-7, atol=1e-9)


def test_many_updates_carry_without_loss():
    # More additions than the low half holds; every term uses all of its bits.
    odd = torch.tensor([1 / 3, -2 / 3, 2.0**-40 / 3, 1e9 / 3], dtype=torch.float64)
    state = {"w": odd}
    made = Average(state)
    for k in range(3 * exactsum._SETTLE_EVERY):
        made.add(str(k), 1 + k % 7, state)
    assert torch.allclose(made.result()["w"], odd, rtol=1e-15, atol=2.0**-60)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_floating_type_comes_back_as_it_was(dtype):
    states = [{"w": torch.tensor([0.5, -3.0]).to(dtype)}, {"w": torch.tensor([1.5, 1.0]).to(dtype)}]
    result = average([("a", 1, states[0]), ("b", 1, states[1])]).result()["w"]
    assert result.dtype == dtype
    assert result.tolist() == [1.0, -1.0]


def test_running_statistics_are_averaged_and_counters_take_the_furthest():
    states = [model(0), model(1)]
    states[1]["1.num_batches_tracked"] += 5
    result = average([("a", 1, states[0]), ("b", 1, states[1])]).result()
    for name in ("1.running_mean", "1.running_var"):
        assert torch.allclose(result[name], (states[0][name] + states[1][name]) / 2)
    assert result["1.num_batches_tracked"].item() == 6
    assert result["1.num_batches_tracked"].dtype == torch.int64


def test_constants_of_any_type_stay_as_they_are():
    mask = torch.full((2, 2), -torch.inf).triu(1)
    state = {"mask": mask, "ids": torch.arange(3), "on": torch.tensor([True, False]), "none": torch.empty(0)}
    result = average([("a", 1, state), ("b", 5, state)]).result()
    assert weights_sha256(result) == weights_sha256(state)
    with pytest.raises(BadUpdate, match="client 'c' changes 'mask'"):
        average([("a", 1, state)]).add("c", 1, {**state, "mask": torch.zeros(2, 2)})


def broken(**changes):
    return {**model(1), **changes}


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (broken(**{"0.bias": torch.full((4,), torch.nan)}), "has a value in '0.bias' that is not finite"),
        (broken(**{"0.bias": torch.tensor([0, 0, -torch.inf, 0])}), "in '0.bias' that is not finite"),
        (
            broken(**{"0.bias": torch.full((4,), 2e9)}),
            "has 2e+09 in '0.bias', but weights are at most 1.07e+09",
        ),
        (broken(**{"1.running_var": torch.full((4,), torch.nan)}), "'1.running_var' that is not finite"),
        (broken(**{"0.bias": torch.zeros(1)}), "has '0.bias' as float32 [1], but it must be float32 [4]"),
        (broken(**{"0.bias": torch.zeros(4).double()}), "as float64 [4], but it must be float32 [4]"),
        (broken(extra=torch.zeros(1)), "has an unknown tensor 'extra'"),
        ({k: v for k, v in model(1).items() if k != "3.weight"}, "lacks tensor '3.weight'"),
    ],
)
def test_a_bad_update_is_refused_by_name_and_leaves_no_trace(state, reason):
    good = updates_of(2)
    expected = weights_sha256(average(good).result())
    made = average(good)
    with pytest.raises(BadUpdate) as caught:
        made.add("mallory", 10, state)
    assert caught.value.client == "mallory"
    assert str(caught.value).startswith("the update of client 'mallory' ")
    assert reason in str(caught.value)
    assert weights_sha256(made.result()) == expected
    assert made.clients == {"c0", "c1"}


@pytest.mark.parametrize("samples", [0, -3, 1.5, math.nan, 10**18, True, None])
def test_a_weight_that_is_no_number_of_samples_is_refused(samples):
    with pytest.raises(BadUpdate, match=r"client 'c1' is for .* samples, but must be for a whole number"):
        Average(model()).add("c1", samples, model())


def test_a_client_counts_once():
    made = average(updates_of(2))
    with pytest.raises(BadUpdate, match="client 'c1' arrived twice"):
        made.add("c1", 5, model(1))


def test_an_average_of_nothing_or_of_too_much_is_refused():
    with pytest.raises(RunError, match="no client's update is left"):
        Average(model()).result()
    made = average([("a", aggregate.MOST_SAMPLES, {"w": torch.tensor([2.0**30])})])
    assert made.result()["w"].item() == 2.0**30, "the limits themselves are exact"
    with pytest.raises(RunError, match="can't be averaged"):
        made.add("b", 1, {"w": torch.tensor([1.0])})
    with pytest.raises(RunError, match="complex"):
        Average({"w": torch.zeros(2, dtype=torch.complex64)})


def test_memory_does_not_grow_with_the_number_of_clients():
    state = {"w": torch.randn(50_000)}
    made = Average(state)
    for k in range(300):
        made.add(str(k), 3, state)
    assert sum(each.nbytes for each in made._sum._sums) == 16 * 50_000
    assert not made._largest


def test_the_hash_sees_names_types_shapes_and_bits_but_not_the_order_of_names():
    state = {"a": torch.zeros(4), "b": torch.ones(2, 2)}
    same = {"b": torch.ones(2, 2).t(), "a": torch.zeros(4)}
    others = [
        {"a": torch.zeros(4), "c": torch.ones(2, 2)},
        {"a": torch.zeros(4), "b": torch.ones(4)},
        {"a": torch.zeros(4, dtype=torch.int32), "b": torch.ones(2, 2)},
        {"a": torch.tensor([0.0, 0, 0, 1e-45]), "b": torch.ones(2, 2)},
        {"a": -torch.zeros(4), "b": torch.ones(2, 2)},
        {"a": torch.zeros(4)},
    ]
    assert weights_sha256(state) == weights_sha256(same)
    assert len({weights_sha256(value) for value in [state, *others]}) == 7


def test_the_hash_is_frozen_for_good():
    # Runs are compared by it across machines and releases.
    state = {
        "w": torch.arange(6.0).reshape(2, 3),
        "n": torch.tensor(3),
        "h": torch.ones(2, dtype=torch.bfloat16),
    }
    assert weights_sha256(state) == "58087dd8e7f2040cdb663b2e0767a62172cd0050be5119c9bce901ae60873f87"


def digits_round(workers, cuts):
    """The hash after one round of four clients on real data, each with its own cut."""
    settings_ = DataSettings(partition="dirichlet")
    data = settings_.load()
    clients = ["a", "b", "c", "d"]
    parts = settings_.share_out(data, clients, None, seed=1)

    def batches_of(task):
        key = {"seed": 1, "round_": task.round, "client": task.client}
        found = batches(parts[task.client].train, Session(epochs=1), **key)
        return (data.train.batch(indices) for indices in found)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
    job = Job(cutwater.layered(net), F.cross_entropy, lambda lr: optimizer_factory("sgd", lr), batches_of)
    start = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    tasks = [Task(c, 1, cut, 1, 0.1, len(parts[c].train)) for c, cut in zip(clients, cuts, strict=True)]
    made = Average(start)
    engine = LocalTrainer(job, [], workers)
    for result in engine.sessions(tasks, start):
        made.add(result.task.client, result.task.samples, result.state)
    engine.close()
    return weights_sha256(made.result())


def test_a_round_on_real_data_has_the_same_bits_with_any_workers_and_any_cuts():
    cuts = ([5, 5, 5, 5], [1, 2, 3, 5], [4, 3, 1, 2])
    assert len({digits_round(workers, chosen) for workers in (1, 2) for chosen in cuts}) == 1
