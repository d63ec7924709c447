"""What models of other libraries do: outputs of their own classes, hooks, other sizes, shared values."""

import copy
from collections import OrderedDict, namedtuple
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
import sample_models as models
import torch
from split_checks import check_every_cut, check_joins, usable_cuts
from torch import nn

import cutwater
from cutwater.base.errors import ModelError
from cutwater.model.graph.nested import kind_of, tensors_in

VECTORS = torch.randn(3, 6, generator=torch.Generator().manual_seed(2))
Pair = namedtuple("Pair", ("first", "second"))


@dataclass
class Answer:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()
    note: str = ""
    count: int = 0


class Spread:
    """No dataclass, no mapping: an object that carries tensors."""

    def __init__(self, mean, width):
        self.mean, self.width = mean, width


class Odd(OrderedDict):
    """A mapping whose items are attributes as well, as those of Hugging Face's outputs are."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def odd(value):
    made = Odd()
    made["logits"] = value
    return made


KINDS = {
    "named tuple": lambda x: Pair(x, x * 2),
    "ordered dict": lambda x: OrderedDict(out=x, aux=x + 1),
    "dataclass": lambda x: Answer(x, (x, x + 1), "kept", 3),
    "nested": lambda x: [Pair(x, {"answer": Answer(x)}), (x, None)],
    "mapping with attributes": odd,
    "object": lambda x: Spread(x, x.exp()),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("granularity", ["block", "fine"])
def test_halves_return_what_the_model_returns(kind, granularity):
    class Model(models.Deep):
        def forward(self, x):
            return KINDS[kind](super().forward(x))

    torch.manual_seed(0)
    model = Model()
    layered = cutwater.layered(model, VECTORS, granularity=granularity)
    expected = model.eval()(VECTORS)
    for cut in usable_cuts(layered):
        client, server = (half.eval() for half in layered.split(cut))
        output = server(client(VECTORS))
        assert kind_of(output) == kind_of(expected)
        assert all(map(torch.equal, tensors_in(output), tensors_in(expected)))
    check_every_cut(layered, VECTORS)


def test_blocks_may_hand_on_whatever_holds_tensors():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 8)

        def forward(self, state):
            return Answer(self.body(state.logits).relu(), (state.logits,), "next", state.count + 1)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x):
            state = Answer(self.stem(x))
            for block in self.blocks:
                state = block(state)
            return self.head(state.logits + state.hidden[0])

    torch.manual_seed(0)
    layered = cutwater.layered(Model(), VECTORS)
    assert len(usable_cuts(layered)) == 4
    check_every_cut(layered, VECTORS)


class Meddling(models.Deep):
    """Installs hooks, counts, and writes into its parameters and settings while it runs."""

    def __init__(self):
        super().__init__()
        self.calls, self.kept = {"count": 0}, []

    def forward(self, x):
        self.calls["count"] += 1
        self.kept.append(x.shape[0])
        self.blocks[0].register_forward_hook(lambda module, given, output: output)
        with torch.no_grad():
            self.head.weight.data.clamp_(-0.1, 0.1)
        return super().forward(x)


def test_the_model_is_as_it_was():
    torch.manual_seed(0)
    model = Meddling()
    model.blocks[1].eval()
    model.stem.weight.requires_grad_(False)
    model.head.bias.grad = torch.ones_like(model.head.bias)
    before = copy.deepcopy(model.state_dict())
    with suppress(ModelError):
        cutwater.layered(model, VECTORS)
    assert model.calls == {"count": 0}
    assert model.kept == []
    assert not model.blocks[0]._forward_hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [block.training for block in model.blocks] == [True, False, True, True]
    assert not model.stem.weight.requires_grad
    assert torch.equal(model.head.bias.grad, torch.ones_like(model.head.bias))


class Biased(nn.Module):
    """All blocks share a position bias that the first of them makes, and that learns."""

    def __init__(self):
        super().__init__()
        self.embed, self.bias = nn.Embedding(11, 8), nn.Embedding(16, 1)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 3)

    def forward(self, tokens):
        bias = self.bias(torch.arange(tokens.shape[1], device=tokens.device))
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x) + bias
        return self.head(x.mean(1))


def test_what_all_blocks_share_crosses_every_cut_between_them():
    torch.manual_seed(0)
    layered = cutwater.layered(Biased(), torch.randint(0, 11, (3, 7)))
    assert len(usable_cuts(layered)) >= 4
    for length in (7, 5, 12):
        check_every_cut(layered, torch.randint(0, 11, (3, length)))
    check_joins(layered)


class Tied(nn.Module):
    """The last layer uses the weight of the first."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)


