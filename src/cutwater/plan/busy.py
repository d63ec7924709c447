"""Who is busy for how long in a session, and what the session waits for."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np

from cutwater.base.arrays import Floats, Ints
from cutwater.plan.latency import Phases

T = TypeVar("T", float, Floats)


@dataclass(frozen=True)
class Busy(Generic[T]):
    """Seconds of a session in which each of its resources works: of one client, or columns of many."""

    client: T
    link_up: T
    server: T
    link_down: T
    round_trip: T
    """Not work, but waiting for the link."""

    @classmethod
    def of(cls, phases: Phases[T]) -> "Busy[T]":
        """Phases by who does the work; where parts overlap, they add up to more than the session takes."""
        return cls(
            client=phases.client,
            link_up=phases.smashed_upload + phases.model_upload,
            server=phases.server,
            link_down=phases.gradient_download + phases.model_download,
            round_trip=phases.round_trips,
        )

    def __iter__(self) -> Iterator[T]:
        return (getattr(self, each.name) for each in fields(self))

    def named(self) -> dict[str, T]:
        """Seconds by the words for people."""
        return dict(zip(RESOURCES, self, strict=True))

    @property
    def places(self) -> Ints:
        """What each client waits for, as places in :data:`RESOURCES`: the busiest."""
        found: Ints = np.argmax(np.array([*self]), axis=0)
        return found

    @property
    def waits_for(self) -> str:
        """What one client's session waits for: the busiest, in a word for people."""
        return RESOURCES[int(self.places)] if any(seconds > 0 for seconds in self) else NOTHING


RESOURCES = tuple(each.name.replace("_", " ") for each in fields(Busy))
"""Client, link up, server, link down and round trip."""
ROUND_TRIP = RESOURCES[-1]
NOTHING = "nothing"
"""What a session waits for that takes no time."""
