"""What of a half crosses a client's link: what learns in every round, what does not once."""

import pytest
import torch
from torch import nn

from cutwater.model.discover.layered import layered
from cutwater.model.traffic import traffic
from cutwater.profile.count import profile_layered


def backbone() -> nn.Sequential:
    """A frozen first layer, a BatchNorm that keeps statistics, a head that learns."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1000, 1000), nn.BatchNorm1d(1000), nn.ReLU(), nn.Linear(1000, 10))
    model[0].requires_grad_(False)
    return model


def test_weights_that_learn_and_buffers_travel_every_round_and_the_others_once():
    found = traffic(backbone())
    assert set(found.learned) == {"1.weight", "1.bias", "3.weight", "3.bias"}
    assert set(found.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert found.fixed == {"0.weight": 4_000_000, "0.bias": 4_000}
    every = 4 * (2000 + 10_010) + 4 * 2000 + 8
    assert found.bytes_up == every
    assert found.bytes_down() == every + 4_004_000
    assert found.bytes_down(found.fixed) == every


def test_a_tensor_with_two_names_travels_under_the_first():
    model = nn.ModuleDict({"first": nn.Linear(8, 8), "second": nn.Linear(8, 8)})
    model["second"].weight = model["first"].weight
    found = traffic(model)
    assert found.aliases == {"second.weight": "first.weight"}
    assert set(found.learned) == {"first.weight", "first.bias", "second.bias"}
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sent = {name: state[name] for name in found.every_round}
    whole = found.completed(sent, {})
    assert whole.keys() == state.keys()
    assert all(torch.equal(whole[name], state[name]) for name in state)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_profile_prices_what_travels(cut):
    model = layered(backbone(), torch.randn(4, 1000))
    priced = profile_layered(model, torch.randn(4, 1000)).cuts[cut - 1]
    sent = traffic(model.split(cut).client)
    assert priced.client_bits + priced.buffer_bits == 8 * sent.bytes_up
    assert priced.client_bits + priced.buffer_bits + priced.frozen_bits == 8 * sent.bytes_down()


def test_the_papers_count_leaves_buffers_out():
    model = layered(backbone(), torch.randn(4, 1000))
    assert profile_layered(model, torch.randn(4, 1000), count="paper").cuts[-1].buffer_bits == 0
