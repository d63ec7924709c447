"""Keep trainings of EfficientNetV2-M: ``python -m cutwater.reproduce.record RUN_FOLDER [RUN_FOLDER …]``.

One folder for each seed. A run that is not whole is kept as far as it went; what it says of itself is not
believed: only a run of the item's own study, by its fingerprint, is kept.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.jsonfile import document, write_json
from cutwater.data.samples import Data
from cutwater.reproduce.item import plain
from cutwater.reproduce.items.accuracy import FULL
from cutwater.reproduce.recorded import FORMAT, HOME, VERSION, Recorded, RecordedTraining
from cutwater.reproduce.training import Training, TrainingSettings, as_training, load_data, make_study
from cutwater.runs.folder import difference
from cutwater.runs.reader import read_run


def record(*folders: Path, path: Path = HOME, settings: TrainingSettings = FULL) -> Recorded:
    """Keep what run folders hold of trainings with these settings, one folder for each seed."""
    if not folders:
        raise RunError("no run folder is named: name one for each seed")
    data, note = load_data(settings.source)
    if note:
        raise RunError(f"the trainings can't be checked: {note}")
    found = sorted((_training(folder, data, settings) for folder in folders), key=lambda one: one.seed)
    _check_alike(found)
    kept = Recorded(lr=settings.lr, trainings=tuple(found))
    write_json(path, document(FORMAT, VERSION, plain(kept)))
    return kept


def _training(folder: Path, data: Data, settings: TrainingSettings) -> RecordedTraining:
    run = read_run(folder).undamaged()
    if run.info.seed is None:
        raise RunError(f"{folder} does not say its seed: name a folder that cutwater reproduce wrote")
    study = make_study(settings, data, run.info.seed)
    if run.info.fingerprint != study.fingerprint():
        what = difference(run.info.parts, study)
        raise RunError(
            f"{folder} holds a run of other settings ({what}): name a folder that "
            "cutwater reproduce accuracy --full wrote"
        )
    lines = run.lines[: settings.rounds]
    if not any(line.accuracy is not None for line in lines):
        raise RunError(f"{folder} has no tested round yet: record it later")
    trained = as_training(study, lines)
    return RecordedTraining(
        **{field.name: getattr(trained, field.name) for field in fields(Training)},
        wall_hours=round(lines[-1].wall_seconds / 3600, 2),
        versions=dict(run.info.versions),
    )


def _check_alike(found: Sequence[RecordedTraining]) -> None:
    seeds = [one.seed for one in found]
    twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
    if twice is not None:
        raise RunError(f"seed {twice} is there twice: name one folder for each seed")
    if not set.intersection(*(set(one.rounds) for one in found)):
        raise RunError("the runs have no tested round in common: record them when they went further")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: says in a sentence what was kept, or why nothing was."""
    parser = argparse.ArgumentParser(prog="python -m cutwater.reproduce.record", description=__doc__)
    parser.add_argument("folder", nargs="+", type=Path, help="a run folder of reproduce accuracy --full")
    parser.add_argument("--to", type=Path, default=HOME, help="where to write (the package's own file)")
    chosen = parser.parse_args(arguments)
    try:
        kept = record(*chosen.folder, path=chosen.to)
    except CutwaterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(kept.sentence(FULL.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
