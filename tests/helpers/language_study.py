"""A study whose labels stay on the devices: a tied language model in small, or any other model of words."""

import torch
from small_study import small_clients
from tied_models import LENGTH, WORDS, Embedded, language_loss

from cutwater.data.custom import from_datasets
from cutwater.federate.study import Study
from cutwater.plan.problem import Server
from cutwater.plan.session import Session
from cutwater.scenario.settings import DataSettings, TrainSettings


def sentences(count=60, seed=3):
    """Words, and labels that do not follow from them, so that bytes of the one are not those of the other."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(WORDS, (2, count, LENGTH), generator=generator)
    return [(words, labels) for words, labels in zip(*drawn, strict=True)]


def ragged(count=40, seed=3, longest=8):
    """Dicts of three words to eight, a label for each."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, longest + 1, (count,), generator=generator).tolist()
    drawn = [torch.randint(WORDS, (2, length), generator=generator).tolist() for length in lengths]
    return [{"tokens": words, "labels": labels} for words, labels in drawn]


def ragged_datasets():
    """The same for a scenario: (train, test)."""
    return ragged(), ragged(8, seed=5)


def ragged_loader(client):
    """Longer ones, of a node's own."""
    return ragged(20, seed=len(client), longest=11)


def datasets():
    """The same for a scenario: (train, test)."""
    return sentences(), sentences(12, seed=8)


def language_study(
    model=None, *, clients=3, micro_batches=1, labels="stay", planner="exact", train=None, **more
):
    torch.manual_seed(4)
    return Study.of(
        model or Embedded(),
        more.pop("data", None) or from_datasets(sentences(), sentences(12, seed=8), name="sentences"),
        small_clients(clients, samples=12),
        Server(2e6),
        Session(steps=2, batch_size=4, micro_batches=micro_batches, labels=labels),
        train=TrainSettings(**{"rounds": 1, "lr": 0.05, "optimizer": "adam", "seed": 5, **(train or {})}),
        share_out=DataSettings(partition="iid", local_test=0.0),
        loss=more.pop("loss", language_loss),
        planner=planner,
        **more,
    )
