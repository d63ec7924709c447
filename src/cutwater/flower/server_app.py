"""The ServerApp: plans, hands out, collects and keeps every round; restarted, it goes on where it stood."""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from cutwater.base.errors import CutwaterError
from cutwater.base.jsonfile import write_json
from cutwater.base.memory import keep_freed_memory
from cutwater.federate.loop import Progress, Step, start
from cutwater.federate.study import Study
from cutwater.flower.rounds import Deployment
from cutwater.flower.run_config import Settings
from cutwater.flower.shared_study import identity, study_for
from cutwater.runs.folder import RunFolder, open_run
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
            serve(grid, str(context.run_id), Settings.of(context.run_config, folder), say=log.info)
        except CutwaterError as error:
            # Not by SystemExit: what was logged last would never reach the one who waits for the run.
            raise RuntimeError(f"cutwater: {error}") from None

    return app


def serve(
    grid: Grid,
    run: str,
    settings: Settings,
    *,
    study: Study | None = None,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Step]:
    """All rounds of a run that are left, each kept before the next begins."""
    torch.set_num_threads(1)
    study = study or study_for(settings)
    with ExitStack() as held:
        folder = _folder(study, settings)
        if folder is not None:
            held.callback(folder.close)
        progress, notes = folder.progress(study) if folder else (start(study), ())
        for note in notes:
            say(note)
        if progress.round:
            say(f"going on after round {progress.round}")
        hosting = Hosting(study.job(), study.profile, study.server.compute, emulate=settings.emulate)
        held.callback(hosting.close)
        server = held.enter_context(_stream(hosting, settings))
        deployment = Deployment(
            study,
            grid,
            server,
            hosting,
            run=run,
            identity=identity(study, settings),
            emulate=settings.emulate,
            say=say,
            clock=clock,
        )
        if progress.round < study.train.rounds:
            deployment.roster.wait(settings.wait)
        return _train(deployment, progress, folder, say)


def _stream(hosting: Hosting, settings: Settings) -> StreamServer:
    return StreamServer(
        hosting,
        host=settings.stream_host,
        port=settings.stream_port,
        advertise=settings.stream_address or None,
    )


def _train(
    deployment: Deployment, progress: Progress, folder: RunFolder | None, say: Callable[[str], None]
) -> list[Step]:
    steps: list[Step] = []
    last = deployment.study.train.rounds
    while progress.round < last:
        step, measured = deployment.round(progress, last)
        if folder is not None:
            write_json(folder.path / "measured" / f"{measured.round:05d}.json", measured.to_json())
            folder.save(step)
        say(_line(step, last))
        progress = step.progress
        steps.append(step)
    return steps


def _folder(study: Study, settings: Settings) -> RunFolder | None:
    if not settings.run_dir:
        return None
    scenario = Path(settings.scenario).read_text(encoding="utf-8")
    return open_run(settings.run_dir, study, resume=True, scenario=scenario, about={"engine": "flower"})


def _line(step: Step, last: int) -> str:
    record = step.record
    if record.failed:
        return f"round {record.round} of {last} failed: {record.failed}; the model is as it was"
    accuracy = "" if record.accuracy is None else f", accuracy {record.accuracy:.1%}"
    return (
        f"round {record.round} of {last}: {record.actual_seconds:.2f} s "
        f"(planned {record.planned_seconds:.2f} s){accuracy}, {len(record.clients)} clients, "
        f"weights {record.weights_sha256[:12]}"
    )
