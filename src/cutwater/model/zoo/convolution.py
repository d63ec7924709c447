"""Convolutions over images of a few pixels, which is what deep layers see of small images.

EfficientNetV2 halves an image five times: of 28×28 pixels, two thirds of its blocks see 2×2 or a single one.
General kernels are slow there. Over one pixel a 1×1 convolution is a linear map, and the gradients of a
depthwise one are a few products of whole channels (``python benchmarks/small_images.py`` tells what that is
worth).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FEW = 4
"""Pixels of an image up to which the taps of a depthwise convolution are gone through one by one."""


class _Counting(threading.local):
    """Whether somebody counts operators in this thread."""

    depth = 0


_counting = _Counting()


@contextmanager
def convolutions_as_such() -> Iterator[None]:
    """For who counts operators: convolutions are what torch's own are, whatever their images."""
    _counting.depth += 1
    try:
        yield
    finally:
        _counting.depth -= 1


class Convolution(nn.Conv2d):
    """torch's own with the same numbers, up to rounding, and quick on images of a few pixels."""

    def forward(self, input: Tensor) -> Tensor:
        """The convolution."""
        high, wide = input.shape[2:]
        if high * wide > FEW or not _computes_here(input):
            return super().forward(input)
        if self.kernel_size == (1, 1) and self.groups == high == wide == 1:
            return F.linear(input.flatten(1), self.weight.flatten(1), self.bias)[:, :, None, None]
        if self.groups == self.in_channels > 1 and self.bias is None and torch.is_grad_enabled():
            taken = (input, self.weight, self.stride, self.padding)
            out: Tensor = _TapByTap.apply(*taken)  # type: ignore[no-untyped-call]
            return out
        return super().forward(input)


def _computes_here(x: Tensor) -> bool:
    """Whether the CPU computes with these numbers as they are: not where they are counted or exported."""
    plain = type(x) is Tensor and x.device.type == "cpu" and x.dtype == torch.float32
    plain = plain and not torch.is_autocast_enabled("cpu") and not torch.compiler.is_compiling()
    return plain and not _counting.depth


class _TapByTap(torch.autograd.Function):
    """A depthwise convolution whose gradients are made of one product for each tap that meets a pixel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Any, padding: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        # Pixels first: what a pixel or a tap has for all samples and channels then lies together.
        x, gradient = (_pixels_first(each) for each in (ctx.saved_tensors[0], gradient))
        taps = ctx.saved_tensors[1][:, 0].permute(1, 2, 0).contiguous()
        to_x, to_taps = torch.zeros_like(x), torch.zeros_like(taps)
        for out, at, tap in _meetings(gradient, x, taps, ctx.stride, ctx.padding):
            to_x[at].addcmul_(gradient[out], taps[tap])
            to_taps[tap].add_((gradient[out] * x[at]).sum(0))
        to_weight = to_taps.permute(2, 0, 1)[:, None]
        return to_x.permute(2, 3, 0, 1).contiguous(), to_weight.contiguous(), None, None


def _pixels_first(x: Tensor) -> Tensor:
    return x.permute(2, 3, 0, 1).contiguous()


Place = tuple[int, int]


def _meetings(
    out: Tensor, x: Tensor, taps: Tensor, stride: Place, padding: Place
) -> Iterator[tuple[Place, Place, Place]]:
    """Pixels of the output, and of the image, that meet at a tap."""
    for (i, j), (a, b) in product(_grid(out), _grid(taps)):
        y, z = i * stride[0] - padding[0] + a, j * stride[1] - padding[1] + b
        if 0 <= y < x.shape[0] and 0 <= z < x.shape[1]:
            yield (i, j), (y, z), (a, b)


def _grid(x: Tensor) -> Iterator[Place]:
    return product(range(x.shape[0]), range(x.shape[1]))
