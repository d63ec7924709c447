"""One server for several jobs: one stream and one fair queue, so that shares hold between jobs, too.

The plan of jobs (:mod:`cutwater.plan.jobs`) gives job j a part F_j of the server and its clients shares f_k
of that, so all shares of all jobs add up to at most F^max. They need no second queue: sessions of all jobs
take turns by f_k in one, and what a job gets is what its sessions get.
"""

from typing import Any

from cutwater.base.errors import EngineError
from cutwater.profile.values import Profile
from cutwater.serve.hosting import Hosting, scheduler
from cutwater.serve.sessions import LocalSessions
from cutwater.serve.shares import Delivery, Given
from cutwater.stream.server import StreamServer
from cutwater.train.session import Job


class SeveralJobs:
    """Hosts the runs of several jobs.

    ``options`` are those of :class:`~cutwater.stream.server.StreamServer`.
    """

    def __init__(self, device: str = "cpu", **options: Any) -> None:
        self._shares = scheduler(device)
        self._jobs: dict[str, Hosting] = {}
        self.stream = StreamServer(None, **options)

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

    def sessions(self, run: str, *, paced: bool = False) -> LocalSessions:
        """Where sessions of a run that has joined are opened, each with the run's own halves."""
        if run not in self._jobs:
            raise EngineError(f"run {run!r} is not hosted here: have it join first")
        return LocalSessions(self.stream, self._jobs[run], run, paced=paced)

    def given(self) -> dict[str, Given]:
        """Of each run: what it was promised and got, in all sessions that are over."""
        return {run: hosting.given for run, hosting in self._jobs.items()}

    def open(self) -> tuple[Delivery, ...]:
        """The same of every session that is not over."""
        return self._shares.report()
