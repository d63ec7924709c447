"""Convolutions over a few pixels are torch's own: outputs, gradients, and what the profile counts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cutwater.model.zoo import build
from cutwater.model.zoo.convolution import Convolution
from cutwater.profile.count import profile_model


def results(conv: nn.Module, x: torch.Tensor, weights: torch.Tensor) -> list[torch.Tensor]:
    """Output, and the gradients of a weighted sum of it."""
    x = x.clone().requires_grad_()
    out = conv(x)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), (x, *conv.parameters()))]


@settings(deadline=None, max_examples=60)
@given(
    batch=st.integers(1, 5),
    channels=st.integers(2, 6),
    size=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.integers(1, 2),
    depthwise=st.booleans(),
    bias=st.booleans(),
)
def test_a_convolution_is_torchs_own(batch, channels, size, kernel, stride, depthwise, bias):
    torch.manual_seed(channels)
    groups = channels if depthwise else 1
    ours = Convolution(channels, channels, kernel, stride, kernel // 2, groups=groups, bias=bias)
    torchs = nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=groups, bias=bias).double()
    torchs.load_state_dict(ours.state_dict())
    x = torch.randn(batch, channels, *size)
    weights = torch.randn_like(ours(x).detach())
    for got, want in zip(
        results(ours, x, weights), results(torchs, x.double(), weights.double()), strict=True
    ):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_few_pixels_take_the_quick_way(kernel):
    conv = Convolution(4, 4, kernel, padding=kernel // 2, groups=1 if kernel == 1 else 4, bias=False)
    few, many = (conv(torch.randn(2, 4, size, size)).grad_fn.name() for size in (1, 3))
    assert "Convolution" in many
    assert "Convolution" not in few


def test_autocast_and_export_compute_as_torch_does():
    conv, x = Convolution(4, 4, 3, padding=1, groups=4, bias=False), torch.randn(2, 4, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert conv(x).dtype == torch.bfloat16
    program = torch.export.export(conv, (x,))
    assert [node.target for node in program.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.conv2d.default
    ]


def test_a_whole_model_learns_what_torchs_convolutions_would():
    torch.manual_seed(0)
    ours = build("efficientnet_v2_s", "1x28x28", 10, dropout=0.0, stochastic_depth=0.0)
    reference = build("efficientnet_v2_s", "1x28x28", 10, dropout=0.0, stochastic_depth=0.0).double()
    reference.load_state_dict(ours.state_dict())
    x = torch.randn(4, 1, 28, 28)
    for model, inputs in ((ours, x), (reference, x.double())):
        model.train()(inputs).square().sum().backward()
    pairs = zip(ours.parameters(), reference.parameters(), strict=True)
    errors = [float((p.grad.double() - q.grad).norm()) for p, q in pairs]
    whole = float(torch.cat([q.grad.flatten() for q in reference.parameters()]).norm())
    assert max(errors) <= 1e-4 * whole


def test_the_profile_counts_the_convolutions_themselves(monkeypatch):
    ours = profile_model("efficientnet_v2_s", "1x28x28", 10)
    monkeypatch.setattr(Convolution, "forward", nn.Conv2d.forward)
    assert profile_model("efficientnet_v2_s", "1x28x28", 10) == ours
