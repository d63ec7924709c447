"""The one reader of runs: half-written folders, damaged ones, and hostile ones."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_folders import a_row, write_run

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.jsonfile import read_json
from cutwater.federate.measured import Measured, Replanned, RoundMeasured
from cutwater.plan.latency import PHASES
from cutwater.runs import confined, layout, metrics
from cutwater.runs.audit import audit
from cutwater.runs.confined import Folder
from cutwater.runs.reader import MOST_NOTES, read_lines, read_run


def rows(*made) -> str:
    return "".join(json.dumps(row) + "\n" for row in made)


def test_what_was_written_is_read_value_by_value(tmp_path):
    run = read_run(write_run(tmp_path / "run", rounds=3, measured=True))
    assert run.notes == ()
    assert (run.info.planner, run.info.engine, run.info.facts["seed"]) == ("exact", "local", 1)
    assert run.lines == tuple(metrics.read(tmp_path / "run" / "metrics.jsonl"))
    rounds, notes = run.rounds()
    assert notes == ()
    for each, number in zip(rounds, (1, 2, 3), strict=True):
        file = read_json(tmp_path / "run" / layout.of_round(layout.ROUNDS, number))
        assert (each.round, each.planned_seconds, each.failed) == (
            number,
            file["planned_seconds"],
            file["failed"],
        )
        for client, row in zip(each.clients, file["clients"], strict=True):
            assert asdict(client.planned) == row["planned"]
            assert asdict(client.actual) == row["actual"]
            assert (client.planned_seconds, client.actual_seconds) == (
                row["planned_seconds"],
                row["actual_seconds"],
            )
            assert (client.name, client.cut, client.outcome) == (row["name"], row["cut"], row["outcome"])


def test_a_line_that_is_still_being_written_is_neither_used_nor_complained_about(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(rows(a_row(1), a_row(2)) + '{"round": 3, "lo')
    lines, notes = read_lines(Folder(tmp_path))
    assert [line.round for line in lines] == [1, 2]
    assert notes == ()


def test_a_damaged_line_is_left_out_and_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(rows(a_row(1)) + "nonsense\n[1]\n" + rows(a_row(4)))
    lines, notes = read_lines(Folder(tmp_path))
    assert [line.round for line in lines] == [1, 4]
    assert [note.split(" is left out")[0] for note in notes[:2]] == [
        "line 2 of metrics.jsonl",
        "line 3 of metrics.jsonl",
    ]
    assert notes[2].startswith("metrics.jsonl has 2 lines for the 4 rounds so far")


def test_where_a_round_was_written_twice_the_later_line_holds(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(rows(a_row(2, loss=9), a_row(1), a_row(2, loss=5)))
    lines, _ = read_lines(Folder(tmp_path))
    assert [(line.round, line.loss) for line in lines] == [(1, 1.0), (2, 5)]


@settings(deadline=None, max_examples=60)
@given(
    st.binary(max_size=300)
    | st.sampled_from([b'{"round": Infinity}\n', b'{"round": true}\n', b"[" * 100_000 + b"\n"])
)
def test_whatever_metrics_hold_reading_them_ends_well(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("run")
    (folder / "metrics.jsonl").write_bytes(content)
    lines, notes = read_lines(Folder(folder))
    assert all(type(line.round) is int for line in lines)
    assert len(lines) + len(notes) >= content.count(b"\n") or len(notes) > 0


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*a_row(1), "lost", "clients", "failed"]), st.none() | st.text() | st.floats()
    )
)
def test_a_line_is_refused_by_the_strict_exactly_where_the_tolerant_leave_it_out(tmp_path, change):
    file = tmp_path / "metrics.jsonl"
    file.write_text(rows(a_row(1), {**a_row(2), **change}, a_row(3)))
    lines, _ = read_lines(Folder(tmp_path))
    if [line.round for line in lines] == [1, 2, 3]:
        assert tuple(metrics.read(file)) == lines
    else:
        with pytest.raises(RunError, match="line 2 is damaged"):
            metrics.read(file)


def test_a_folder_in_the_place_of_a_file_is_refused_and_left_closed(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(RunError, match=r"metrics\.jsonl in .* is no plain file"):
        read_run(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_rounds_are_those_with_a_file_and_no_temporary_or_foreign_one(tmp_path):
    (tmp_path / "rounds").mkdir()
    for name in ("00002.json", "00010.json", ".00011.json.x1", "readme.txt", "abc.json", "000012.json"):
        (tmp_path / "rounds" / name).write_text("{}")
    assert read_run(tmp_path).numbers == (2, 10)


def put(kind: str, place) -> None:
    """Something hostile in a file's place."""
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "link":
        place.symlink_to("/etc/hostname")
    elif kind == "giant":
        with place.open("wb") as file:
            file.truncate(confined.LARGEST + 1)
    else:
        place.write_bytes(
            {"torn": b'{"format": "cutwa', "nested": b"[" * 200_000, "bytes": b"\xff\xfe\x00"}[kind]
        )


