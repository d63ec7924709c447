"""Your own model, data and loss in ten lines: any nn.Module, any Dataset, any function of output and labels.

python examples/own_model.py
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import cutwater


class Spirals(Dataset):
    """Three arms of a spiral; an item is (point, arm)."""

    def __init__(self, count: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.arms = torch.arange(count) % 3
        turn = torch.rand(count, generator=random)
        angle = 4.5 * turn + 2.1 * self.arms + 0.15 * torch.randn(count, generator=random)
        self.points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1)

    def __len__(self) -> int:
        return len(self.arms)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.points[index], int(self.arms[index])


class Net(nn.Module):
    """Not a Sequential: a skip connection and a gate. Where it can be cut is found by tracing it."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Linear(2, width)
        self.body = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(0.1)
        self.last = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.first(x))
        x = x + F.gelu(self.body(x)) * torch.sigmoid(self.gate(x))
        return self.last(self.dropout(self.norm(x)))


def loss(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output, labels, label_smoothing=0.05)


def main() -> None:
    torch.manual_seed(0)
    data = cutwater.from_datasets(Spirals(1200, seed=0), Spirals(300, seed=1), name="spirals")
    clients = [
        cutwater.Client(name=f"phone-{k}", compute=1e6 * 2**k, rate=2e6, samples=200) for k in range(1, 7)
    ]
    study = cutwater.Study.of(
        Net(),
        data,
        clients,
        cutwater.Server(200e6),
        cutwater.Session(epochs=3, batch_size=20),
        train=cutwater.TrainSettings(rounds=8, clients_per_round=4, optimizer="adam", lr=0.01, seed=1),
        share_out=cutwater.DataSettings(partition="dirichlet", alpha=1.0),
        loss=loss,
    )
    print(f"{len(study.model)} layers: {', '.join(layer.name for layer in study.model.layers)}")

    def show(round_: cutwater.Round) -> None:
        cuts = ", ".join(f"{part.name} {part.cut}" for part in round_.outcome.parts)
        record = round_.record
        print(
            f"round {record.round}: {record.accuracy:.0%} after {record.virtual_seconds:.1f} s, cuts {cuts}"
        )

    cutwater.run(study, callbacks=[show])


if __name__ == "__main__":
    main()
