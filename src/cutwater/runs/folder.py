"""A run on disk (docs/run-folder.md): what was asked, what was planned, how it went, where it stands."""

import math
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cutwater.base.errors import RunError
from cutwater.base.jsonfile import check_document, make_folder, read_json, write_atomically, write_json
from cutwater.base.schema import read, table
from cutwater.base.speech import Say, by_command, quiet
from cutwater.federate.estimates import Estimates
from cutwater.federate.loop import Progress, Round, start
from cutwater.federate.record import Best
from cutwater.federate.study import Study
from cutwater.plan.fleet import Held
from cutwater.runs import checkpoint, layout, metrics
from cutwater.runs.layout import Info

_OWN = (
    *(layout.RUN, layout.SCENARIO, layout.PROFILE, layout.METRICS, layout.PLANS, layout.ROUNDS),
    *(layout.MEASURED, layout.CHECKPOINTS, layout.TENSORBOARD, layout.LOCK, ".run", ".scenario", ".profile"),
)
"""What a run writes, before its first round is done and in the middle of writing."""
_HALF_WRITTEN = re.compile(r"\..+\.(json|jsonl|toml|safetensors)\.[0-9a-f]{16}")
"""A file on its way to its place, as ``write_atomically`` names it."""


class RunFolder:
    """The folder of one run. Open it with :func:`begin`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: int | None = None

    def lock(self) -> None:
        """Keep other processes from training in this folder until :meth:`close`, or until this one ends."""
        try:
            import fcntl
        except ImportError:  # not on this system
            return
        try:
            make_folder(self.path)
            self._lock = os.open(self.path / layout.LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise RunError(f"{self.path} can't be written: {error.strerror or error}") from error
        try:
            # A lock of the process, not of the file: forked workers that outlive a kill do not hold it.
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise RunError(
                f"{self.path} is being trained in by another process: wait until it is done, end it, or name "
                "another folder"
            ) from error

    def tidy(self) -> None:
        """Remove what a kill in the middle of writing left behind; whoever holds the lock may."""
        for place in (".", layout.PLANS, layout.ROUNDS, layout.MEASURED, layout.CHECKPOINTS):
            for path in (self.path / place).glob(".*"):
                if _HALF_WRITTEN.fullmatch(path.name) and path.is_file() and not path.is_symlink():
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let other processes train in this folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def metrics(self) -> Path:
        """metrics.jsonl."""
        return self.path / layout.METRICS

    @property
    def checkpoints(self) -> Path:
        """Where the newest weights are."""
        return self.path / layout.CHECKPOINTS

    def has_rounds(self) -> bool:
        """Whether anything of a round is here, be it that its checkpoint was lost."""
        told = self.metrics.is_file() and self.metrics.stat().st_size > 0
        return told or any(self.checkpoints.glob("round-*")) or any(self._stories())

    def save(self, round_: Round) -> None:
        """Put a round on disk; it counts once its checkpoint, which comes last, is there."""
        number, after, outcome = round_.progress.round, round_.progress, round_.outcome
        if round_.measured is not None:
            measured = layout.MEASURED_FORMAT.document(round_.measured)
            write_json(self.path / layout.of_round(layout.MEASURED, number), measured)
        write_json(self.path / layout.of_round(layout.PLANS, number), outcome.plan.to_json())
        kept = layout.ROUND_FORMAT.document(outcome.kept)
        write_json(self.path / layout.of_round(layout.ROUNDS, number), kept)
        metrics.append(self.metrics, round_.record)
        state = {
            "virtual_seconds": after.virtual_seconds,
            "wall_seconds": after.wall_seconds,
            "estimates": after.estimates.to_json(),
            "holds": dict(after.holds),
            "best": after.best and table(after.best),
            "failed": outcome.failed is not None,
        }
        if after.best is not None and after.best.round == number:
            # Before the checkpoint: killed in between, the round is done again and has the same best.
            best = checkpoint.Checkpoint(number, after.weights, {"best": state["best"]})
            checkpoint.save_best(self.checkpoints, best)
        checkpoint.save(self.checkpoints, checkpoint.Checkpoint(number, after.weights, state, after.memory))

    def progress(self, study: Study) -> tuple[Progress, tuple[str, ...]]:
        """Where the run stands, and a sentence for every damaged checkpoint that was passed over."""
        first = start(study)
        found = checkpoint.load_newest(self.checkpoints)
        if found is None:
            self._check_nothing_lost()
            metrics.cut_back(self.metrics, 0)
            return first, ()
        kept = found.checkpoint
        _check_fits(self.checkpoints, kept, study)
        metrics.cut_back(self.metrics, kept.round)
        standing = _standing(self.checkpoints, kept, first.estimates)
        progress = Progress(
            round=kept.round,
            weights={name: tensor.to(first.weights[name].device) for name, tensor in kept.weights.items()},
            memory=kept.memory,
            **standing,
            best=_best(kept, study),
        )
        return progress, found.notes

    def _stories(self) -> list[Path]:
        return [path for path in (self.path / layout.ROUNDS).glob("*.json") if path.stem.isdigit()]

    def _check_nothing_lost(self) -> None:
        """Where no checkpoint is, at most the first round was on its way to disk when a kill came."""
        rows = [line.round for line in metrics.read(self.metrics)]
        last = max([*rows, *(int(path.stem) for path in self._stories())], default=0)
        if last > 1:
            raise RunError(
                f"{self.path} holds {last} rounds, but no checkpoint in {self.checkpoints} to go on from: "
                "put the newest back, or name another folder"
            )


def begin(
    study: Study,
    path: str | os.PathLike[str] | None,
    *,
    engine: str,
    resume: bool = False,
    must_exist: bool = True,
    scenario: str | None = None,
    say: Say = quiet,
) -> tuple[RunFolder | None, Progress]:
    """The folder of a run, if one is named, and where training stands; the caller closes the folder.

    A run begins in it, or goes on where there is one. ``resume`` without a folder is a mistake in its name,
    unless one need not exist.
    """
    if path is None:
        return None, start(study)
    folder = RunFolder(path)
    # A run that never finished a round (its planner had no plan, say) is begun anew.
    begun = folder.has_rounds()
    if resume and must_exist and not folder.path.exists():
        raise RunError(
            f"{path} does not exist, so that there is no run to go on with: name the folder of one, or leave "
            f"{by_command('--resume', 'resume=True')} out to begin it"
        )
    if begun and not (folder.path / layout.RUN).exists():
        raise RunError(f"{path} holds rounds of a run whose run.json is missing: name another folder")
    if begun and not resume:
        raise RunError(
            f"{path} holds a run already: go on with it by {by_command('--resume', 'resume=True')}, or "
            "name another folder"
        )
    if not begun:
        _refuse_other_files(folder.path)
    folder.lock()
    try:
        if folder.has_rounds() != begun:
            raise RunError(f"{path} was begun by another process at the same time: name another folder")
        if begun:
            folder.tidy()
            _check_same(folder, study)
        else:
            _describe(folder, study, scenario, engine)
        progress, notes = folder.progress(study)
    except BaseException:
        folder.close()
        raise
    for note in notes:
        say(note)
    if resume and must_exist and not progress.round:
        say(f"{path} holds no round yet: the run begins with the first")
    return folder, progress


def _check_same(folder: RunFolder, study: Study) -> None:
    description = folder.path / layout.RUN
    known = check_document(read_json(description), *layout.RUN_FORMAT, str(description))
    if known.get("fingerprint") != study.fingerprint():
        what = difference(known.get("parts"), study)
        raise RunError(
            f"{folder.path} holds a run of another scenario ({what}), which can't be resumed with this one: "
            "name another folder, or use the scenario.toml in it"
        )


def difference(known: object, study: Study) -> str:
    """What a run's description and a study do not agree in."""
    parts = study.fingerprints()
    differ = [name for name in parts if isinstance(known, dict) and known.get(name) != parts[name]]
    if not differ:
        return "or of another release"
    # The first are what a person writes; the rest (weights, say) mostly follows from it.
    text = f"they differ in {', '.join(differ[:3])}{' …' if differ[3:] else ''}"
    if "train.horizon" in differ:
        text += (
            f"; to train longer, set horizon to the rounds over which its {study.train.schedule} runs down"
        )
    return text


