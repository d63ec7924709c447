"""FLOPs against calculations by hand; a multiply-add is two."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutwater.model.discover.layered import of_chain
from cutwater.profile.flops import EXACT, PAPER
from cutwater.profile.walk import walk

BATCH = 3


class Entrance(nn.Module):
    """Learns, so that the layer after it must make a gradient for its input; has no FLOPs of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x * self.scale


def flops(module, x, formulas=EXACT):
    """Forward, backward as a first layer, backward as a later layer; all for one sample."""
    (first,) = walk(of_chain(nn.Sequential(module), ["0"]), (x,), formulas)
    _, later = walk(of_chain(nn.Sequential(Entrance(), module), ["0", "1"]), (x,), formulas)
    assert first.forward_flops == later.forward_flops
    amounts = (first.forward_flops, first.backward_flops, later.backward_flops)
    assert not any(amount % len(x) for amount in amounts)
    return tuple(amount // len(x) for amount in amounts)


def test_a_linear_layer_is_one_product_forward_and_two_backward():
    forward = 2 * 20 * 30
    assert flops(nn.Linear(20, 30), torch.zeros(BATCH, 20)) == (forward, forward, 2 * forward)


def test_a_linear_layer_works_at_every_position_of_a_sequence():
    forward = 2 * 7 * 20 * 30
    assert flops(nn.Linear(20, 30), torch.zeros(BATCH, 7, 20)) == (forward, forward, 2 * forward)


def test_a_convolution_meets_each_weight_at_each_output_position():
    conv = nn.Conv2d(8, 16, 3, stride=2, padding=1)
    forward = 2 * (6 * 5) * (8 * 16 * 9)
    assert flops(conv, torch.zeros(BATCH, 8, 11, 9)) == (forward, forward, 2 * forward)


def test_a_depthwise_convolution_is_as_cheap_backward_as_its_groups_make_it():
    conv = nn.Conv2d(32, 32, 3, padding=1, groups=32)
    forward = 2 * (10 * 10) * (32 * 1 * 9)
    assert flops(conv, torch.zeros(BATCH, 32, 10, 10)) == (forward, forward, 2 * forward)


def test_a_transposed_convolution_meets_each_weight_at_each_input_position():
    conv = nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2)
    forward = 2 * (5 * 5) * (4 * 3 * 9)
    assert flops(conv, torch.zeros(BATCH, 4, 5, 5)) == (forward, forward, 2 * forward)


@settings(deadline=None, max_examples=30)
@given(
    groups=st.sampled_from([1, 2, 4]),
    inputs=st.sampled_from([4, 8]),
    outputs=st.sampled_from([4, 12]),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    size=st.integers(3, 9),
    bias=st.booleans(),
    dimensions=st.integers(1, 3),
)
def test_any_convolution_costs_twice_as_much_backward(
    groups, inputs, outputs, kernel, stride, size, bias, dimensions
):
    kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    positions = ((size - kernel) // stride + 1) ** dimensions
    forward = 2 * positions * outputs * (inputs // groups) * kernel**dimensions
    conv = kind(inputs, outputs, kernel, stride, groups=groups, bias=bias)
    x = torch.zeros(BATCH, inputs, *[size] * dimensions)
    assert flops(conv, x) == (forward, forward, 2 * forward)


class Attention(nn.Module):
    """Nothing but attention, with a dropout that takes it off the fast path."""

    def __init__(self, heads, dropout=0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout

    def forward(self, x):
        split = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return F.scaled_dot_product_attention(split, split, split, dropout_p=self.dropout)


def test_flash_attention_is_two_products_forward_and_five_backward():
    tokens, width = 6, 16
    product = 2 * tokens * tokens * width
    forward, none, backward = flops(Attention(heads=4), torch.zeros(BATCH, tokens, width))
    assert (forward, none, backward) == (2 * product, 0, 5 * product)


def test_plain_attention_is_two_products_forward_and_four_backward():
    tokens, width = 6, 16
    product = 2 * tokens * tokens * width
    forward, none, backward = flops(Attention(heads=4, dropout=0.1), torch.zeros(BATCH, tokens, width))
    assert (forward, none, backward) == (2 * product, 0, 4 * product)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner = kind(8, 16, batch_first=True)

    def forward(self, x):
        return self.inner(x)[0]


def test_an_lstm_uses_each_weight_once_at_each_step():
    forward = 2 * 5 * 4 * 16 * (8 + 16)
    assert flops(Recurrent(nn.LSTM), torch.zeros(BATCH, 5, 8))[0] == forward


def test_a_gru_uses_each_weight_once_at_each_step():
    forward = 2 * 5 * 3 * 16 * (8 + 16)
    assert flops(Recurrent(nn.GRU), torch.zeros(BATCH, 5, 8))[0] == forward


class MatrixVector(nn.Module):
    def __init__(self):
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(20))

    def forward(self, x):
        return x @ self.vector


def test_a_matrix_times_a_vector_counts():
    assert flops(MatrixVector(), torch.zeros(BATCH, 20))[0] == 2 * 20


def test_frozen_weights_make_no_gradient():
    conv = nn.Conv2d(4, 4, 1).requires_grad_(False)
    forward = 2 * 25 * 16
    assert flops(conv, torch.zeros(BATCH, 4, 5, 5)) == (forward, 0, forward)


@pytest.mark.parametrize("module", [nn.ReLU(), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Dropout(0.5)])
def test_elementwise_work_is_left_out(module):
    assert flops(module, torch.zeros(BATCH, 4, 6, 6)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.Conv2d(8, 16, 3, padding=1), (8, 5, 5), (8 * 16 * 9 + 16) * 25),
        (nn.Conv2d(8, 8, 3, groups=8, bias=False), (8, 5, 5), 8 * 9 * 9),
        (nn.Linear(20, 30), (20,), 20 * 30 + 30),
        (nn.Linear(20, 30, bias=False), (7, 20), 20 * 30 * 7),
        (nn.BatchNorm2d(8), (8, 5, 5), 2 * 8),
        (nn.BatchNorm2d(8, affine=False), (8, 5, 5), 0),
        (nn.LayerNorm(20), (7, 20), 2 * 20),
        (nn.GroupNorm(2, 8), (8, 5, 5), 2 * 8),
        (nn.ReLU(), (8, 5, 5), 0),
    ],
)
def test_the_papers_count_is_parameters_times_positions(module, shape, expected):
    forward, *_ = flops(module, torch.zeros(BATCH, *shape), PAPER)
    assert forward == 2 * expected
