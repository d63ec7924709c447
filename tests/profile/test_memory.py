"""The client's memory: weights, gradients, optimizer state, and what the forward pass leaves behind."""

import pytest
import torch
from torch import nn

import cutwater
from cutwater.plan.allowed import client_memory
from cutwater.profile.count import profile_layered
from cutwater.profile.held_memory import Storages
from cutwater.profile.optimizers import OPTIMIZER_STATE

BATCH = 4
FLOAT = 32


def memory(module, x, optimizer="sgd"):
    profile = profile_layered(cutwater.layered(module), x, optimizer=optimizer)
    return [cut.client_memory_bits for cut in profile.cuts]


def test_two_linear_layers_by_hand():
    model = nn.Sequential(nn.Linear(10, 6), nn.Linear(6, 2))
    weights = [10 * 6 + 6, 10 * 6 + 6 + 6 * 2 + 2]
    inputs, middle, output = (BATCH * width for width in (10, 6, 2))
    # The first layer keeps its input and hands out `middle`; the second keeps `middle`, which counts once.
    held = [inputs + middle, inputs + middle + output]
    for optimizer, copies in (("sgd", 2), ("momentum", 3), ("adam", 4), ("adamw", 4)):
        expected = [FLOAT * (copies * w + h) for w, h in zip(weights, held, strict=True)]
        assert memory(model, torch.zeros(BATCH, 10), optimizer) == expected


def test_what_an_activation_saves_is_shared_with_what_it_hands_out():
    model = nn.Sequential(nn.Sequential(nn.Linear(10, 6), nn.ReLU()))
    # ReLU keeps its result, which is the output; the linear layer's own result is not needed again.
    assert memory(model, torch.zeros(BATCH, 10)) == [FLOAT * (2 * 66 + BATCH * 10 + BATCH * 6)]


def test_a_layer_may_write_into_what_it_is_handed():
    def model(inplace):
        return nn.Sequential(nn.Linear(10, 6), nn.Sequential(nn.ReLU(inplace=inplace), nn.Linear(6, 2)))

    # Either way the linear layer's result is not needed again, and ReLU's is kept once.
    held = BATCH * (10 + 6 + 2)
    for inplace in (False, True):
        assert memory(model(inplace), torch.zeros(BATCH, 10))[1] == FLOAT * (2 * 80 + held)


def test_frozen_weights_need_no_gradients_and_no_state():
    model = nn.Sequential(nn.Linear(10, 6).requires_grad_(False), nn.Linear(6, 2))
    plain, adam = memory(model, torch.zeros(BATCH, 10)), memory(model, torch.zeros(BATCH, 10), "adam")
    assert plain[0] == adam[0] == FLOAT * (66 + BATCH * 10 + BATCH * 6)
    assert adam[1] - plain[1] == FLOAT * 2 * 14


def test_running_statistics_are_part_of_the_weights():
    model = nn.Sequential(nn.BatchNorm1d(5))
    counter = 64
    # The layer saves its input, the batch's mean and its deviation.
    expected = FLOAT * (2 * 10 + 10 + 5 + 5 + 2 * BATCH * 5) + counter
    assert memory(model, torch.zeros(BATCH, 5)) == [expected]


def test_memory_grows_with_the_batch_by_its_activations_alone():
    model = nn.Sequential(nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 2))
    sizes = [memory(model, torch.zeros(batch, 10))[-1] for batch in (1, 2, 4)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


@pytest.mark.parametrize("optimizer", OPTIMIZER_STATE)
def test_planning_at_another_batch_size_holds_what_profiling_at_it_counts(optimizer):
    small, large = (
        cutwater.profile_model("mlp", "1x12x12", batch_size=size, optimizer=optimizer) for size in (32, 1024)
    )
    for profile, other in ((small, large), (large, small)):
        assert client_memory(profile, other.batch_size) == pytest.approx(other.column("client_memory_bits"))


def test_weights_that_do_not_learn_stay_whatever_the_batch():
    model = nn.Sequential(nn.Linear(10, 600), nn.Tanh(), nn.Linear(600, 2))
    model[0].requires_grad_(False)
    small, large = (
        cutwater.profile_layered(cutwater.layered(model), torch.zeros(batch, 10)) for batch in (4, 64)
    )
    for profile, other in ((small, large), (large, small)):
        assert client_memory(profile, other.batch_size) == pytest.approx(other.column("client_memory_bits"))


def test_views_share_memory_with_what_they_look_at():
    base = torch.zeros(6)
    storages = Storages()
    storages.add([base, base[:2], base.view(2, 3)])
    assert storages.bytes == 24
    assert storages.bytes_with([base[1:], torch.zeros(1)]) == 28
    assert storages.bytes == 24


def test_ignored_memory_never_counts():
    weight = torch.zeros(6)
    storages = Storages(ignored=[weight])
    storages.add([weight, weight.view(3, 2)])
    assert storages.bytes == 0


def test_short_lived_tensors_are_not_mistaken_for_each_other():
    storages = Storages()
    for _ in range(50):
        original = torch.zeros(10)
        copy = original.clone()
        storages.alias(copy, original)
        storages.add([copy])
    assert storages.bytes == 50 * 40


@pytest.mark.parametrize("name", ["cnn", "mlp", "resnet18"])
def test_memory_only_grows_with_the_cut(name):
    cuts = cutwater.profile_model(name, "1x12x12").cuts
    sizes = [cut.client_memory_bits for cut in cuts[:-1]]
    # The last output is far smaller than the one before it, which the last layer still needs.
    assert sizes == sorted(sizes)
    assert cuts[-1].client_memory_bits > sizes[-1]
