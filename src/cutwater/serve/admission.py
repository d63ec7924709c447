"""Whether another session fits into the server's memory, counted before its ticket is handed out."""

from cutwater.base.errors import EngineError
from cutwater.base.units import show_size
from cutwater.plan.places import shown_cuts
from cutwater.plan.server_memory import half_bits
from cutwater.profile.values import Profile
from cutwater.stream.expectation import Expectation
from cutwater.train.session import Task


class Admission:
    """What the sessions that are let in hold at the server, at their peak."""

    def __init__(self, memory: float, profile: Profile) -> None:
        self._memory, self._profile = memory, profile
        self._held: dict[str, float] = {}

    def admit(self, task: Task, expect: Expectation) -> None:
        """Let a client's session in, or raise an EngineError that says how much memory is missing.

        A client has one session at a time.
        """
        needs, held = self.needs(task, expect), sum(self._held.values())
        if held + needs > self._memory:
            others = (
                f"{len(self._held)} other{' session holds' if len(self._held) == 1 else ' sessions hold'}"
            )
            raise EngineError(
                f"its session at {shown_cuts(task.cut, task.second_cut)} needs {show_size(needs)} of the "
                f"server's memory, but {others} {show_size(held)} of its "
                f"{show_size(self._memory)}: raise memory in [server], lower batch_size, or let fewer "
                "clients take part in a round"
            )
        self._held[task.client] = needs

    def admit_move(self, task: Task, expect: Expectation, layers: int) -> None:
        """Have room for a session at another cut, and for so many bytes on their way, or raise as above.

        While it moves it has both of its halves; what they need is held to its end.
        """
        before = self._held.pop(task.client, 0.0)
        try:
            self.admit(task, expect)
            if sum(self._held.values()) + before + 8.0 * layers > self._memory:
                raise EngineError("the server's memory does not hold its layers twice while they move")
        except EngineError:
            self._held[task.client] = before
            raise
        self._held[task.client] += before + 8.0 * layers

    def release(self, task: Task) -> None:
        """The session of a client is over."""
        self._held.pop(task.client, None)

    def needs(self, task: Task, expect: Expectation) -> float:
        """Bits that a session holds at its peak."""
        half = half_bits(self._profile, task.cut, task.second_cut, expect.largest_part)
        return float(half) + 8.0 * expect.held_bytes
