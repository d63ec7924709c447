"""Keep the curve of a training of EfficientNetV2-M: ``python -m cutwater.reproduce.record RUN_FOLDER``."""

import sys
from pathlib import Path

from cutwater.base.jsonfile import document, write_json
from cutwater.reproduce.item import plain
from cutwater.reproduce.items.accuracy import ITEM
from cutwater.reproduce.recorded import FORMAT, HOME, VERSION, Recorded
from cutwater.reproduce.training import as_training, load_data, make_study
from cutwater.runs.reader import read_run


def record(folder: Path, path: Path = HOME) -> Recorded:
    """Keep what a run folder holds of a training of EfficientNetV2-M."""
    run = read_run(folder).undamaged()
    data, _ = load_data(ITEM.full.source)
    training = as_training(make_study(ITEM.full, data, int(run.info.facts["seed"])), run.lines)
    found = Recorded(
        seed=training.seed,
        lr=ITEM.full.lr,
        done=len(run.lines),
        rounds=training.rounds,
        accuracy=training.accuracy,
        loss=tuple(line.loss for line in run.lines if line.loss is not None),
        seconds=training.seconds,
        weights_sha256=training.weights_sha256,
        wall_hours=round(run.lines[-1].wall_seconds / 3600, 2),
        versions=run.info.facts["versions"],
    )
    write_json(path, document(FORMAT, VERSION, plain(found)))
    return found


if __name__ == "__main__":
    record(Path(sys.argv[1]))
