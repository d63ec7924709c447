"""The server's end of one session: its place in the stream, and its half of the model."""

from cutwater.serve.sessions import Halves, Tickets
from cutwater.stream.expectation import Expectation
from cutwater.stream.ticket import Ticket
from cutwater.train.session import State, Task


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
