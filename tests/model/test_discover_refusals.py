"""Models that can't be taken apart are refused in one sentence that says where and what to do."""

import random
from pathlib import Path

import numpy as np
import pytest
import sample_models as models
import torch
from split_checks import check_every_cut, check_joins
from torch import nn

import cutwater
from cutwater.base.errors import ModelError

VECTORS = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))


def line_of(text):
    lines = Path(models.__file__).read_text().splitlines()
    return 1 + next(index for index, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("granularity", ["block", "fine"])
def test_a_decision_by_data_is_refused_with_its_line_and_the_way_out(granularity, capfd):
    with pytest.raises(ModelError) as refusal:
        cutwater.layered(models.Deciding(), VECTORS, granularity=granularity)
    message = str(refusal.value)
    assert f"sample_models.py:{line_of('# decides here')} (if x.mean() > 0:" in message
    assert "cutwater.layered(model, example, layers=[" in message
    assert "\n" not in message
    captured = capfd.readouterr()
    assert not captured.out
    assert not captured.err


def test_the_same_model_is_taken_apart_by_a_list_of_its_layers():
    class Negated(models.Deciding):
        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
                if x.detach().abs().sum().item() >= 0:
                    x = -x
            return self.head(x)

    model = Negated()
    first, second = model.blocks
    steps = [model.stem, first, torch.neg, second, torch.neg, "head"]
    layered = cutwater.layered(model, VECTORS, layers=steps)
    assert [layer.name for layer in layered.layers] == ["stem", "blocks.0", "blocks.1", "head"]
    check_every_cut(layered, VECTORS)
    check_joins(layered)


def test_a_list_of_layers_that_computes_something_else_is_refused():
    model = models.Deep()
    with pytest.raises(ModelError, match=r"don't compute what Deep computes: output 1 differs in"):
        cutwater.layered(model, VECTORS, layers=[model.stem, model.blocks[0], model.head])


def test_a_list_of_layers_may_stand_alone():
    parts = [nn.Linear(6, 8), models.Feed(), nn.Linear(8, 3)]
    for given in (parts, tuple(parts), nn.ModuleList(parts)):
        layered = cutwater.layered(given)
        assert len(layered) == 3
        smashed = layered.split(2).client(VECTORS)
        assert layered.split(2).server(smashed).shape == (3, 3)
        check_joins(layered)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([nn.Linear(6, 8)], "the layer Linear is no part of Deep"),
        (["stem", "tail"], "Deep has no submodule 'tail'"),
        ([], "the list of layers is empty"),
        ([3], "the list of layers holds 3"),
    ],
)
def test_what_is_no_layer_of_the_model_is_refused(layers, message):
    with pytest.raises(ModelError, match=message):
        cutwater.layered(models.Deep(), VECTORS, layers=layers)


def test_a_forward_that_fails_is_reported_with_the_shape_and_its_own_words():
    with pytest.raises(ModelError, match=r"ResNet fails on x of shape 2×1×8×8: .* 3 channels"):
        cutwater.layered(models.ResNet(), torch.randn(2, 1, 8, 8))
    with pytest.raises(ModelError, match=r"Sequential fails on input of shape 2×5: mat1 and mat2 shapes"):
        cutwater.layered(nn.Sequential(nn.Linear(6, 3)), torch.randn(2, 5))
    with pytest.raises(ModelError, match=r"MaskedEncoder fails on features of shape 2×5.*keep"):
        cutwater.layered(models.MaskedEncoder(), torch.randn(2, 5))


def test_inputs_are_asked_for_and_must_be_tensors():
    with pytest.raises(ModelError, match="Deep is traced on example inputs, but none are given"):
        cutwater.layered(models.Deep())
    with pytest.raises(ModelError, match="the example inputs are str, but must be a tensor"):
        cutwater.layered(models.Deep(), "1x28x28")
    with pytest.raises(ModelError, match="granularity is 'coarse', but must be 'block' or 'fine'"):
        cutwater.layered(models.Deep(), VECTORS, granularity="coarse")


def test_parameters_without_a_shape_are_asked_for():
    with pytest.raises(ModelError, match="Sequential has parameters without a shape"):
        cutwater.layered(nn.Sequential(nn.LazyLinear(3)), VECTORS)


def test_a_size_that_no_shape_tells_crosses_the_cut():
    class Grid(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, 6, 2, 2)
            self.mix, self.mix_again = nn.Linear(6, 6), nn.Linear(6, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            x = self.patches(x)
            height, width = x.shape[2:]
            x = self.mix(x.flatten(2).transpose(1, 2))  # height and width are no longer in the shape
            x = self.mix_again(x).transpose(1, 2).unflatten(2, (height, width))
            return self.head(x.amax(2).mean(2))

    layered = cutwater.layered(Grid(), torch.randn(2, 3, 8, 8))
    client, server = layered.split(2)
    for size in ((8, 8), (12, 12), (6, 10)):
        check_every_cut(layered, torch.randn(2, 3, *size))
    smashed = client(torch.randn(5, 3, 12, 6))
    assert [tuple(value.shape[1:]) for value in smashed if not value.is_floating_point()] == [(1,), (1,)]
    assert server(smashed).shape == (5, 3)


def test_a_size_that_is_baked_into_the_trace_is_refused_by_name():
    class Mean(models.Deep):
        def forward(self, x):
            return super().forward(x.sum(1) / np.float32(int(x.shape[1])))

    layered = cutwater.layered(Mean(), torch.randn(2, 5, 6))
    check_every_cut(layered, torch.randn(2, 5, 6))
    client = layered.split(1).client
    with pytest.raises(ModelError, match="taken apart for x of shape any×5×6, but got 2×9×6: take it apart"):
        client(torch.randn(2, 9, 6))


def test_a_forward_that_holds_for_one_batch_size_only_is_refused():
    class Baked(models.WithAuxiliary):
        def forward(self, x):
            return self.head(x) if x.shape[0] > 8 else super().forward(x)

    with pytest.raises(ModelError, match="takes another way for batches"):
        cutwater.layered(Baked(), VECTORS)


def test_random_numbers_that_torch_does_not_draw_are_refused():
    class Dice(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 8)

        def forward(self, x):
            return x if self.training and random.random() < 0.5 else self.body(x)

    class Game(models.Deep):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Dice(), Dice()])

    with pytest.raises(ModelError, match="Game draws from the random generators of Python or NumPy"):
        cutwater.layered(Game(), VECTORS)


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_a_scripted_module_is_refused_with_the_way_out():
    with pytest.raises(ModelError, match="Sequential is a scripted module, which can't be taken apart"):
        cutwater.layered(torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), torch.ones(2, 2))


class HalfPrecise(nn.Module):
    """A context in forward, which no trace keeps."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 12), nn.Linear(12, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.first(x)
        return self.last(x.float())


def test_a_line_of_this_package_is_never_blamed():
    with pytest.raises(ModelError, match="HalfPrecise can't be taken apart") as refused:
        cutwater.layered(HalfPrecise(), torch.randn(2, 6))
    assert "discover.py" not in str(refused.value)