def _check_fits(where: Path, kept: checkpoint.Checkpoint, study: Study) -> None:
    kinds = [
        {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
        for state in (kept.weights, study.initial)
    ]
    remedy = "put this run's own there, or name another folder"
    if kinds[0] != kinds[1]:
        raise RunError(f"the checkpoint of round {kept.round} in {where} is of another model: {remedy}")
    for name, tensor in kept.weights.items():
        # Else all clients would be blamed for what they were given.
        if (
            tensor.is_floating_point()
            and study.initial[name].isfinite().all()
            and not tensor.isfinite().all()
        ):
            raise RunError(
                f"the checkpoint of round {kept.round} in {where} has a value in {name!r} that is not "
                f"finite: {remedy}"
            )


def _standing(where: Path, kept: checkpoint.Checkpoint, estimates: Estimates) -> dict[str, Any]:
    """Clocks, estimates and who holds what, as a checkpoint tells them."""
    told = kept.state
    try:
        seconds = {name: float(told[name]) for name in ("virtual_seconds", "wall_seconds")}
        holds = {str(name): _held(layers) for name, layers in told["holds"].items()}
        resumed = estimates.resumed(told["estimates"])
        numbers = [
            *seconds.values(),
            *(layers for held in holds.values() for layers in held),
            *(e.value for all_ in resumed.seen.values() for e in all_),
        ]
        if not all(0 <= number < math.inf for number in numbers):
            raise ValueError("a number in it is negative or not finite")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RunError(
            f"the checkpoint of round {kept.round} in {where} does not tell where training stood "
            f"({error!r}): put this run's own there, or name another folder"
        ) from error
    return {**seconds, "holds": holds, "estimates": resumed}


def _held(told: Any) -> Held:
    """Layers whose fixed weights a client holds; older: a number, of the first ones alone."""
    return Held(*map(int, told)) if isinstance(told, list) else Held(int(told))


def _best(kept: checkpoint.Checkpoint, study: Study) -> Best | None:
    """The best model so far, if this study keeps it by the same metric; else its next is its first."""
    found, goal = kept.state.get("best"), study.train.goal
    if found is None or goal is None:
        return None
    best = read(Best, found)
    return best if (best.metric, best.better) == (goal.metric, goal.better) else None


def versions() -> dict[str, str]:
    """What a run was made with."""
    found = {"python": platform.python_version()}
    for name in ("cutwater", "torch", "numpy", "flwr"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _describe(folder: RunFolder, study: Study, scenario: str | None, engine: str) -> None:
    if scenario is not None:
        write_atomically(folder.path / layout.SCENARIO, scenario.encode())
    write_json(folder.path / layout.PROFILE, study.profile.to_json())
    info = Info(
        fingerprint=study.fingerprint(),
        parts=study.fingerprints(),
        planner=study.planner_name,
        planner_options=dict(study.planner_options),
        model=study.profile.model,
        data=study.data.name,
        clients=len(study.fleet),
        server_compute=study.server.compute,
        seed=study.train.seed,
        versions=versions(),
        engine=engine,
        scenario=None if study.source is None else str(Path(study.source).resolve()),
    )
    # The description comes last: where it stands, the rest of the folder's beginning does too.
    write_json(folder.path / layout.RUN, layout.RUN_FORMAT.document(info))


def _refuse_other_files(path: Path) -> None:
    if path.is_file():
        raise RunError(f"{path} is a file, but a run needs a folder: name another")
    # What a kill in the middle of the beginning leaves behind is no obstacle.
    strange = [item.name for item in path.glob("*") if not item.name.startswith(_OWN)]
    if strange:
        raise RunError(f"{path} holds {min(strange)!r} and no run: name an empty or new folder")
