"""What everything stands on: quantities as people write them, and files that are whole or not there."""

import math
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.base.errors import FileFormatError, UnitError, suggest
from cutwater.base.jsonfile import read_json, write_atomically, write_json
from cutwater.base.units import parse_compute, parse_quantity, parse_rate, parse_size, show_seconds


@pytest.mark.parametrize(
    "text", ["1,5 GFLOPS", "1,,500 GFLOPS", "1_5 GFLOPS", "1,50,000 GFLOPS", "1,500_000 GFLOPS"]
)
def test_a_comma_that_may_be_meant_as_a_point_is_refused(text):
    with pytest.raises(UnitError, match="compute is"):
        parse_compute(text)


@given(st.integers(0, 10**12))
def test_thousands_may_be_separated(number):
    if number:
        assert parse_size(f"{number:,} bit") == parse_size(f"{number:_} bit") == number


@pytest.mark.parametrize("text", ["0 B/s", "-1 B/s", "nan B/s", "inf B/s", "1e-307 B/s", "1e300 GB/s"])
def test_a_rate_at_which_nothing_would_arrive_or_everything_at_once_is_refused(text):
    with pytest.raises(UnitError, match=r"must be a finite number from 1e-06 to 1e\+30 bit/s"):
        parse_rate(text)


def test_only_a_server_may_have_no_compute():
    assert (
        parse_quantity("compute", "0e3 GFLOPS", "server", or_zero=True)
        == parse_quantity("compute", "0 FLOP/s", "server", or_zero=True)
        == 0
    )
    with pytest.raises(UnitError):
        parse_compute("0 GFLOPS")


@given(st.floats(1e-9, 1e9))
def test_seconds_are_shown_to_three_digits_and_without_an_exponent(seconds):
    shown = show_seconds(seconds)
    number, unit = shown.split()
    if seconds >= 1e-6:
        assert "e" not in number
    value = float(number.replace(",", "")) * {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
    assert math.isclose(value, seconds, rel_tol=0.0051)


def test_a_link_leads_to_what_was_written(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    link.symlink_to(real)
    write_json(link, {"a": 1})
    assert link.is_symlink()
    assert read_json(real) == {"a": 1}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(FileFormatError, match="can't be written"):
        write_atomically(tmp_path, b"a folder is no file")


def test_a_new_file_has_the_rights_that_the_umask_leaves_and_an_old_one_keeps_its_own(tmp_path):
    path = tmp_path / "plan.json"
    before = os.umask(0o027)
    try:
        write_atomically(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write_atomically(path, b"2")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"2"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "digits"),
        ("{", "not JSON"),
        ("\udcff", "not JSON"),
    ],
)
def test_what_is_no_json_for_us_is_refused_in_a_sentence(tmp_path, content, why):
    path = tmp_path / "odd.json"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(FileFormatError, match=why):
        read_json(path)


def test_a_path_that_cannot_be_one_is_refused():
    with pytest.raises(FileFormatError, match="null"):
        write_atomically("a\0b", b"")


def test_a_name_that_is_close_to_none_gets_the_list_within_its_sentence():
    assert suggest("resnet81", ["resnet18", "cnn"]) == "did you mean 'resnet18'? Known: cnn, resnet18"
    assert suggest("bert", ["resnet18", "cnn"]) == "known are cnn, resnet18"
