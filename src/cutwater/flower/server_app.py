"""The ServerApp: plans, hands out, collects and keeps every round; restarted, it goes on where it stood."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from cutwater.base.errors import CutwaterError
from cutwater.base.freed_memory import keep_freed_memory
from cutwater.federate.loop import Round, TrainedRun, train
from cutwater.federate.record import Record
from cutwater.federate.study import Study
from cutwater.federate.told_scores import score_text
from cutwater.flower.executor import FlowerExecutor
from cutwater.flower.run_config import RunConfig
from cutwater.flower.shared_study import identity, study_for
from cutwater.runs.folder import begin
from cutwater.serve.hosting import Hosting
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
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> TrainedRun:
    """All rounds of a run that are left, each kept before the next begins."""
    torch.set_num_threads(1)
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
        hosting = Hosting(study.job(), study.profile, study.server.compute, emulate=settings.emulate)
        held.callback(hosting.close)
        executor = FlowerExecutor(
            study,
            grid,
            held.enter_context(_stream(hosting, settings)),
            hosting,
            run=run,
            identity=identity(study, settings),
            emulate=settings.emulate,
            say=say,
            clock=clock,
        )
        held.callback(executor.close)
        last = study.train.rounds
        if progress.round < last:
            executor.roster.wait(settings.wait)
        trained = train(
            study,
            executor,
            progress,
            keeper=folder,
            callbacks=[lambda round_: _tell(round_, last, say), *callbacks],
            skip_bad_updates=True,
            clock=clock,
        )
        if trained.stopped:
            say(trained.stopped)
        return trained


def _stream(hosting: Hosting, settings: RunConfig) -> StreamServer:
    return StreamServer(
        hosting,
        host=settings.stream_host,
        port=settings.stream_port,
        advertise=settings.stream_address or None,
    )


def _tell(round_: Round, last: int, say: Callable[[str], None]) -> None:
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
