"""A device's own data, as a node config names it."""

import torch
from torch.utils.data import TensorDataset


def load(client: str) -> TensorDataset:
    generator = torch.Generator().manual_seed(len(client))
    count = 90 if client == "watch" else 7
    images = torch.randn(count, 1, 8, 8, generator=generator)
    return TensorDataset(images, torch.randint(0, 10, (count,), generator=generator))
