"""``metrics.jsonl``: a line a round, whatever was killed."""

import json
import os
import subprocess
import sys
import textwrap

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutwater.base.errors import RunError
from cutwater.base.schema import schema_of
from cutwater.federate.record import Record
from cutwater.runs.metrics import append, cut_back, gaps, parse, read

FIELDS = [each.key for each in schema_of(Record) if each.needed]


def row(round_, **more):
    whole = {"bytes_up": 3, "bytes_down": 4, "weights_sha256": "ab" * 32, "loss": None}
    return {**dict.fromkeys(FIELDS, 0.1), "round": round_, **whole, **more}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def fill(path, rounds):
    for round_ in range(1, rounds + 1):
        append(path, Record(**row(round_, bottleneck=f"c{round_}")))


def test_lines_come_back_as_they_were_and_anybody_can_read_them(path):
    fill(path, 3)
    for line, round_ in zip(read(path), (1, 2, 3), strict=True):
        written = row(round_, bottleneck=f"c{round_}")
        assert {name: getattr(line, name) for name in written} == written
        assert (line.clients, line.lost, line.failed, line.planned_seconds) == ((), {}, None, None)
    assert [json.loads(line)["round"] for line in path.read_text().splitlines()] == [1, 2, 3]


def test_a_file_that_is_not_there_has_no_lines(path):
    assert read(path) == []
    cut_back(path, 3)
    assert not path.exists()


@pytest.mark.parametrize("round_", [0, 1, 3, 5, 9])
def test_cutting_back_forgets_all_rounds_after_the_checkpoint(path, round_):
    fill(path, 5)
    cut_back(path, round_)
    assert [line.round for line in read(path)] == list(range(1, min(round_, 5) + 1))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_cut_at_any_byte_loses_its_last_line_at_most_and_goes_on(path, data):
    path.unlink(missing_ok=True)
    fill(path, 4)
    content = path.read_bytes()
    kept = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:kept])
    whole = content[:kept].count(b"\n")
    assert [line.round for line in read(path)] == list(range(1, whole + 1))
    cut_back(path, whole)
    append(path, Record(**row(whole + 1)))
    assert [line.round for line in read(path)] == list(range(1, whole + 2))


@pytest.mark.parametrize(
    "torn", [b'{"round": 4, "lo', b"\x00\x00\x00\x00", b"\xff\xfe\n", b"[3]\n", b'{"round": "x"}\n']
)
def test_a_torn_last_line_is_passed_over_and_cut_off_on_resuming(path, torn):
    fill(path, 3)
    with path.open("ab") as file:
        file.write(torn)
    assert len(read(path)) == 3
    cut_back(path, 3)
    append(path, Record(**row(4)))
    assert len(read(path)) == 4


def test_a_damaged_line_in_the_middle_is_named(path):
    fill(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[2])
    with pytest.raises(RunError, match="line 2 is damaged"):
        read(path)


@pytest.mark.parametrize(
    "damaged",
    [
        {"round": 2},
        row(True),
        row(2, accuracy="x"),
        row(2, loss=float("nan")),
        row(2, virtual_seconds=None),
        row(2, bytes_up="many"),
        row(2, bytes_down=10**400),
        row(2, weights_sha256=7),
        row(2, lost=3),
        row(2, planned_seconds="soon"),
        row(2, clients="c1"),
        row(2, clients=[1]),
        row(2, failed=True),
        row(-1),
    ],
)
def test_a_whole_line_that_lacks_fields_or_has_others_than_they_should_be_is_named(path, damaged):
    path.write_text("".join(json.dumps(line) + "\n" for line in (row(1), damaged, row(3))))
    with pytest.raises(RunError, match="line 2 is damaged; mend or remove that line"):
        read(path)


def lines(numbers):
    content = "".join(json.dumps(row(number)) + "\n" for number in numbers).encode()
    return [line for line, _ in parse(content)]


@pytest.mark.parametrize("numbers", [[], [1], [1, 2, 3]])
def test_the_lines_of_all_rounds_in_order_have_no_gaps(numbers):
    assert gaps(lines(numbers)) is None


@pytest.mark.parametrize("numbers", [[2], [1, 3], [1, 1, 2], [2, 1], [1, 2, 9]])
def test_lines_that_are_not_those_of_all_rounds_are_told(numbers):
    told = gaps(lines(numbers))
    whole = f"metrics.jsonl has {len(numbers)} lines for the {max(numbers)} rounds so far, not one for each"
    assert told.startswith(whole)


def test_a_line_without_its_fields_or_with_nan_is_not_written(path):
    with pytest.raises(TypeError, match="'loss' and 'accuracy'"):
        append(path, Record(**{name: 1 for name in FIELDS if name not in ("loss", "accuracy")}))
    with pytest.raises(ValueError, match="JSON"):
        append(path, Record(**row(1, loss=float("nan"))))
    assert not path.exists()


def test_a_full_disk_is_a_sentence_and_the_lines_before_stay(path):
    code = """
        import resource, sys
        from cutwater.base.errors import RunError
        from cutwater.federate.record import Record
        from cutwater.runs.metrics import append
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            for round_ in range(1, 100):
                seven = dict.fromkeys(FIELDS, 7)
                append(sys.argv[1], Record(**{**seven, "round": round_, "weights_sha256": ""}))
        except RunError as error:
            print(round_, error)
    """
    command = [sys.executable, "-c", f"FIELDS = {FIELDS}{textwrap.dedent(code)}", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    failed = int(ended.split()[0])
    assert "File too large" in ended
    assert "make room and resume" in ended
    assert [line.round for line in read(path)] == list(range(1, failed))


def test_an_unreadable_file_is_a_sentence(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path, tmp_path / "pipe"):
        for use in (read, lambda path: cut_back(path, 1)):
            with pytest.raises(RunError, match="is no plain file"):
                use(place)
    with pytest.raises(RunError, match="can't be read"):
        read(tmp_path / ("long" * 100))
    with pytest.raises(RunError, match="can't be written"):
        append(tmp_path, Record(**row(1)))
