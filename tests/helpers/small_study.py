"""A study that trains in a blink: four layers with dropout and batch normalisation, six unequal clients."""

import torch
from torch import nn

from cutwater.data.custom import from_datasets
from cutwater.data.samples import Data
from cutwater.federate.study import Study
from cutwater.plan.fleet import Client
from cutwater.plan.problem import Server
from cutwater.plan.session import Session
from cutwater.scenario.settings import ConditionSettings, DataSettings, TrainSettings

CLIENTS = 6


def small_model(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 12),
        nn.Sequential(nn.BatchNorm1d(12), nn.ReLU()),
        nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.2), nn.Tanh()),
        nn.Linear(12, 3),
    )


def small_data(classes: int = 3, spread: float = 0.5) -> Data:
    random = torch.Generator().manual_seed(2)
    centres = torch.randn(classes, 6, generator=random)
    labels = torch.arange(200) % classes
    inputs = centres[labels] + spread * torch.randn(200, 6, generator=random)
    samples = [(one, int(label)) for one, label in zip(inputs, labels, strict=True)]
    return from_datasets(samples[:140], samples[140:], classes=classes, name="clusters")


def small_clients(count: int = CLIENTS, samples: int = 20) -> list[Client]:
    return [
        Client(name=f"c{k}", compute=2e4 * 2**k, rate=4e4 * (1 + k % 3), samples=samples + k)
        for k in range(count)
    ]


def small_study(
    *,
    train: dict | None = None,
    conditions: dict | None = None,
    planner: str = "exact",
    **more,
) -> Study:
    return Study.of(
        more.pop("model", None) or small_model(),
        more.pop("data", None) or small_data(),
        more.pop("clients", None) or small_clients(),
        more.pop("server", Server(2e6)),
        more.pop("session", Session(steps=2, batch_size=5)),
        train=TrainSettings(**{"rounds": 4, "lr": 0.05, "momentum": 0.9, "seed": 5, **(train or {})}),
        conditions=ConditionSettings(**(conditions or {})),
        share_out=more.pop("share_out", DataSettings(partition="iid")),
        planner=planner,
        **more,
    )
