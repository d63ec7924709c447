"""Split, join and per-layer randomness on chains of modules."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

import cutwater
from cutwater.base.errors import ModelError
from cutwater.model.halves import join_states
from cutwater.model.layers import Layer
from cutwater.model.randomness import RandomStream, derive_seed, enter_layer


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(1, 4, 3, padding=1),
            norm=nn.BatchNorm2d(4),
            drop=nn.Dropout(0.5),
            flat=nn.Flatten(),
            fc=nn.Linear(4 * 64, 10),
        )
    )


def train_step(cut: int) -> tuple[torch.Tensor, dict[str, torch.Tensor], nn.Module]:
    model = small_model()
    client, server = cutwater.layered(model).split(cut)
    images = torch.randn(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with RandomStream(seed=7, step=3):
        smashed = client(images)
        received = smashed.detach().requires_grad_(smashed.requires_grad)
        output = server(received)
    output.square().sum().backward()
    if cut < 5:
        smashed.backward(received.grad)
    else:
        smashed.square().sum().backward()
    return (
        output.detach(),
        {name: p.grad for name, p in model.named_parameters()},
        cutwater.join(client, server),
    )


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_every_cut_gives_the_bits_of_the_whole_model_with_dropout_on(cut):
    output, gradients, joined = train_step(cut)
    expected, expected_gradients, whole = train_step(5)
    assert torch.equal(output, expected)
    assert all(torch.equal(gradients[name], expected_gradients[name]) for name in expected_gradients)
    assert list(joined.state_dict()) == list(small_model().state_dict())
    for name, tensor in whole.state_dict().items():
        assert torch.equal(joined.state_dict()[name], tensor), name


@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_joined_state_loads_strictly_into_the_users_own_model_and_computes_the_same(cut):
    model = small_model()
    client, server = cutwater.layered(model).split(cut)
    joined = cutwater.join(copy.deepcopy(client), copy.deepcopy(server)).eval()
    mine = small_model().eval()
    mine.load_state_dict(joined.state_dict(), strict=True)
    images = torch.randn(3, 1, 8, 8)
    assert torch.equal(joined(images), mine(images))


def test_halves_hold_disjoint_parts_of_the_state():
    client, server = cutwater.layered(small_model()).split(2)
    assert set(client.state_dict()) == {
        n for n in small_model().state_dict() if n.startswith(("conv", "norm"))
    }
    assert set(server.state_dict()) == {"fc.weight", "fc.bias"}
    assert join_states(client.state_dict(), server.state_dict()).keys() == small_model().state_dict().keys()


def test_the_whole_model_on_the_client_leaves_an_empty_server():
    client, server = cutwater.layered(small_model()).split(5)
    assert not list(server.parameters())
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(server(client.eval()(images)), client(images))


def test_train_and_eval_mode_reach_the_layers_of_a_half():
    client, _ = cutwater.layered(small_model()).split(3)
    images = torch.randn(2, 1, 8, 8)
    client.eval()
    assert torch.equal(client(images), client(images))
    client.train()
    assert not torch.equal(client(images), client(images))


def test_a_layer_draws_from_the_seed_of_its_step_and_number():
    with RandomStream(7, 3):
        for layer in (1, 2, 12):
            enter_layer(layer)
            assert torch.initial_seed() == derive_seed(7, 3, layer)


def test_random_streams_differ_by_step_and_layer_and_leave_the_global_generator_alone():
    model = cutwater.layered(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)))
    first, second = model.half(0, 1), model.half(1, 2)
    ones = torch.ones(1000)
    before = torch.get_rng_state()
    with RandomStream(1, 1):
        a, b = first(ones), second(ones)
    with RandomStream(1, 2):
        c = first(ones)
    with RandomStream(1, 1):
        b_alone = second(ones)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(a, b)
    assert not torch.equal(a, c)
    assert torch.equal(b, b_alone)


def test_seeds_do_not_run_together():
    assert derive_seed(1, 23) != derive_seed(12, 3)
    assert 0 <= derive_seed("x") < 2**63


@pytest.mark.parametrize("cut", [0, 6, -1, 2.0, True, "2"])
def test_a_cut_out_of_range_is_refused_by_value(cut):
    with pytest.raises(ModelError, match=r"cut .* is out of range: the model has 5 layers"):
        cutwater.layered(small_model()).split(cut)


def test_a_cut_may_be_a_number_of_numpys():
    model = cutwater.layered(small_model())
    for cuts in ((3,), (1, 4)):
        for mine, numpys in zip(model.split(*cuts), model.split(*map(np.int64, cuts)), strict=True):
            assert list(mine.state_dict()) == list(numpys.state_dict())
    with pytest.raises(ModelError, match="is out of range: the model has 5 layers"):
        model.split(np.int64(6))


def test_a_shared_module_rules_out_the_cuts_between_its_uses():
    shared = nn.Linear(4, 4)
    model = cutwater.layered(nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2)))
    assert set(model.ruled_out) == {1, 2}
    assert "0.weight" in model.ruled_out[1] or "0.bias" in model.ruled_out[1]
    with pytest.raises(ModelError, match="cut 2 can't be used"):
        model.split(2)
    client, server = model.split(3)
    assert cutwater.join(client, server).state_dict().keys() == model.module.state_dict().keys()


def test_tied_weights_rule_out_the_cuts_between_their_uses():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9, bias=False))
    model[2].weight = model[0].weight
    layers = cutwater.layered(model)
    assert set(layers.ruled_out) == {1, 2}
    assert layers.split(3).client(torch.tensor([[1, 2]])).shape == (1, 2, 9)
    assert [len(layers.parameters_of_layer[k]) for k in (1, 2, 3)] == [1, 2, 0]


def test_a_list_of_layers_keeps_the_models_own_names():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)
            self.body = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.unused = nn.Parameter(torch.zeros(1))

    model = Model()
    layers = cutwater.layered(model, layers=[*model.body, model.head])
    client, server = layers.split(2)
    joined = cutwater.join(client, server)
    model.load_state_dict(joined.state_dict(), strict=True)
    assert "unused" in client.state_dict()
    assert set(server.state_dict()) == {"head.weight", "head.bias"}


def test_stages_are_names_without_running_numbers():
    names = ["layer3.1", "stage2_10", "stem", "4"]
    assert [Layer(name).stage for name in names] == ["layer3", "stage2", "stem", "layers"]


def test_join_wants_halves():
    with pytest.raises(ModelError, match="halves"):
        cutwater.join(nn.Linear(1, 1), nn.Linear(1, 1))
