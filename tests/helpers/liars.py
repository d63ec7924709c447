"""Clients that lie: a trainer that changes what some of them send."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from cutwater.execute.local import LocalTrainer
from cutwater.federate.clock import VirtualClock
from cutwater.federate.loop import Round, rounds, start
from cutwater.federate.study import Study

Lie = Callable[[str, Tensor], Tensor]
"""What becomes of a tensor, by its name."""


class LyingTrainer(LocalTrainer):
    """Trains honestly, then changes what the liars of a round send."""

    def __init__(self, study: Study, lies: Mapping[tuple[int, str], Lie]) -> None:
        super().__init__(study.job(), study.test())
        self.lies = lies

    def sessions(self, tasks, state):
        for result in super().sessions(tasks, state):
            lie = self.lies.get((result.task.round, result.task.client))
            if lie is None:
                yield result
            else:
                yield replace(result, state={name: lie(name, t.clone()) for name, t in result.state.items()})


def with_liars(study: Study, lies: Mapping[tuple[int, str], Lie], keeper=None) -> list[Round]:
    """All rounds of a study in which some clients lie; bad updates are left out, as in a deployment."""
    executor = VirtualClock(study, LyingTrainer(study, lies))
    seen = []
    for round_ in rounds(study, executor, start(study), study.train.rounds, skip_bad_updates=True):
        if keeper is not None:
            keeper.save(round_)
        seen.append(round_)
    return seen


def weights_of(value: float) -> Lie:
    """Every weight that learns, and nothing else, is this number."""
    return lambda name, tensor: torch.full_like(tensor, value) if _is_weight(name, tensor) else tensor


def times(factor: float) -> Lie:
    """Every weight that learns is so many times what was trained."""
    return lambda name, tensor: tensor * factor if _is_weight(name, tensor) else tensor


def changed(which: str, change: Callable[[Tensor], Tensor]) -> Lie:
    """The tensors whose names end like this are changed."""
    return lambda name, tensor: change(tensor) if name.endswith(which) else tensor


def _is_weight(name: str, tensor: Tensor) -> bool:
    return tensor.is_floating_point() and "running" not in name