KINDS = ("pipe", "folder", "link", "giant", "torn", "nested", "bytes")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["run.json", "rounds/00002.json", "measured/00002.json"])
def test_a_hostile_file_is_left_out_with_a_note_and_the_rest_is_read(tmp_path, kind, name):
    folder = write_run(tmp_path / "run", rounds=2)
    put(kind, folder / name)
    run = read_run(folder)
    rounds, notes = run.rounds()
    told = [*run.notes, *notes]
    assert len(told) == 1
    assert name in told[0]
    assert [line.round for line in run.lines] == [1, 2]
    assert [each.round for each in rounds] == ([1] if name.startswith("rounds") else [1, 2])


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "giant"])
def test_metrics_that_can_not_be_read_at_all_are_a_sentence(tmp_path, kind):
    folder = write_run(tmp_path / "run", rounds=1)
    put(kind, folder / "metrics.jsonl")
    with pytest.raises(CutwaterError, match=r"metrics\.jsonl in run"):
        read_run(folder)


@pytest.mark.parametrize("name", ["profile.json", "scenario.toml"])
def test_a_profile_or_scenario_that_is_no_file_is_noted(tmp_path, name):
    folder = write_run(tmp_path / "run", rounds=1)
    put("pipe", folder / name)
    found, notes = read_run(folder).profile() if name == "profile.json" else read_run(folder).scenario()
    assert found is None
    assert name in notes[0]


def change_client(folder, number: int, place: int, **more) -> None:
    file = folder / layout.of_round(layout.ROUNDS, number)
    body = json.loads(file.read_text())
    body["clients"][place] = {**body["clients"][place], **more}
    file.write_text(json.dumps(body))


PHASE_SECONDS = dict.fromkeys(PHASES, 1.0)


@pytest.mark.parametrize(
    "more",
    [
        {"actual": {**PHASE_SECONDS, "smashed_upload": "soon"}},
        {"actual": {**PHASE_SECONDS, "smashed_upload": float("nan")}},
        {"planned": dict.fromkeys(PHASES[1:], 1.0)},
        {"planned": [1.0] * 8},
        {"planned": None},
        {"cut": "2"},
        {"cut": 10**9},
        {"cut": True},
        {"share": None},
        {"name": 7},
        {"outcome": None},
        {"delivered_share": "much"},
    ],
    ids=str,
)
def test_a_client_with_a_mistyped_field_is_left_out_by_name_of_the_field(tmp_path, more):
    folder = write_run(tmp_path / "run", rounds=1)
    change_client(folder, 1, 2, **more)
    (each,), notes = read_run(folder).rounds()
    assert len(each.clients) == 5
    assert len(notes) == 1
    assert next(iter(more)) in notes[0]
    assert "client 3 of rounds/00001.json" in notes[0]


