"""The ServerApp: plans, hands out, collects and keeps every round; restarted, it goes on where it stood."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.freed_memory import keep_freed_memory
from cutwater.base.speech import Say, quiet
from cutwater.federate.loop import Keeper, Round, TrainedRun, train
from cutwater.federate.record import Record, score_text
from cutwater.federate.study import Study
from cutwater.flower.executor import FlowerExecutor
from cutwater.flower.patient_grid import PatientGrid
from cutwater.flower.resharing import Propose
from cutwater.flower.run_config import RunConfig
from cutwater.flower.session_process import session_process
from cutwater.flower.shared_study import identity, study_for
from cutwater.runs.folder import begin
from cutwater.serve.hosting import Hosting
from cutwater.serve.sessions import LocalSessions, Sessions
from cutwater.serve.several_jobs import SeveralJobs
from cutwater.serve.shares import Given
from cutwater.serve.turns import Turns
from cutwater.stream.server import StreamServer

log = logging.getLogger("flwr")
"""Flower's own log, which `flwr log` shows."""


def server_app(beside: str | Path) -> ServerApp:
    """The ServerApp of an app whose files are in this folder."""
    app, folder = ServerApp(), Path(beside)

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        keep_freed_memory()
        try:
            serve(grid, str(context.run_id), RunConfig.of(context.run_config, folder), say=log.info)
        except CutwaterError as error:
            # Not by SystemExit: what was logged last would never reach the one who waits for the run.
            raise RuntimeError(f"cutwater: {error}") from None

    return app


def serve(
    grid: Grid,
    run: str,
    settings: RunConfig,
    *,
    study: Study | None = None,
    callbacks: Sequence[Callable[[Round], object]] = (),
    say: Say = quiet,
    clock: Callable[[], float] = time.monotonic,
    shared: SeveralJobs | None = None,
) -> TrainedRun:
    """All rounds of a run that are left, each kept before the next begins.

    ``shared`` is a server that hosts other jobs, too; without one, the run has a server to itself.
    """
    torch.set_num_threads(1)
    if settings.journal and (study is not None or shared is not None):
        raise RunError(
            "journal is true, but the process that it calls for knows only what the scenario says: leave out "
            "the study and the shared server, or set journal = false"
        )
    study = study or study_for(settings)
    with ExitStack() as held:
        text = Path(settings.scenario).read_text(encoding="utf-8") if settings.run_dir else None
        folder, progress = begin(
            study,
            settings.run_dir or None,
            engine="flower",
            resume=True,
            must_exist=False,
            scenario=text,
            say=say,
        )
        if folder is not None:
            held.callback(folder.close)
        for note in study.notes:
            say(note)
        if progress.round:
            say(f"going on after round {progress.round}")
        hosts = _hosts(held, study, run, settings, shared, say)
        executor = FlowerExecutor(
            study,
            PatientGrid(grid),
            hosts.sessions,
            run=run,
            identity=identity(study, settings),
            emulate=settings.emulate,
            leases_at=hosts.leases_at if settings.lease else None,
            enrol_at_once=settings.enrol_at_once,
            # An emulated link is slow where the server does not see it, and would pass for a slow device.
            propose=hosts.propose if settings.move_cuts and not settings.emulate else None,
            say=say,
            clock=clock,
        )
        held.callback(executor.close)
        last = study.train.rounds
        if progress.round < last:
            executor.roster.wait(settings.wait)
        keeper = None if folder is None else _WithPart(folder, hosts.given)
        trained = train(
            study,
            executor,
            progress,
            keeper=keeper,
            callbacks=[lambda round_: _tell(round_, last, say), *callbacks],
            skip_bad_updates=True,
            clock=clock,
        )
        if trained.stopped:
            say(trained.stopped)
        return trained


class _WithPart:
    """Keeps rounds with what the run was promised and got of a server that it shares with other runs."""

    def __init__(self, keeper: Keeper, given: Callable[[], Given | None]) -> None:
        self._keeper, self._given = keeper, given
        self._before = Given()

    def save(self, round_: Round) -> None:
        """Keep a round, with what was given since the last."""
        now = self._given()
        if now is not None and round_.measured is not None:
            promised, delivered = now.promised - self._before.promised, now.delivered - self._before.delivered
            measured = replace(round_.measured, promised_flops=promised, delivered_flops=delivered)
            round_, self._before = replace(round_, measured=measured), now
        self._keeper.save(round_)


class _Hosts(NamedTuple):
    """Where sessions are hosted, and where leases are held."""

    sessions: Sessions
    leases_at: StreamServer | None
    given: Callable[[], Given | None] = lambda: None
    """What the run was promised and got of a server that it shares with others; None if it does not."""
    propose: Propose | None = None
    """Has a session's cut moved; None where sessions have journals, which know of one cut."""


def _hosts(
    held: ExitStack,
    study: Study,
    run: str,
    settings: RunConfig,
    shared: SeveralJobs | None,
    say: Say,
) -> _Hosts:
    if settings.journal:
        remote = held.enter_context(session_process(settings, run, say))
        leases_at = held.enter_context(_stream(settings)) if settings.lease else None
        return _Hosts(remote, leases_at)
    what, paced = (study.job(), study.profile, study.server.compute), not settings.emulate
    if shared is not None:
        hosting = shared.join(run, *what, emulate=settings.emulate)
        held.callback(hosting.close)
        stream, sessions = shared.stream, shared.sessions(run, paced=paced)
        return _Hosts(sessions, stream, lambda: hosting.given, stream.propose)
    turns = Turns(settings.turns, run, study.server.compute) if settings.turns else None
    hosting = Hosting(*what, emulate=settings.emulate, turns=turns)
    held.callback(hosting.close)
    stream = held.enter_context(_stream(settings))

    def given() -> Given | None:
        told = None if turns is None else turns.account()
        return None if told is None else Given(told.promised, told.delivered)

    return _Hosts(LocalSessions(stream, hosting, run, paced=paced), stream, given, stream.propose)


def _stream(settings: RunConfig) -> StreamServer:
    return StreamServer(
        None,
        host=settings.stream_host,
        port=settings.stream_port,
        advertise=settings.stream_address or None,
    )


def _tell(round_: Round, last: int, say: Say) -> None:
    for name, reason in round_.record.lost.items():
        say(f"round {round_.record.round} is without client {name}: {reason}")
    say(_line(round_.record, last))


def _line(record: Record, last: int) -> str:
    if record.failed:
        return f"round {record.round} of {last} failed: {record.failed}; the model is as it was"
    scores = "".join(f", {score_text(name, value)}" for name, value in record.scores.items())
    return (
        f"round {record.round} of {last}: {record.actual_seconds:.2f} s "
        f"(planned {record.planned_seconds:.2f} s){scores}, {len(record.clients)} clients, "
        f"weights {record.weights_sha256[:12]}"
    )
