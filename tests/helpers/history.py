"""What happened in a run, as it took effect, and a checker that knows what may have happened.

:func:`recorded` hooks into where the server lets connections in and where a part of a mini-batch takes
effect; rounds are told as they end. :func:`check` then holds the history against the two promises of a round:
each part took effect once and in order, over however many connections; and its weights are those of training
exactly its survivors in one process.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple
from unittest import mock

from cutwater.serve.hosting import Hosting
from cutwater.stream.exactly_once import HostedSession
from cutwater.train.expected import raw_bytes
from cutwater.train.session import State


class Session(NamedTuple):
    """Of one client in one round."""

    round: int
    client: str


class Effect(NamedTuple):
    """A part that took effect, over the connection of so many attempts."""

    session: Session
    part: int
    attempt: int
    effect: str
    """A digest of what was answered."""


class Ended(NamedTuple):
    """A round that is over."""

    round: int
    survivors: tuple[str, ...]
    hash: str


@dataclass
class History:
    """All events, in their order."""

    attempts: list[tuple[Session, int]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    rounds: list[Ended] = field(default_factory=list)

    def ended(self, round_) -> None:
        """A callback of the loop."""
        self.rounds.append(
            Ended(round_.record.round, round_.outcome.done, round_.record.weights_sha256 or "")
        )

    def of(self, session: Session) -> list[Effect]:
        return [each for each in self.effects if each.session == session]


@contextmanager
def recorded() -> Iterator[History]:
    """Within, what takes effect at any server of this process is written down."""
    history, latest = History(), defaultdict(int)
    admit, step = HostedSession.admit, Hosting.step

    def admitted(self, opening):
        found = admit(self, opening)
        session = Session(self.claims.round, self.claims.client)
        history.attempts.append((session, opening.attempt))
        latest[session] = opening.attempt
        return found

    async def stepped(self, info, part, smashed, labels):
        result = await step(self, info, part, smashed, labels)
        session = Session(info.round, info.client)
        digest = sha256(b"".join(raw_bytes(each).numpy().tobytes() for each in result.gradients))
        history.effects.append(Effect(session, part.number, latest[session], digest.hexdigest()))
        return result

    with mock.patch.object(HostedSession, "admit", admitted), mock.patch.object(Hosting, "step", stepped):
        yield history


Reference = Callable[[Sequence[str], State | None, int], State]
"""The weights after a round of these clients, from a state or from the start, in one process."""


def check(
    history: History,
    parts: Callable[[str], int],
    reference: Reference,
    digest: Callable[[State], str],
    whole: Callable[[Session], bool],
) -> None:
    """Raise an AssertionError that names what must not have happened.

    ``parts`` of a client's session; ``whole`` where a client trained the whole model, without a session.
    """
    for session in {each.session for each in history.effects}:
        numbers = [each.part for each in history.of(session)]
        assert numbers == list(range(len(numbers))), f"{session}: parts took effect as {numbers}"
        attempts = [attempt for each, attempt in history.attempts if each == session]
        assert attempts == sorted(set(attempts)), f"{session}: openings came as {attempts}"
        over = [each.attempt for each in history.of(session)]
        assert over == sorted(over), f"{session}: a connection that was replaced had an effect: {over}"
    state = None
    rounds = [each.round for each in history.rounds]
    assert rounds == list(range(1, len(rounds) + 1)), f"rounds ended as {rounds}"
    for ended in history.rounds:
        for client in ended.survivors:
            session = Session(ended.round, client)
            if not whole(session):
                done = len(history.of(session))
                assert done == parts(client), f"{session} counts after {done} of {parts(client)} parts"
        state = reference(ended.survivors, state, ended.round) if ended.survivors else state
        assert state is None or digest(state) == ended.hash, f"round {ended.round} is not its survivors'"
