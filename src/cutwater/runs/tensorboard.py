"""Rounds as TensorBoard scalars: a callback of a run."""

import os
from typing import Any

from cutwater.base.errors import RunError
from cutwater.federate.loop import Round

_BY_ROUND = (
    "loss",
    "test_loss",
    "accuracy",
    "planned_seconds",
    "actual_seconds",
    "virtual_seconds",
    "wall_seconds",
    "bytes_up",
    "bytes_down",
)


class TensorBoard:
    """Writes every round's numbers where ``tensorboard --logdir FOLDER`` finds them; close it at the end."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise RunError(
                "--tensorboard needs the package tensorboard: pip install 'cutwater[tensorboard]'"
            ) from error
        self._folder = str(folder)
        self._make: Any = SummaryWriter
        self._writer: Any = None

    def __call__(self, round_: Round) -> None:
        """Write the scalars of a round."""
        record = round_.record
        if self._writer is None:
            # What a killed run wrote after its last checkpoint is hidden by the rounds that are done again.
            self._writer = self._make(self._folder, purge_step=record.round)
        values = {name: getattr(record, name) for name in _BY_ROUND} | {"clients": len(record.clients)}
        values |= {f"metrics/{name}": value for name, value in record.metrics.items()}
        values |= {f"local_tests/{name}": spread.mean for name, spread in record.local_tests.items()}
        for name, value in values.items():
            if value is not None:
                # With virtual time as the time of day, TensorBoard's relative axis shows virtual time.
                self._writer.add_scalar(name, value, record.round, walltime=record.virtual_seconds)
        self._writer.flush()

    def close(self) -> None:
        """Put the rest on disk."""
        if self._writer is not None:
            self._writer.close()
