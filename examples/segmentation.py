"""Where is the disc? A segmentation of one's own, from data to report; see segmentation.toml."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIZE = 16


def discs(count: int = 240, seed: int = 0) -> tuple[list[dict], list[dict]]:
    """(train, test): noisy images with a bright disc, and masks of where it is."""
    random = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    made = []
    for _ in range(count):
        y, x = 4 + 8 * torch.rand(2, generator=random)
        radius = 2 + 3 * torch.rand(1, generator=random)
        mask = ((rows - y) ** 2 + (columns - x) ** 2 <= radius**2).float()[None]
        image = mask + 0.5 * torch.randn(1, SIZE, SIZE, generator=random)
        made.append({"image": image, "mask": mask})
    return made[count // 5 :], made[: count // 5]


class Net(nn.Module):
    """A small U-Net."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.into = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.deep = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        shallow = F.relu(self.into(image))
        deep = F.relu(self.deep(F.relu(self.down(shallow))))
        return self.out(torch.cat([shallow, F.relu(self.up(deep))], dim=1))


def overlap(outputs: Tensor, masks: Tensor) -> Tensor:
    """Intersection over union."""
    said, real = outputs > 0, masks > 0.5
    return ((said & real).sum((1, 2, 3)) / (said | real).sum((1, 2, 3)).clamp(min=1)).mean()
