"""How sessions are carried out is behind this one interface; engines live in ``cutwater.engine``."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from cutwater.train.session import Result, Score, State, Task


class Engine(Protocol):
    """Carries out the sessions of a round. Results may come in any order and do not depend on it."""

    def sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        """Train every task from the global state; a result is valid until the next is asked for."""

    def evaluate(self, state: State) -> list[Score]:
        """Scores of the global model on the mini-batches of the test data, in their order."""

    def close(self) -> None:
        """End whatever was started."""
