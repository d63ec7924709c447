"""How sessions are carried out is behind this one interface; engines live in ``cutwater.engine``."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from cutwater.train.session import Result, Score, State, Task


class Engine(Protocol):
    """Carries out the sessions of a round. Results may come in any order and do not depend on it.

    The bits of a session depend on the number of torch's threads: with one (``torch.set_num_threads(1)``, as
    all engines here do it) they are those of :class:`cutwater.execute.local.LocalEngine`.
    :func:`cutwater.train.session.run_session` is a whole session in this process; rounds are trained by
    :func:`cutwater.federate.loop.rounds`.
    """

    def sessions(self, tasks: Sequence[Task], state: State) -> Iterator[Result]:
        """Train every task from the global state; a result is valid until the next is asked for."""

    def evaluate(self, state: State) -> list[Score]:
        """Scores of the global model on the mini-batches of the test data, in their order."""

    def close(self) -> None:
        """End whatever was started."""
