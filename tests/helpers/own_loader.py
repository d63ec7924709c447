"""A device's own data, as a node config names it."""

import torch
from torch.utils.data import Dataset, TensorDataset


def load(client: str) -> TensorDataset:
    generator = torch.Generator().manual_seed(len(client))
    count = 90 if client == "watch" else 7
    images = torch.randn(count, 1, 8, 8, generator=generator)
    return TensorDataset(images, torch.randint(0, 10, (count,), generator=generator))


def failing(client: str) -> TensorDataset:
    raise OSError("no disk")


class Noisy(Dataset):
    """Samples that are augmented whenever they are read."""

    def __init__(self, client: str) -> None:
        self.plain = load(client)

    def __len__(self) -> int:
        return len(self.plain)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image, label = self.plain[index]
        return image + torch.randn_like(image), label
