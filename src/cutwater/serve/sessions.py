"""What whoever hands out sessions needs of the two that host them, in this process or in another.

A session has a place in the stream and a half of the model: it is opened and closed at both.
"""

from collections.abc import Sequence
from typing import Protocol

from cutwater.serve.hosting import Trained
from cutwater.stream.expectation import Expectation
from cutwater.stream.step_trainer import SessionRecord
from cutwater.stream.ticket import Ticket
from cutwater.train.session import State, Task


class Tickets(Protocol):
    """A stream's server, or somebody who speaks for it; see :class:`cutwater.stream.server.StreamServer`."""

    def issue(
        self,
        *,
        run: str,
        round: int,
        client: str,
        cut: int,
        expect: Expectation,
        open_seconds: float,
        session_seconds: float,
        second_cut: int,
        rate_up: float,
        rate_down: float,
    ) -> Ticket:
        """A ticket for one session of one client."""

    def wait(self, ticket: Ticket, timeout: float | None = None) -> SessionRecord:
        """The record of a session that has ended; TimeoutError if it has not by then."""

    def records(self) -> Sequence[SessionRecord]:
        """All sessions whose tickets were not revoked, as they stand."""

    def is_over(self, ticket: Ticket) -> bool:
        """Whether a session has ended."""

    def revoke(self, ticket: Ticket, reason: str = "the round is over") -> SessionRecord | None:
        """End the session if it has not ended, and forget it."""


class Halves(Protocol):
    """The server's halves; see :class:`cutwater.serve.hosting.Hosting`."""

    def expect(self, session: str, task: Task, share: float, state: State) -> None:
        """Make room for a session before its ticket is handed out."""

    def reshare(self, session: str, share: float) -> None:
        """Give a session another share from now on; one that is over in the meantime needs none."""

    def collect(self, session: str) -> Trained:
        """What a session that is over has left."""

    def forget(self, session: str) -> None:
        """Give up a session, if it is still there, and what it left."""


def open_session(
    stream: Tickets,
    hosting: Halves,
    task: Task,
    expect: Expectation,
    *,
    run: str,
    share: float,
    state: State,
    seconds: float,
    paced: bool = False,
) -> Ticket:
    """Make room for the session of a task, which starts from these global weights and may take so long.

    With ``paced``, both ends keep to the rates of the task.
    """
    ticket = stream.issue(
        run=run,
        round=task.round,
        client=task.client,
        cut=task.cut,
        second_cut=task.second_cut,
        expect=expect,
        open_seconds=seconds,
        session_seconds=seconds,
        rate_up=task.rate_up if paced else 0.0,
        rate_down=task.rate_down if paced else 0.0,
    )
    try:
        hosting.expect(ticket.claims.id, task, share, state)
    except BaseException:
        stream.revoke(ticket)
        raise
    return ticket


def close_session(stream: Tickets, hosting: Halves, ticket: Ticket) -> None:
    """End a session, if it has not ended, and forget what it left; nobody can go on with it."""
    try:
        stream.revoke(ticket)
    finally:
        hosting.forget(ticket.claims.id)
