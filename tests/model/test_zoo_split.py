"""Every zoo model computes the same bits wherever it is cut, dropout and stochastic depth on."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

import cutwater
from cutwater.model import zoo
from cutwater.model.randomness import RandomStream

SMALL = {
    "cnn": ("1x12x12", {}),
    "mlp": ("1x8x8", {"dropout": 0.2}),
    "resnet18": ("1x8x8", {}),
    "text_transformer": ("9", {"vocabulary": 64, "width": 32}),
    "vit_tiny": ("1x8x8", {"width": 24, "patch": 2, "dropout": 0.1}),
}
LARGE = {name: ("1x8x8", {}) for name in zoo.names() if name not in SMALL}
CASES = {**SMALL, **LARGE}
LABELS = torch.tensor([1, 0, 2, 1])


def make(name):
    spec, options = CASES[name]
    torch.manual_seed(3)
    model = zoo.build(name, spec, 3, **options).train()
    return cutwater.layered(model), zoo.example_input(name, spec, len(LABELS), **options)


def train_in_parts(layered, x, bounds):
    """One step over the layers between ``bounds``; what crosses is detached, as between two machines."""
    parts = [layered.half(low, high) for low, high in pairwise(bounds)]
    layered.module.zero_grad(set_to_none=True)
    start = [buffer.clone() for buffer in layered.module.buffers()]
    sent, made = [], []
    with RandomStream(seed=11, step=5):
        for part in parts:
            sent.append(x)
            made.append(part(x))
            x = made[-1].detach().requires_grad_()
        loss = F.cross_entropy(made[-1], LABELS)
        loss.backward()
        for output, onward in zip(reversed(made[:-1]), reversed(sent[1:]), strict=True):
            output.backward(onward.grad)
    gradients = {name: parameter.grad for name, parameter in layered.module.named_parameters()}
    statistics = {name: buffer.clone() for name, buffer in layered.module.named_buffers()}
    for buffer, before in zip(layered.module.buffers(), start, strict=True):
        buffer.copy_(before)
    return {"loss": loss.detach(), **gradients, **statistics}


def assert_same_bits(result, expected):
    assert result.keys() == expected.keys()
    assert not [key for key in expected if not torch.equal(result[key], expected[key])]


@pytest.mark.parametrize("name", SMALL)
def test_a_step_cut_in_two_anywhere_gives_the_bits_of_the_whole_step(name):
    layered, x = make(name)
    depth = len(layered)
    expected = train_in_parts(layered, x, [0, depth])
    for cut in range(1, depth):
        assert_same_bits(train_in_parts(layered, x, [0, cut, depth]), expected)


@pytest.mark.parametrize("name", zoo.names())
def test_a_step_cut_at_every_boundary_at_once_gives_the_bits_of_the_whole_step(name):
    layered, x = make(name)
    depth = len(layered)
    expected = train_in_parts(layered, x, [0, depth])
    assert_same_bits(train_in_parts(layered, x, list(range(depth + 1))), expected)
    assert_same_bits(train_in_parts(layered, x, [0, depth // 2, depth]), expected)


@pytest.mark.parametrize("name", [*SMALL, "efficientnet_v2_s"])
def test_train_mode_is_random_and_another_step_draws_otherwise(name):
    layered, x = make(name)
    whole = layered.split(len(layered)).client
    outputs = []
    for step in (1, 1, 2):
        with RandomStream(seed=0, step=step), torch.no_grad():
            outputs.append(whole(x))
    assert torch.equal(outputs[0], outputs[1])
    deterministic = name.startswith("resnet")
    assert torch.equal(outputs[0], outputs[2]) == deterministic


@pytest.mark.parametrize("name", zoo.names())
def test_joining_any_split_restores_the_state_exactly(name):
    layered, _ = make(name)
    state = layered.module.state_dict()
    for cut in {*range(1, len(layered), 1 if name in SMALL else 7), len(layered)}:
        joined = cutwater.join(*layered.split(cut)).state_dict()
        assert list(joined) == list(state)
        assert all(joined[key].data_ptr() == state[key].data_ptr() for key in state), "not the same tensors"
