"""Small models that train in minutes on one core: a convolutional network and a multi-layer perceptron."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from cutwater.base.errors import ModelError
from cutwater.model.zoo.inputs import InputSpec, image_shape
from cutwater.model.zoo.parts import block, conv_norm, halved, init_convolutions, model_of


def cnn(input: InputSpec, classes: int, *, width: int = 16, dropout: float = 0.25) -> nn.Sequential:
    """Six layers: four 3×3 convolutions that halve the image twice, a hidden layer, the classifier."""
    channels, height, breadth = image_shape("cnn", input)
    features = 4 * width * halved(height, 2) * halved(breadth, 2)
    model = model_of(
        [
            ("conv_1", _conv(channels, width, pool=True)),
            ("conv_2", _conv(width, 2 * width)),
            ("conv_3", _conv(2 * width, 2 * width, pool=True)),
            ("conv_4", _conv(2 * width, 4 * width)),
            ("hidden", _hidden(features, 8 * width, dropout)),
            ("head", nn.Linear(8 * width, classes)),
        ]
    )
    init_convolutions(model)
    return model


def mlp(
    input: InputSpec, classes: int, *, widths: Sequence[int] = (256, 128), dropout: float = 0.0
) -> nn.Sequential:
    """Fully connected layers of the given widths, then the classifier; takes any input as numbers."""
    if input.kind == "tokens":
        raise ModelError(f"mlp takes numbers, but the input is '{input}': leave out 'tokens:'")
    sizes = [prod(input.shape), *widths]
    hidden = [
        (f"hidden_{index}", _hidden(inputs, outputs, dropout))
        for index, (inputs, outputs) in enumerate(pairwise(sizes), start=1)
    ]
    # Without a hidden layer the classifier itself must see each sample as one row.
    head = nn.Linear(sizes[-1], classes)
    last: nn.Module = head if hidden else block([("flatten", nn.Flatten()), ("linear", head)])
    return model_of([*hidden, ("head", last)])


def _conv(inputs: int, outputs: int, *, pool: bool = False) -> nn.Sequential:
    parts = [*conv_norm(inputs, outputs, 3), ("act", nn.ReLU())]
    # Rounding up keeps images of odd and tiny sizes alive.
    return block([*parts, ("pool", nn.MaxPool2d(2, ceil_mode=True))] if pool else parts)


def _hidden(inputs: int, outputs: int, dropout: float) -> nn.Sequential:
    return block(
        [
            ("flatten", nn.Flatten()),
            ("linear", nn.Linear(inputs, outputs)),
            ("act", nn.ReLU()),
            ("dropout", nn.Dropout(dropout)),
        ]
    )
