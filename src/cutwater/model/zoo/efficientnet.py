"""EfficientNetV2 (Tan and Le 2021): S, M and L, in the layers of the paper's experiments.

A layer is the stem, one block, or the head ([1×1 convolution, pool, dropout, classifier] as one), so that
V2-M has 1 + (3+5+5+7+14+18+5) + 1 = 59 of them.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cutwater.model.zoo.convolution import Convolution
from cutwater.model.zoo.inputs import InputSpec, image_shape
from cutwater.model.zoo.parts import Residual, block, init_convolutions, model_of

EPS = 1e-3
"""BatchNorm's ε in the original; torch's default is 1e-5."""
HEAD_CHANNELS = 1280


class Stage(NamedTuple):
    """Blocks of one shape; only the first changes resolution and width."""

    fused: bool
    expand: int
    stride: int
    width: int
    blocks: int


FUSED, PLAIN = True, False
S = (
    Stage(FUSED, 1, 1, 24, 2),
    Stage(FUSED, 4, 2, 48, 4),
    Stage(FUSED, 4, 2, 64, 4),
    Stage(PLAIN, 4, 2, 128, 6),
    Stage(PLAIN, 6, 1, 160, 9),
    Stage(PLAIN, 6, 2, 256, 15),
)
M = (
    Stage(FUSED, 1, 1, 24, 3),
    Stage(FUSED, 4, 2, 48, 5),
    Stage(FUSED, 4, 2, 80, 5),
    Stage(PLAIN, 4, 2, 160, 7),
    Stage(PLAIN, 6, 1, 176, 14),
    Stage(PLAIN, 6, 2, 304, 18),
    Stage(PLAIN, 6, 1, 512, 5),
)
L = (
    Stage(FUSED, 1, 1, 32, 4),
    Stage(FUSED, 4, 2, 64, 7),
    Stage(FUSED, 4, 2, 96, 7),
    Stage(PLAIN, 4, 2, 192, 10),
    Stage(PLAIN, 6, 1, 224, 19),
    Stage(PLAIN, 6, 2, 384, 25),
    Stage(PLAIN, 6, 1, 640, 7),
)


def efficientnet_v2_s(
    input: InputSpec, classes: int, *, dropout: float = 0.2, stochastic_depth: float = 0.2
) -> nn.Sequential:
    """V2-S: 42 layers."""
    return _build("efficientnet_v2_s", S, input, classes, dropout, stochastic_depth)


def efficientnet_v2_m(
    input: InputSpec, classes: int, *, dropout: float = 0.3, stochastic_depth: float = 0.2
) -> nn.Sequential:
    """V2-M: 59 layers, the model of the paper's experiments."""
    return _build("efficientnet_v2_m", M, input, classes, dropout, stochastic_depth)


def efficientnet_v2_l(
    input: InputSpec, classes: int, *, dropout: float = 0.4, stochastic_depth: float = 0.2
) -> nn.Sequential:
    """V2-L: 81 layers."""
    return _build("efficientnet_v2_l", L, input, classes, dropout, stochastic_depth)


def _build(
    name: str, stages: Sequence[Stage], input: InputSpec, classes: int, dropout: float, depth: float
) -> nn.Sequential:
    channels, _, _ = image_shape(name, input)
    stem = _conv(channels, stages[0].width, 3, stride=2)
    head = _head(stages[-1].width, classes, dropout)
    model = model_of([("stem", stem), *_blocks(stages, depth), ("head", head)])
    init_convolutions(model)
    _start_as_identities(model)
    return model


def _start_as_identities(model: nn.Sequential) -> None:
    """Residual blocks pass their input on at first (Goyal et al. 2017).

    What this, the fan-out of grouped convolutions and the small classifier are worth to plain SGD on small
    images, each by itself, is told by ``benchmarks/initialisation.py``.
    """
    for module in model.modules():
        if isinstance(module, Residual):
            norms = [each for each in module.branch.modules() if isinstance(each, nn.BatchNorm2d)]
            nn.init.zeros_(norms[-1].weight)


def _blocks(stages: Sequence[Stage], depth: float) -> Iterator[tuple[str, nn.Module]]:
    """Every block with its name; stochastic depth grows from 0 by equal steps, the stem not counted."""
    total, done, width = sum(stage.blocks for stage in stages), 0, stages[0].width
    for number, stage in enumerate(stages, start=1):
        for index in range(stage.blocks):
            stride = stage.stride if index == 0 else 1
            branch = (_fused if stage.fused else _inverted)(width, stage, stride)
            whole = stride == 1 and width == stage.width
            block = Residual(branch, stochastic_depth=depth * done / total) if whole else branch
            yield f"stage{number}_{index + 1}", block
            width, done = stage.width, done + 1


def _fused(width: int, stage: Stage, stride: int) -> nn.Sequential:
    """One 3×3 convolution that widens, then a 1×1 that narrows."""
    if stage.expand == 1:
        return block([("conv", _conv(width, stage.width, 3, stride=stride))])
    hidden = width * stage.expand
    parts = [
        ("expand", _conv(width, hidden, 3, stride=stride)),
        ("project", _conv(hidden, stage.width, 1, act=False)),
    ]
    return block(parts)


def _inverted(width: int, stage: Stage, stride: int) -> nn.Sequential:
    """1×1 that widens, 3×3 on each channel alone, squeeze and excitation, 1×1 that narrows."""
    hidden = width * stage.expand
    parts = [
        ("expand", _conv(width, hidden, 1)),
        ("depthwise", _conv(hidden, hidden, 3, stride=stride, groups=hidden)),
        ("excite", SqueezeExcitation(hidden, max(1, width // 4))),
        ("project", _conv(hidden, stage.width, 1, act=False)),
    ]
    return block(parts)


def _head(width: int, classes: int, dropout: float) -> nn.Sequential:
    classifier = nn.Linear(HEAD_CHANNELS, classes)
    nn.init.normal_(classifier.weight, 0.0, 0.01)
    nn.init.zeros_(classifier.bias)
    return block(
        [
            ("conv", _conv(width, HEAD_CHANNELS, 1)),
            ("pool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("dropout", nn.Dropout(dropout)),
            ("classifier", classifier),
        ]
    )


def _conv(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, groups: int = 1, act: bool = True
) -> nn.Sequential:
    """Convolution, BatchNorm and, unless told otherwise, SiLU."""
    conv = Convolution(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    parts: list[tuple[str, nn.Module]] = [("conv", conv), ("norm", nn.BatchNorm2d(outputs, eps=EPS))]
    return block([*parts, ("act", nn.SiLU())] if act else parts)


class SqueezeExcitation(nn.Module):
    """Weighs each channel by what the whole image holds (Hu et al. 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = Convolution(channels, squeezed, 1)
        self.excite = Convolution(squeezed, channels, 1)
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """The channels, weighed."""
        pooled = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.excite(self.act(self.squeeze(pooled))))
