"""The models that a run has kept: its newest and, where it keeps one, its best."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from cutwater.base.errors import RunError
from cutwater.base.schema import read
from cutwater.base.speech import by_file
from cutwater.federate.told_scores import Best
from cutwater.runs import checkpoint, layout


@dataclass(frozen=True, eq=False)
class KeptModel:
    """A model of a run."""

    round: int
    """The last round that is in it."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """As ``load_state_dict`` of the model takes them."""
    best: Best | None = None
    """What it is best by, if it was kept for that."""
    notes: tuple[str, ...] = ()
    """A sentence for every newer checkpoint that is damaged and was passed over."""


def load_run(folder: str | os.PathLike[str], *, best: bool = False) -> KeptModel:
    """The newest model that a run kept in its folder, or its best one."""
    checkpoints = Path(folder) / layout.CHECKPOINTS
    if best:
        found = checkpoint.load_best(checkpoints)
        if found is None:
            key = by_file("keep_best in [train]", "keep_best of TrainSettings")
            raise RunError(f"{folder} keeps no best model: {key} would have; use its newest model instead")
        told = found.state.get("best")
        return KeptModel(found.round, found.weights, None if told is None else read(Best, told))
    newest = checkpoint.load_newest(checkpoints)
    if newest is None:
        raise RunError(f"{folder} holds no checkpoint: name the folder of a run of which a round is done")
    return KeptModel(newest.checkpoint.round, newest.checkpoint.weights, notes=newest.notes)