def test_what_a_later_release_may_add_is_passed_over(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    before = read_run(folder)
    change_client(folder, 1, 0, later=3, planned={**PHASE_SECONDS, "waiting": 1.0})
    (folder / "metrics.jsonl").write_text(rows({**a_row(1), "later": [3]}))
    run = read_run(folder)
    (each,), notes = run.rounds()
    assert (run.notes, notes, len(run.lines)) == ((), (), 1)
    assert [client.name for client in each.clients] == [client.name for client in before.round(1).clients]


def test_a_damaged_measurement_is_left_out_and_its_client_stays(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    good = Measured("c1", 9.0, 8.0, 1.0, 0.5, 3, 4, 1e9, 2e9, emulated=True)
    document = layout.MEASURED_FORMAT.document(RoundMeasured(1, 9.5, (good, replace(good, name="c2"))))
    document["clients"][1]["bytes_up"] = "many"
    (folder / "measured").mkdir()
    (folder / "measured" / "00001.json").write_text(json.dumps(document))
    (each,), (note,) = read_run(folder).rounds()
    assert note.startswith("client 2 of measured/00001.json bytes_up is 'many', but must be a whole number")
    assert [client.measured for client in each.clients] == [good, *[None] * 5]
    assert (each.wall_seconds, each.emulated) == (9.5, True)


def test_a_damaged_change_of_shares_is_left_out_and_the_rest_of_the_measurement_stays(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    good = Replanned(3.0, "client c2 is lost", 9.0, 8.0, {"c1": 2e9})
    document = layout.MEASURED_FORMAT.document(RoundMeasured(1, 9.5, (), 0.5, (good, good)))
    document["replanned"][1]["shares"] = {"c1": "all"}
    (folder / "measured").mkdir()
    place = folder / "measured" / "00001.json"
    place.write_text(json.dumps(document))
    (each,), (note,) = read_run(folder).rounds()
    assert note.startswith("change 2 of measured/00001.json")
    assert (each.replanned, each.wall_seconds) == ((good,), 9.5)
    place.write_text(json.dumps({**document, "replanned": {"c1": 3}}))
    (each,), (note,) = read_run(folder).rounds()
    assert "replanned that is no list" in note
    assert (each.replanned, each.wall_seconds) == ((), None)


def test_runs_are_read_without_torch():
    code = "import sys, cutwater.runs.summary, cutwater.runs.audit; print('torch' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_all_text_can_be_shown_in_a_terminal(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    evil = "\x1b]0;owned\x07\x1b[2J\u202e"
    change_client(folder, 1, 0, name=evil, outcome=evil, mode=evil)
    lines = [a_row(1, bottleneck=evil, lost={evil: evil}, failed=evil, clients=[evil], weights_sha256=evil)]
    (folder / "metrics.jsonl").write_text(rows(*lines))
    (folder / "run.json").write_text(
        json.dumps({"format": "cutwater.run", "version": 1, "planner": evil, evil: [evil]})
    )
    run = read_run(folder)
    (each,), _ = run.rounds()
    assert not {"\x1b", "\x07", "\u202e"} & set(
        repr((run.lines, run.info, each, run.notes)).encode().decode("unicode_escape")
    )
    assert each.clients[0].name == "\ufffd]0;owned\ufffd\ufffd[2J\ufffd"


def test_a_document_of_another_version_is_not_guessed_at(tmp_path):
    folder = write_run(tmp_path / "run", rounds=1)
    file = folder / "rounds" / "00001.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    rounds, notes = read_run(folder).rounds()
    assert rounds == ()
    assert "has version 2" in notes[0]


def test_notes_are_few_however_much_is_damaged(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(rows(a_row(1)) + "nonsense\n" * 5000)
    notes = read_run(tmp_path).notes
    assert len(notes) == MOST_NOTES + 1
    assert notes[-1] == "… and 4,981 more of this kind"


def test_numbers_that_must_not_have_gaps_are_refused_where_something_is_missing(tmp_path):
    folder = write_run(tmp_path / "run", rounds=3)
    assert read_run(folder).undamaged().lines
    (folder / "metrics.jsonl").write_text(rows(a_row(1), a_row(3)))
    with pytest.raises(RunError, match=r"is damaged: metrics\.jsonl has 2 lines for the 3 rounds"):
        read_run(folder).undamaged()


def test_a_folder_without_a_run_says_what_is_missing(tmp_path):
    with pytest.raises(RunError, match=r"holds no run \(run.json is missing\): name a folder"):
        read_run(tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "no finished round yet"), ("[]", "no round that can be read")]
)
def test_an_audit_of_a_run_without_a_readable_round_is_one_sentence(tmp_path, content, sentence):
    folder = write_run(tmp_path / "run", rounds=1)
    (folder / "rounds" / "00001.json").unlink()
    if content is not None:
        (folder / "rounds" / "00001.json").write_text(content)
    with pytest.raises(RunError, match=sentence):
        audit(folder)
