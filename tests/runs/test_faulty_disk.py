"""A disk that is full or fails, at every single call of a save: the old round stays, and resuming goes on."""

import errno
import shutil
from itertools import count

import pytest
from collecting import run
from lost_writes import Disk
from test_power_loss import ROUNDS, story, study, trained

from cutwater.base.errors import CutwaterError
from cutwater.execute.local import LocalTrainer
from cutwater.federate.clock import VirtualClock
from cutwater.federate.loop import rounds
from cutwater.runs.checkpoint import load_newest
from cutwater.runs.folder import begin

FAILS = 3
"""The round whose save fails: its plan, story, line, best model and checkpoint, and what is cleaned up."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with the rounds before, the round that comes next, and what the whole run comes to."""
    root, mine = tmp_path_factory.mktemp("disk"), study()
    folder, progress = begin(mine, root / "run", engine="test")
    executor = VirtualClock(mine, LocalTrainer(mine.job(), mine.test()))
    seen = []
    for round_ in rounds(mine, executor, progress, FAILS):
        seen.append(round_)
        if len(seen) < FAILS:
            folder.save(round_)
    executor.close()
    folder.close()
    return root / "run", seen[-1], [each.record.weights_sha256 for each in run(study())]


def failed_save(prepared, place, number, error):
    """Save a round onto a disk of which one call fails: the sentence; None if there was no such call."""
    shutil.copytree(prepared[0], place / "run")
    folder, _ = begin(study(), place / "run", engine="test", resume=True)
    disk = Disk(place, fail_at=number, error=error)
    try:
        with disk.watched():
            folder.save(prepared[1])
    except CutwaterError as failure:
        return str(failure)
    finally:
        folder.close()
    return None if disk.fail_at is not None else ""


@pytest.mark.chaos
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
def test_whatever_call_of_a_save_fails_the_run_stops_in_a_sentence_and_goes_on_with_the_same_bits(
    prepared, tmp_path, error, record_property
):
    sentences = 0
    for number in count():
        place = tmp_path / str(number)
        said = failed_save(prepared, place, number, error)
        if said is None:
            break
        words = {errno.ENOSPC: "No space left on device", errno.EIO: "Input/output error"}[error]
        assert not said or words in said, said
        sentences += bool(said)
        found = load_newest(place / "run" / "checkpoints")
        assert found.checkpoint.round in (FAILS - 1, FAILS)
        assert found.notes == (), "no checkpoint is damaged"
        trained(place / "run", resume=True)
        assert story(place / "run")[0] == prepared[2]
        shutil.rmtree(place)
    record_property("failing calls", number)
    assert number > 20
    assert sentences >= number - 3, "only tidying up may fail without a word"


def test_a_round_whose_old_files_can_not_be_removed_is_kept_all_the_same(prepared, tmp_path):
    """Tidying up comes after the round is safe: it is tried again with the next one."""
    number = next(
        number
        for number in count()
        if failed_save(prepared, tmp_path / str(number), number, errno.EIO) in ("", None)
    )
    found = load_newest(tmp_path / str(number) / "run" / "checkpoints")
    assert found.checkpoint.round == FAILS
    assert ROUNDS > FAILS
