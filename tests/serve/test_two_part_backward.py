"""A backward pass in two parts gives the bits of one in one go, and its first part leaves out the weights."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from cutwater.serve import two_part_backward
from cutwater.serve.two_part_backward import backward_first


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.scale = nn.Parameter(torch.full((4, 1, 1), 0.5))

    def forward(self, x):
        return x + self.scale * self.body(x)


class Tied(nn.Module):
    """Two uses of one weight, and a third of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.once = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        x = torch.relu(self.twice(x.flatten(1)))
        return self.twice(self.once(x)) @ self.twice.weight


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Dropout(0.5), nn.Conv2d(4, 4, 1))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=self.reentrant)


class Twice(torch.autograd.Function):
    """Somebody's own."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)

    def forward(self, x):
        return Twice.apply(self.conv(x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(16, 8, batch_first=True)

    def forward(self, x):
        return self.gru(x.flatten(2))[0]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.randn(4, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.layer(x.flatten(2) + self.place)


LAYERS = {
    "conv": lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False),
    "dilated": lambda: nn.Conv2d(4, 6, 2, dilation=2, padding=1),
    "grouped": lambda: nn.Conv2d(4, 8, 3, groups=2, padding=1),
    "depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1),
    "transposed": lambda: nn.ConvTranspose2d(4, 3, 3, stride=2),
    "one dimension": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 5, 3)),
    "three dimensions": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Conv3d(2, 3, 2)),
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7)),
    "linear on rows": lambda: nn.Linear(4, 7, bias=False),
    "linear on rows with bias": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(16, 7)),
    "normalised": lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.LayerNorm(4), nn.PReLU()),
    "weight norm": lambda: parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
    "frozen": lambda: nn.Sequential(nn.Conv2d(4, 4, 1).requires_grad_(False), nn.Conv2d(4, 4, 1)),
    "residual": Residual,
    "tied": Tied,
    "recurrent": Recurrent,
    "attention": Attention,
    "own function": Own,
    "checkpointed": partial(Checkpointed, reentrant=False),
    "checkpointed the old way": partial(Checkpointed, reentrant=True),
}


def gradients(half, x, backward):
    for each in (x, *half.parameters()):
        each.grad = None
    torch.manual_seed(3)
    value = F.log_softmax(half(x.clone()).flatten(1), 1).square().mean()
    backward(value)
    return [None if each.grad is None else each.grad.clone() for each in (x, *half.parameters())]


def in_two_parts(x, value):
    rest = backward_first(value, [x])
    if rest is not None:
        rest()


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.stride() == other.stride()
            assert torch.equal(one, other)


@pytest.mark.parametrize("known", [True, False], ids=["graph as known", "another graph"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_two_parts_give_the_bits_of_one_go(name, dtype, known, monkeypatch):
    monkeypatch.setattr(two_part_backward, "IN_TWO_PARTS", known)
    torch.manual_seed(1)
    half = LAYERS[name]().to(dtype)
    x = torch.randn(5, 4, 4, 4, dtype=dtype, requires_grad=True)
    wanted = gradients(half, x, torch.autograd.backward)
    assert wanted[0] is not None
    assert_same(gradients(half, x, partial(in_two_parts, x)), wanted)


SHAPE_KEEPING = (
    Residual,
    lambda: nn.Conv2d(4, 4, 3, padding=1),
    lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2),
    lambda: nn.BatchNorm2d(4),
    nn.ReLU,
    lambda: nn.Linear(4, 4),
    lambda: nn.Dropout(0.3),
    lambda: nn.AvgPool2d(3, 1, 1),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, len(SHAPE_KEEPING) - 1), max_size=8), st.lists(st.integers(0, 7), max_size=2))
def test_any_stack_of_layers_some_of_them_used_again(places, again):
    torch.manual_seed(1)
    layers = [SHAPE_KEEPING[place]() for place in places]
    half = nn.Sequential(*layers, *(layers[place] for place in again if place < len(layers)))
    x = torch.randn(3, 4, 4, 4, requires_grad=True)
    wanted = gradients(half, x, torch.autograd.backward)
    assert_same(gradients(half, x, partial(in_two_parts, x)), wanted)


@pytest.mark.parametrize(
    "half",
    [
        nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 2 * 2, 5)),
        nn.Linear(4, 7, bias=False),
        nn.Sequential(nn.Flatten(2), nn.Linear(16, 7), nn.GELU(), nn.Linear(7, 3)),
    ],
    ids=["convolution", "rows", "rows with biases"],
)
def test_the_first_part_computes_nothing_for_the_weights_and_the_second_nothing_else(half):
    x = torch.randn(5, 4, 4, 4, requires_grad=True)
    value = half(x.clone()).square().mean()
    with FlopCounterMode(display=False) as whole:
        torch.autograd.backward(value, retain_graph=True)
    x.grad = None
    half.zero_grad()
    with FlopCounterMode(display=False) as first:
        rest = backward_first(value, [x])
    assert x.grad is not None
    assert all(weight.grad is None for weight in half.parameters())
    assert rest is not None
    with FlopCounterMode(display=False) as second:
        rest()
    assert all(weight.grad is not None for weight in half.parameters())
    assert first.get_total_flops() == second.get_total_flops() == whole.get_total_flops() / 2


def test_of_several_tensors_one_that_is_not_used_has_no_gradient():
    conv = nn.Conv2d(4, 4, 3)
    used, unused = (torch.randn(2, 4, 4, 4, requires_grad=True) for _ in range(2))
    rest = backward_first(conv(used).sum(), [used, unused])
    assert rest is not None
    assert used.grad is not None
    assert unused.grad is None


@pytest.mark.parametrize("name", ["own function", "checkpointed the old way"])
def test_with_somebodys_own_function_there_is_nothing_left_to_do(name):
    half = LAYERS[name]()
    x = torch.randn(2, 4, 4, 4, requires_grad=True)
    assert backward_first(half(x.clone()).sum(), [x]) is None
    assert all(weight.grad is not None for weight in half.parameters())


def test_if_nobody_waits_there_is_nothing_left_to_do():
    conv = nn.Conv2d(4, 4, 3)
    assert backward_first(conv(torch.randn(2, 4, 4, 4)).sum(), []) is None
    assert conv.weight.grad is not None


def test_weights_that_are_used_twice_do_not_wait():
    tied, x = Tied(), torch.randn(2, 4, 4, 4, requires_grad=True)
    rest = backward_first(tied(x).sum(), [x])
    assert rest is not None
    assert tied.twice.weight.grad is not None
    assert tied.once.weight.grad is None


def test_what_is_noted_for_later_is_bounded(monkeypatch):
    half = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    x = torch.randn(5, 4, 4, 4, requires_grad=True)
    wanted = gradients(half, x, torch.autograd.backward)
    assert_same(gradients(half, x, partial(in_two_parts, x)), wanted)
    sizes = [5 * 8 * 4 * 4 * 4, 5 * 2 * 2 * 2 * 4, 5 * 3 * 4]  # bytes that come in at each of the three
    for most, waiting in (
        (sum(sizes), [0, 1, 3]),
        (sum(sizes) - 1, [1, 3]),
        (sizes[1] + sizes[2], [1, 3]),
        (sizes[1] + sizes[2] - 1, [3]),
        (sizes[2] - 1, []),
    ):
        monkeypatch.setattr(two_part_backward, "_MOST_NOTED", most)
        x.grad = None
        half.zero_grad()
        rest = backward_first(F.log_softmax(half(x.clone()).flatten(1), 1).square().mean(), [x])
        assert [place for place in (0, 1, 3) if half[place].weight.grad is None] == waiting
        assert (rest is not None) == bool(waiting)
        if rest is not None:
            rest()
        assert_same([each.grad for each in (x, *half.parameters())], wanted)


def test_a_bias_does_not_wait_where_its_weight_can_not():
    weight, biases = nn.Parameter(torch.randn(4, 4)), [nn.Parameter(torch.zeros(4)) for _ in range(2)]
    x = torch.randn(2, 4, requires_grad=True)
    assert backward_first(F.linear(F.linear(x, weight, biases[0]), weight, biases[1]).sum(), [x]) is None
    assert all(each.grad is not None for each in (weight, *biases))


def test_what_hangs_on_a_weight_is_called_once():
    conv, calls = nn.Conv2d(4, 4, 3), []
    conv.weight.register_hook(lambda gradient: calls.append("gradient") or 2 * gradient)
    conv.weight.register_post_accumulate_grad_hook(lambda weight: calls.append("accumulated"))
    x = torch.randn(2, 4, 4, 4, requires_grad=True)
    wanted = gradients(conv, x, torch.autograd.backward)
    calls.clear()
    assert_same(gradients(conv, x, partial(in_two_parts, x)), wanted)
    assert calls == ["gradient", "accumulated"]


def test_a_value_that_depends_on_nothing_is_refused_as_by_torch():
    with pytest.raises(RuntimeError, match="does not require grad"):
        backward_first(torch.ones(()), [])


def test_this_torch_makes_the_graph_that_is_known():
    assert two_part_backward.IN_TWO_PARTS


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("_APART", frozenset({"ConvolutionBackward1", "AddmmBackward1"})),
        ("_APART", frozenset({"ConvolutionBackward0"})),
        ("_LEAF", "AccumulateGradient"),
        ("_TRANSPOSE", "TransposeBackward0"),
    ],
)
def test_a_torch_with_other_names_is_found_out_and_does_all_in_one_go(monkeypatch, name, other):
    monkeypatch.setattr(two_part_backward, name, other)
    assert not two_part_backward._works()


def test_a_torch_whose_nodes_say_nothing_of_their_inputs_is_found_out(monkeypatch):
    monkeypatch.setattr(two_part_backward._Due, "bytes", lambda due: due.node._no_such_thing)
    assert not two_part_backward._works()


def test_with_another_graph_all_is_done_in_one_go(monkeypatch):
    monkeypatch.setattr(two_part_backward, "IN_TWO_PARTS", False)
    conv, x = nn.Conv2d(4, 4, 3), torch.randn(2, 4, 4, 4, requires_grad=True)
    assert backward_first(conv(x).sum(), [x]) is None
    assert conv.weight.grad is not None
