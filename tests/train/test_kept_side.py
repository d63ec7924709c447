"""A side that is written down and put back trains on with the same bits, whatever its optimizer."""

import json

import pytest
import torch
from safetensors.torch import load, save
from small_study import small_model
from torch import nn

from cutwater.runs.checkpoint import separate
from cutwater.train.kept_side import read_side, write_side
from cutwater.train.manner import Clip, Manner
from cutwater.train.step import Part, ServerSide, optimizer_factory

OPTIMIZERS = {
    "sgd": {"momentum": 0.9, "nesterov": True},
    "adamw": {"amsgrad": True},
    "nadam": {},
    "radam": {},
    "rmsprop": {"momentum": 0.5, "centered": True},
    "adagrad": {"lr_decay": 0.1},
    "adadelta": {},
    "adamax": {},
    "asgd": {},
    "rprop": {},
    "adafactor": {},
}


class Noted(nn.Module):
    """Subtracts a running mean that no state dict holds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(12), persistent=False)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Growing(torch.optim.SGD):
    """Keeps a count in its group, and a half-precision average and a list beside its weights."""

    def __init__(self, params, lr=0.1, *, listed=False):
        super().__init__(params, lr)
        self.listed = listed
        for group in self.param_groups:
            group["count"] = 0

    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] += 1
            for one in group["params"]:
                kept = self.state[one]
                before = kept.get("average", torch.zeros_like(one, dtype=torch.bfloat16))
                kept["average"] = before.mul(0.5).add(one.grad.to(torch.bfloat16))
                kept["name"] = "mine"
                if self.listed:
                    kept["seen"] = [1]
                one.data.add_(kept["average"].float(), alpha=-group["lr"] / group["count"])


def side_of(make, manner):
    half = nn.Sequential(Noted(), *list(small_model())[1:])
    return ServerSide(half, make, 5, nn.functional.cross_entropy, manner=manner)


def step(side, number, norm=None):
    random = torch.Generator().manual_seed(number)
    smashed = torch.randn(6, 12, generator=random).requires_grad_()
    if norm is not None:
        side.clip(norm)
    side.send(Part(number), (smashed,), torch.arange(6) % 3)
    return side.receive()


def crossed(side):
    """As it is after a journal, in another side."""
    tensors, plain = write_side(side)
    return load(save(separate(tensors))), json.loads(json.dumps(plain))


def assert_same(one, other):
    mine, theirs = dict(one.half.named_buffers()), dict(other.half.named_buffers())
    mine |= dict(one.half.named_parameters())
    theirs |= dict(other.half.named_parameters())
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


@pytest.mark.parametrize("name", [*OPTIMIZERS, Growing])
def test_it_trains_on_with_the_same_bits(name):
    make = optimizer_factory(name, 0.05, **OPTIMIZERS.get(name, {}))
    manner = Manner(rates=lambda step: 1.0 / (1 + step))
    one, other = side_of(make, manner), side_of(make, manner)
    for number in range(3):
        step(one, number)
    read_side(other, *crossed(one))
    assert_same(one, other)
    for number in range(3, 6):
        assert torch.equal(step(one, number).gradients[0], step(other, number).gradients[0])
    assert_same(one, other)


def test_an_update_that_waits_for_the_norm_waits_on():
    make = optimizer_factory("adamw", 0.05)
    names = [name for name, _ in side_of(make, Manner()).half.named_parameters()]
    manner = Manner(clip=Clip(0.1, {name: place for place, name in enumerate(names)}))
    one, other = side_of(make, manner), side_of(make, manner)
    told = step(one, 0).norm
    read_side(other, *crossed(one))
    assert other.least == told
    for number in range(1, 4):
        here, there = step(one, number, 2 * told), step(other, number, 2 * told)
        assert here.norm == there.norm
        told = here.norm
    assert_same(one, other)


def test_what_does_not_learn_is_not_written():
    make = optimizer_factory("sgd", 0.05)
    half = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    half[0].requires_grad_(False)
    tensors, plain = write_side(ServerSide(half, make, 5, nn.functional.cross_entropy))
    assert sorted(tensors) == ["half/1.bias", "half/1.weight"]
    json.dumps(plain)


def test_what_an_optimizer_keeps_that_is_no_number_and_no_tensor_is_not_written_at_all():
    side = side_of(optimizer_factory(Growing, 0.05, listed=True), Manner())
    step(side, 0)
    assert write_side(side) is None