class Repeating(nn.Module):
    """One module is called in several layers."""

    def __init__(self):
        super().__init__()
        self.stem, self.shared = nn.Linear(6, 6), nn.Linear(6, 6)
        self.adapters = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        x = self.stem(x)
        for adapter in self.adapters:
            x = adapter(self.shared(x).relu())
        return x


class Helped(nn.Module):
    """A block that is handed another module, and calls it."""

    def __init__(self):
        super().__init__()
        self.own = nn.Linear(6, 6)

    def forward(self, x, help):
        return (self.own(x) + help(x)).relu()


class Handing(nn.Module):
    """One module is handed to all blocks."""

    def __init__(self):
        super().__init__()
        self.stem, self.shared = nn.Linear(6, 6), nn.Linear(6, 6)
        self.blocks = nn.ModuleList(Helped() for _ in range(4))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x, help=self.shared)
        return x


@pytest.mark.parametrize(
    ("kind", "inputs", "weight"),
    [
        (Tied, torch.randint(0, 11, (3, 5)), "embed.weight"),
        (Repeating, VECTORS, "shared"),
        (Handing, VECTORS, "shared"),
    ],
    ids=["tied", "repeating", "handing"],
)
def test_a_tied_weight_rules_out_cuts_only_if_it_learns(kind, inputs, weight):
    torch.manual_seed(0)
    model = kind()
    assert cutwater.layered(model, inputs).ruled_out
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(weight))
    layered = cutwater.layered(model, inputs)
    assert not layered.ruled_out
    assert len(usable_cuts(layered)) >= 4
    check_every_cut(layered, inputs)
    check_joins(layered)


class Versioned(nn.Module):
    _version = 2

    def __init__(self):
        super().__init__()
        self.tail = nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.ones(8))
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.stem = nn.Linear(6, 8)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x).relu()
        return self.tail(x * self.scale)

    def _load_from_state_dict(self, state, prefix, metadata, *rest):
        assert metadata.get("version") == 2
        super()._load_from_state_dict(state, prefix, metadata, *rest)


def test_joined_halves_keep_versions_and_the_order_of_the_state_dict():
    model = Versioned()
    layered = cutwater.layered(model, VECTORS)
    for cut in usable_cuts(layered):
        joined = cutwater.join(*layered.split(cut)).state_dict()
        assert list(joined) == list(model.state_dict())
        copy.deepcopy(model).load_state_dict(joined)


def test_a_compiled_module_is_the_module_inside():
    model = models.Deep()
    layered = cutwater.layered(torch.compile(model), VECTORS)
    assert layered.module is model
    assert len(layered) == 6


class Masking(models.Deep):
    """Draws with NumPy unless a setting is off."""

    def __init__(self):
        super().__init__()
        self.config = type("Config", (), {})()
        self.config.mask_time_prob = 0.1

    def forward(self, x):
        if self.training and self.config.mask_time_prob:
            x = x * float(np.random.rand() > 0.5)
        return super().forward(x)


def test_a_setting_that_helps_is_named_and_was_tried():
    model = Masking()
    with pytest.raises(ModelError, match=r"it can be with model\.config\.mask_time_prob = 0\.0"):
        cutwater.layered(model, VECTORS)
    assert model.config.mask_time_prob == 0.1
    model.config.mask_time_prob = 0.0
    check_every_cut(cutwater.layered(model, VECTORS), VECTORS)
