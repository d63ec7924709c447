"""How strong is concrete? A regression on data of one's own: a mean squared error, and no classes anywhere.

cutwater train examples/regression.toml --run runs/concrete
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset


def concrete(count: int = 900, seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """Mixtures of concrete and their strength after a while, by a rule of thumb with noise: (train, test)."""
    random = torch.Generator().manual_seed(seed)
    cement, water, age, sand = torch.rand(4, count, generator=random)
    water = 0.3 + 0.5 * water
    strength = 1.2 * cement / water**1.3 * torch.log1p(6 * age) - 0.4 * (sand - 0.5) ** 2
    strength = strength + 0.05 * torch.randn(count, generator=random)
    mixtures = torch.stack([cement, water, age, sand], dim=1)
    held = count // 5
    return (
        TensorDataset(mixtures[held:], strength[held:, None]),
        TensorDataset(mixtures[:held], strength[:held, None]),
    )


def net(width: int = 32) -> nn.Module:
    """A small network of one output."""
    return nn.Sequential(
        nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
    )


def within_a_tenth(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The part of the answers that are off by a tenth at most."""
    return ((outputs - labels).abs() <= 0.1).float().mean()
