"""How a round's tasks are carried out: one small interface, which also knows what time it is.

The loop (:mod:`cutwater.federate.loop`) selects, plans, judges, aggregates and records; an executor takes the
orders of a round and yields arrivals. :class:`cutwater.federate.clock.VirtualClock` is one (in this process
or in worker processes), ``cutwater.flower`` another; ``examples/own_executor.py`` is one of a user's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from cutwater.federate.conditions import Condition
from cutwater.federate.measured import Measured, Replanned
from cutwater.plan.latency import NOTHING, Phases
from cutwater.plan.value import Plan
from cutwater.train.scores import Score
from cutwater.train.session import Result, State, Task


@dataclass(frozen=True, eq=False)
class Orders:
    """What the clients of a round are asked to do."""

    round: int
    plan: Plan
    tasks: tuple[Task, ...]
    """One for each client of the plan, in its order."""
    weights: State = field(repr=False)
    """w: the global weights that every session starts from."""
    wanted: int
    """Updates that the round is over with."""
    deadline: float | None
    """Seconds after which the round waits for nobody any more; None for as long as the executor likes."""


@dataclass(frozen=True, eq=False)
class Update:
    """A session that was carried out."""

    task: Task
    weights: State = field(repr=False)
    """w_k, client and server side joined. Valid until the next arrival is asked for."""
    loss: float
    """Mean over the session's samples."""
    bytes_up: int
    bytes_down: int
    took: Phases[float]
    """Seconds by phase, by the executor's clock."""
    condition: Condition
    """What the session says of the client's compute and rates; NaN where it says nothing."""
    measured: Measured | None = None
    """What stopwatches say beyond the phases, where there are any."""
    kept: bool = True
    """Whether the device holds the weights that do not learn from now on."""

    def without_weights(self) -> "Update":
        """All but the weights, which are many and are not needed once they are aggregated."""
        return replace(self, weights={})


@dataclass(frozen=True)
class Lost:
    """A client whose update will not come."""

    client: str
    reason: str
    took: Phases[float] = NOTHING
    """Seconds by phase, as far as they are known."""
    forgot: bool = False
    """Whether the device lacks weights that it was believed to hold."""


Arrival = Update | Lost | Replanned
"""What comes of a task, or shares that changed meanwhile."""


class Executor(Protocol):
    """Carries out the tasks of rounds. Updates may come in any order: no result depends on it.

    The bits of a session depend on the number of torch's threads: with one (``torch.set_num_threads(1)``, as
    all executors here do it) they are the same everywhere.
    """

    def absent(self, clients: Sequence[str]) -> Mapping[str, str]:
        """Who of these can't take part in the round that is about to be planned, each with the reason."""

    def carry_out(self, orders: Orders) -> Iterator[Arrival]:
        """Have the tasks done, and yield what comes of them until the round is over by the clock.

        Whoever was not heard of when the loop stops asking is late. Closing the iterator ends what runs.
        """

    def elapsed(self) -> float:
        """Seconds since the last orders were handed out, by the executor's clock."""

    def evaluate(self, weights: State) -> list[Score]:
        """Scores of the global model on the mini-batches of ``study.test()``, in their order."""

    def close(self) -> None:
        """End whatever was started."""


class Trainer(Protocol):
    """Trains sessions on this machine, as fast as it can: what a clock that is not the wall's builds on."""

    def sessions(self, tasks: Sequence[Task], weights: State) -> Iterator[Result]:
        """Train every task from the global weights; a result is valid until the next is asked for."""

    def evaluate(self, weights: State) -> list[Score]:
        """Scores of the global model on the mini-batches of ``study.test()``, in their order."""

    def close(self) -> None:
        """End whatever was started."""
