"""A user's model, as a scenario names it: it keeps a running mean that no state dict holds."""

import torch
from torch import Tensor, nn


class Drift(nn.Module):
    """Subtracts the running mean of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return x - self.mean


def build() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), Drift(), nn.ReLU(), nn.Linear(64, 32), nn.Linear(32, 10)
    )
