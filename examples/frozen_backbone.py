"""Fine-tuning with a frozen backbone: what does not learn travels to a device once, not every round.

``examples/frozen.toml`` names :func:`build`; run it from the repository's folder:

cutwater train examples/frozen.toml --run runs/frozen
"""

from math import prod

from torch import nn


def build(input: tuple[int, ...], classes: int) -> nn.Sequential:
    """A backbone of two wide layers that stay as they are, and a head that learns."""
    pixels = prod(input)
    model = nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(pixels, 1000), nn.ReLU()),
        nn.Sequential(nn.Linear(1000, 1000), nn.ReLU()),
        nn.Sequential(nn.Linear(1000, 128), nn.BatchNorm1d(128), nn.ReLU()),
        nn.Linear(128, classes),
    )
    for layer in model[:2]:
        layer.requires_grad_(False)
    return model
