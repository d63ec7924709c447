"""One server for several jobs: one stream and one fair queue, so that shares hold between jobs, too.

The plan of jobs (:mod:`cutwater.plan.jobs`) gives job j a part F_j of the server and its clients shares f_k
of that, so all shares of all jobs add up to at most F^max. They need no second queue: sessions of all jobs
take turns by f_k in one, and what a job gets is what its sessions get.

Sessions find their job by the run that their tickets are for.
"""

from typing import Any

from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.profile.values import Profile
from cutwater.serve.hosting import Hosting, scheduler
from cutwater.serve.shares import Delivery, Given
from cutwater.stream.server import StreamServer
from cutwater.stream.step_trainer import SessionInfo, SessionRecord, StepResult
from cutwater.train.session import Job, State, Task
from cutwater.train.step import Part, Tensors
from cutwater.train.three_parts import Back


class SeveralJobs:
    """Hosts the runs of several jobs, as the ``StepTrainer`` of their one stream.

    ``options`` are those of :class:`~cutwater.stream.server.StreamServer`.
    """

    def __init__(self, device: str = "cpu", **options: Any) -> None:
        self._shares = scheduler(device)
        self._jobs: dict[str, Hosting] = {}
        self.stream = StreamServer(self, **options)

    def __enter__(self) -> "SeveralJobs":
        self.stream.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.close()
        self._shares.close()

    def join(self, run: str, job: Job, profile: Profile, compute: float, *, emulate: bool = False) -> Hosting:
        """The server's halves of a run from now on; ``compute`` is that of the whole server."""
        if run in self._jobs:
            raise EngineError(f"run {run!r} is hosted already: give each job a run of its own")
        self._jobs[run] = Hosting(job, profile, compute, emulate=emulate, shares=self._shares)
        return self._jobs[run]

    def expect(self, run: str, session: str, task: Task, share: float, state: State) -> None:
        """Make room for a session of a run before its ticket is handed out."""
        self._jobs[run].expect(session, task, share, state)

    def given(self) -> dict[str, Given]:
        """Of each run: what it was promised and got, in all sessions that are over."""
        return {run: hosting.given for run, hosting in self._jobs.items()}

    def open(self) -> tuple[Delivery, ...]:
        """The same of every session that is not over."""
        return self._shares.report()

    async def step(self, session: SessionInfo, part: Part, smashed: Tensors, labels: Tensor) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        return await self._of(session).step(session, part, smashed, labels)

    async def forward(self, session: SessionInfo, part: Part, smashed: Tensors) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        return await self._of(session).forward(session, part, smashed)

    async def backward(self, session: SessionInfo, part: Part, back: Back, rows: int) -> StepResult:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        return await self._of(session).backward(session, part, back, rows)

    async def move(
        self, session: SessionInfo, cut: int, layers: Tensor | None, norm: float | None
    ) -> Tensor | None:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        return await self._of(session).move(session, cut, layers, norm)

    async def closed(self, session: SessionInfo, record: SessionRecord) -> None:
        """See :class:`cutwater.stream.step_trainer.StepTrainer`."""
        await self._of(session).closed(session, record)

    def _of(self, session: SessionInfo) -> Hosting:
        hosting = self._jobs.get(session.run)
        if hosting is None:
            raise EngineError(f"run {session.run!r} is not hosted here: have it join first")
        return hosting
