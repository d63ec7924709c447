"""A model in three parts has the bits of the whole, for every pair of cuts: head, middle, tail."""

import copy
import itertools
from functools import lru_cache, partial

import pytest
import torch
from test_same_bits import Aside, Onward, chain
from tied_models import gpt2, language_loss, llama, pairs, taken_apart, tied_chain, tokens
from torch import nn

import cutwater
from cutwater.base.errors import ModelError
from cutwater.model.discover.layered import of_chain
from cutwater.train.manner import Clip, Manner
from cutwater.train.session import Job, Task, run_both_sides
from cutwater.train.step import optimizer_factory


def cross_entropy(output, labels):
    return nn.functional.cross_entropy(output[0] if isinstance(output, tuple) else output, labels)


def language(make):
    made = make()
    model = made if isinstance(made, cutwater.Layered) else taken_apart(made)
    data = [((tokens(4, seed),), tokens(4, seed + 7)) for seed in range(3)]
    return model, data, language_loss


def vectors(make):
    torch.manual_seed(0)
    model = of_chain(make(), ["0", "1", "2", "3", "4"])
    generator = torch.Generator().manual_seed(1)
    data = [((torch.randn(6, 8, generator=generator),), torch.arange(6) % 3) for _ in range(3)]
    return model, data, cross_entropy


def aside():
    """The loss never looks at a tensor that crosses both cuts."""
    return nn.Sequential(nn.Linear(8, 8), Aside(), Onward(), Onward(), Onward(3))


def normed():
    return nn.Sequential(
        nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 8)),
        nn.BatchNorm1d(8), nn.Linear(8, 3),
    )  # fmt: skip


def triple():
    """The same weights in three layers, two of them before the first cut of most pairs."""
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 8))
    net[1].weight = net[4].weight = net[0].weight
    return net


def frozen():
    """Nothing goes back through the first layers, nor through the last."""
    net = chain()
    net[0].requires_grad_(requires_grad=False)
    net[4].requires_grad_(requires_grad=False)
    return net


MODELS = {
    "gpt2": (language, partial(gpt2, 1)),
    "llama": (language, llama),
    "tied": (language, tied_chain),
    "chain": (vectors, chain),
    "aside": (vectors, aside),
    "normed": (vectors, normed),
    "triple": (vectors, triple),
    "frozen": (vectors, frozen),
}


@lru_cache
def prepared(name):
    prepare, make = MODELS[name]
    model, data, loss = prepare(make)
    return model, data, loss, copy.deepcopy(model.module.state_dict())


def trained(name, cut, second_cut=0, *, micro_batches=1, optimizer="adamw", clip=None, **wire):
    model, data, loss, start = prepared(name)
    manner = Manner(clip=None if clip is None else Clip(clip, model.places))
    made = partial(optimizer_factory, optimizer)
    job = Job(model, loss, made, lambda _: data, micro_batches, manner=lambda _: manner)
    task = Task("c1", 1, cut or len(model), seed=5, lr=0.05, samples=4, second_cut=second_cut, **wire)
    result = run_both_sides(job, task, start)
    return model, {key: value.clone() for key, value in result.state.items()}, result


def same(one, other):
    return [key for key in one if not torch.equal(one[key], other[key])]


@pytest.mark.parametrize(
    ("name", "micro_batches"),
    [*((name, 1) for name in MODELS), ("tied", 3), ("aside", 3), ("normed", 3), ("triple", 3)],
)
def test_every_pair_of_cuts_gives_the_bits_of_the_whole(name, micro_batches):
    model, whole, reference = trained(name, 0, micro_batches=micro_batches)
    allowed = pairs(model)
    assert allowed
    for pair in allowed:
        _, cut, result = trained(name, *pair, micro_batches=micro_batches)
        assert not same(whole, cut), pair
        assert result.loss == reference.loss


@pytest.mark.parametrize(
    ("name", "micro_batches"),
    [("tied", 1), ("chain", 1), ("normed", 1), ("tied", 3), ("aside", 3), ("triple", 3), ("frozen", 2)],
)
def test_every_pair_of_cuts_clips_by_the_norm_of_the_whole(name, micro_batches):
    how = {"micro_batches": micro_batches, "optimizer": "sgd"}
    model, whole, reference = trained(name, 0, clip=0.05, **how)
    _, plain, _ = trained(name, 0, **how)
    assert same(whole, plain), "it is clipped at all"
    for pair in pairs(model):
        _, cut, result = trained(name, *pair, clip=0.05, **how)
        assert not same(whole, cut), pair
        assert result.loss == reference.loss


def test_what_crosses_is_counted_both_ways_and_no_label_goes_up():
    _, _, result = trained("chain", 1, 3)
    floats, steps = 4 * 6 * 8, 3
    assert result.bytes_up == 4 * (8 * 8 + 8 + 3 * 8 + 3) + steps * 2 * floats
    assert result.bytes_down == result.bytes_up


def test_a_lossless_codec_changes_nothing_and_a_lossy_one_something():
    _, plain, _ = trained("chain", 2, 4)
    _, lossless, _ = trained("chain", 2, 4, up="lossless", down="lossless")
    assert not same(plain, lossless)
    _, coarse, result = trained("chain", 2, 4, up="int8", down="int8")
    _, again, _ = trained("chain", 2, 4, up="int8", down="int8")
    assert same(plain, coarse)
    assert not same(coarse, again)
    assert result.bytes_up < trained("chain", 2, 4)[2].bytes_up


def test_each_tensor_is_on_one_side_and_a_tied_one_travels_once():
    model = tied_chain()
    device, middle = model.split(1, 4)
    assert device.state_dict().keys() | middle.state_dict().keys() == model.module.state_dict().keys()
    assert not device.state_dict().keys() & middle.state_dict().keys()
    assert len(list(device.parameters())) == 1


def test_frozen_weights_that_several_layers_use_stand_on_both_sides():
    net = triple()
    net[0].weight.requires_grad_(requires_grad=False)
    model = of_chain(net, ["0", "1", "2", "3", "4"])
    device, middle = model.split(1, 2)
    assert "0.weight" in device.state_dict()
    assert "1.weight" in middle.state_dict()
    assert pairs(model) == list(itertools.combinations(range(1, 5), 2))


@pytest.mark.parametrize(
    ("pair", "sentence"),
    [
        ((2, 2), "cuts 2 and 2 are out of range"),
        ((3, 2), "the second above the first"),
        ((1, 5), "whole numbers from 1 to 4"),
        ((0, 3), "out of range"),
        ((1, 2.5), "out of range"),
    ],
)
def test_a_pair_out_of_range_is_refused(pair, sentence):
    with pytest.raises(ModelError, match=sentence):
        tied_chain().split(*pair)


def test_a_pair_that_tears_tied_weights_apart_is_refused():
    model = vectors(triple)[0]
    with pytest.raises(ModelError, match=r"cuts 1 and 3 can't be used together: 0.weight is used in layers"):
        model.split(1, 3)
