"""ResNet (He et al. 2016): 18, 34 and 50; a layer is the stem, one block, or the head.

As in common use, the stride of a bottleneck is in its 3×3 convolution ("v1.5"). The last γ of a block stays
1, as in the original: unlike EfficientNetV2, these have no grouped convolutions and few blocks, and plain SGD
learns them from there.
"""

from collections.abc import Callable, Iterator, Sequence

from torch import nn

from cutwater.model.zoo.inputs import InputSpec, image_shape
from cutwater.model.zoo.parts import Residual, block, conv_norm, init_convolutions, model_of

WIDTHS = (64, 128, 256, 512)
Branch = Callable[[int, int, int], nn.Sequential]


def resnet18(input: InputSpec, classes: int, *, small_stem: bool = False) -> nn.Sequential:
    """10 layers. ``small_stem`` keeps the resolution of small images: a 3×3 stem of stride 1, no pool."""
    return _build("resnet18", input, classes, (2, 2, 2, 2), _basic, 1, small_stem)


def resnet34(input: InputSpec, classes: int, *, small_stem: bool = False) -> nn.Sequential:
    """18 layers."""
    return _build("resnet34", input, classes, (3, 4, 6, 3), _basic, 1, small_stem)


def resnet50(input: InputSpec, classes: int, *, small_stem: bool = False) -> nn.Sequential:
    """18 layers, of bottlenecks."""
    return _build("resnet50", input, classes, (3, 4, 6, 3), _bottleneck, 4, small_stem)


def _build(
    name: str,
    input: InputSpec,
    classes: int,
    blocks: Sequence[int],
    branch: Branch,
    expansion: int,
    small_stem: bool,
) -> nn.Sequential:
    channels, _, _ = image_shape(name, input)
    head = block(
        [
            ("pool", nn.AdaptiveAvgPool2d(1)),
            ("flatten", nn.Flatten()),
            ("classifier", nn.Linear(WIDTHS[-1] * expansion, classes)),
        ]
    )
    layers = _blocks(blocks, branch, expansion)
    model = model_of([("stem", _stem(channels, small_stem)), *layers, ("head", head)])
    init_convolutions(model)
    return model


def _stem(channels: int, small: bool) -> nn.Sequential:
    kernel, stride = (3, 1) if small else (7, 2)
    parts = [*conv_norm(channels, WIDTHS[0], kernel, stride), ("act", nn.ReLU())]
    return block(parts if small else [*parts, ("pool", nn.MaxPool2d(3, stride=2, padding=1))])


def _blocks(blocks: Sequence[int], branch: Branch, expansion: int) -> Iterator[tuple[str, nn.Module]]:
    inputs = WIDTHS[0]
    for number, (width, count) in enumerate(zip(WIDTHS, blocks, strict=True), start=1):
        for index in range(count):
            stride = 2 if index == 0 and number > 1 else 1
            outputs = width * expansion
            shortcut = None
            if stride != 1 or inputs != outputs:
                shortcut = block(conv_norm(inputs, outputs, 1, stride))
            yield (
                f"stage{number}_{index + 1}",
                Residual(branch(inputs, width, stride), shortcut, act=nn.ReLU()),
            )
            inputs = outputs


def _basic(inputs: int, width: int, stride: int) -> nn.Sequential:
    """Two 3×3 convolutions."""
    return block(
        [
            *conv_norm(inputs, width, 3, stride, "1"),
            ("act1", nn.ReLU()),
            *conv_norm(width, width, 3, 1, "2"),
        ]
    )


def _bottleneck(inputs: int, width: int, stride: int) -> nn.Sequential:
    """1×1 that narrows, 3×3, 1×1 that widens."""
    return block(
        [
            *conv_norm(inputs, width, 1, 1, "1"),
            ("act1", nn.ReLU()),
            *conv_norm(width, width, 3, stride, "2"),
            ("act2", nn.ReLU()),
            *conv_norm(width, 4 * width, 1, 1, "3"),
        ]
    )
