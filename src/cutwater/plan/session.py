"""How much a client trains in one round: mini-batches, and the parts that each of them is trained in."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from cutwater.base.arrays import Ints
from cutwater.base.errors import PlanError
from cutwater.base.kinds import Whole
from cutwater.base.schema import Told, check, described
from cutwater.plan.fleet import MOST, Client


@described("the session", PlanError, either=((("epochs",), ("steps",)),))
@dataclass(frozen=True, kw_only=True)
class Session:
    """How much a client trains in one round: ``epochs`` over its data, or ``steps`` mini-batches."""

    epochs: Annotated[
        int | None,
        Whole(1, MOST, quoted=True),
        "I: a session is so many passes over the client's samples",
        Told("needed, or `steps`"),
    ] = None
    steps: Annotated[
        int | None,
        Whole(1, MOST, quoted=True),
        "a session is so many mini-batches",
        Told("needed, or `epochs`"),
    ] = None
    batch_size: Annotated[int, Whole(1, MOST, quoted=True), "|B|: samples in a mini-batch"] = 32
    micro_batches: Annotated[
        int,
        Whole(1, MOST, quoted=True),
        "m: every mini-batch is trained in so many parts whose gradients are added up, on every client, cut "
        "or not; a cut client may then compute, send and receive different parts at the same time; batch "
        "normalisation sees the parts",
    ] = 1

    def __post_init__(self) -> None:
        check(self)
        check_micro_batches(self.micro_batches, self.batch_size, "the session's")

    def of(self, client: Client) -> "Session":
        """How much one client trains: by its own numbers where it has any, else by these."""
        own = client.epochs is not None or client.steps is not None
        source = client if own else self
        size = client.batch_size or self.batch_size
        check_micro_batches(self.micro_batches, size, f"client {client.name!r}'s")
        return Session(
            epochs=source.epochs, steps=source.steps, batch_size=size, micro_batches=self.micro_batches
        )


def check_micro_batches(micro_batches: int, batch_size: int, whose: str) -> None:
    """Refuse more parts than a mini-batch has samples."""
    if micro_batches > batch_size:
        raise PlanError(
            f"micro_batches is {micro_batches}, but {whose} mini-batches have {batch_size} samples: use at "
            f"most {batch_size}, or a larger batch_size"
        )


def part_sizes(samples: int, micro_batches: int) -> list[int]:
    """How many samples each part of a mini-batch has: as equal as can be, the larger ones first.

    A mini-batch of fewer samples than parts (the last of a pass) has a part for each of them.

    >>> part_sizes(32, 1), part_sizes(10, 4), part_sizes(2, 4)
    ([32], [3, 3, 2, 2], [1, 1])
    """
    count = min(micro_batches, samples)
    least, more = divmod(samples, count)
    return [least + (place < more) for place in range(count)]


def last_of_pass(samples: Ints, batch_size: Ints) -> tuple[Ints, Ints]:
    """Of a pass over so many samples: how many mini-batches are full, and how large the other one is, if any.

    A sample that would be left alone joins the mini-batch before it: batch normalisation can't work on one.

    >>> import numpy as np
    >>> last_of_pass(np.array([96, 100, 65]), np.array([32, 32, 32]))
    (array([3, 3, 1]), array([ 0,  4, 33]))
    """
    full, left = np.divmod(samples, batch_size)
    lone = (left == 1) & (batch_size > 1) & (full > 0)
    return full - lone, np.where(lone, batch_size + 1, left)
