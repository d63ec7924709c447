"""`cutwater reproduce`: files, page, claims, JSON, and mistakes."""

import json
import re
import sys
from html import escape

import pytest

from cutwater.cli import main as cli
from cutwater.reproduce.catalogue import NAMES

SMALL = ("table-2", "cut-latency")


def cutwater(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["cutwater", "reproduce", *map(str, arguments)])
    try:
        cli.main()
    except SystemExit as end:
        return end.code or 0
    return 0


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        assert cutwater(patch, *SMALL, "--out", out) == 0
    return out


def test_it_writes_figures_numbers_claims_and_the_page(made):
    for name in SMALL:
        assert (made / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (made / "figures" / f"{name}.svg").read_bytes()
        assert json.loads((made / "values" / f"{name}.json").read_text())["format"] == "cutwater.reproduction"
    assert (made / "index.html").exists()


def test_claims_have_what_a_program_needs(made):
    claims = json.loads((made / "claims.json").read_text())
    assert len(claims) >= 8
    for claim in claims:
        assert {"claim", "paper", "ours", "holds", "why"} <= set(claim)
        assert isinstance(claim["holds"], bool)


def test_reasons_are_promised_only_where_a_claim_does_not_hold(tmp_path, monkeypatch, capsys):
    assert cutwater(monkeypatch, "table-2", "--out", tmp_path) == 0
    assert "4 of 4 claims hold\n" in capsys.readouterr().out
    assert cutwater(monkeypatch, "cut-latency", "--out", tmp_path) == 0
    assert "claims hold; the page says why the others don't\n" in capsys.readouterr().out


def test_the_page_needs_nothing_but_itself(made):
    page = (made / "index.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "<script" not in page
    assert "http" not in re.sub(r'http-equiv|base64,[^"]*', "", page)


def test_the_page_is_made_for_phones_too_and_shows_every_claim(made):
    page = (made / "index.html").read_text()
    assert 'name="viewport"' in page
    assert "@media(max-width" in page
    for claim in json.loads((made / "claims.json").read_text()):
        assert page.count("data-label") >= 3
        assert escape(claim["paper"]) in page


def test_the_page_says_what_is_given_and_what_is_calibrated(made):
    page = (made / "index.html").read_text()
    for words in ("Given by the paper", "Recovered from its numbers", "Calibrated by us"):
        assert words in page


def test_items_made_later_join_those_that_are_there(made, monkeypatch, capsys):
    assert cutwater(monkeypatch, "convergence", "--out", made, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [item["item"] for item in printed["items"]] == ["convergence"]
    assert {claim["item"] for claim in printed["claims"]} == {"convergence"}
    kept = {claim["item"] for claim in json.loads((made / "claims.json").read_text())}
    assert kept == {"table-2", "cut-latency", "convergence"}
    assert 'id="convergence"' in (made / "index.html").read_text()


def test_a_misspelt_item_is_one_sentence_and_exit_code_2(monkeypatch, capsys, tmp_path):
    assert cutwater(monkeypatch, "converge", "--out", tmp_path / "none") == 2
    complaint = capsys.readouterr().err
    assert "did you mean 'convergence'?" in complaint.replace("\n", " ")
    assert all(name in complaint for name in NAMES)
    assert not (tmp_path / "none").exists()


def test_a_folder_that_can_t_be_written_is_one_sentence_and_exit_code_2(monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert cutwater(monkeypatch, "table-2", "--out", tmp_path / "file") == 2
    assert "can't be written" in capsys.readouterr().err


def test_what_another_release_left_behind_is_passed_over(made, monkeypatch):
    (made / "values" / "server.json").write_text('{"format": "cutwater.reproduction", "version": 99}')
    (made / "figures" / "server.svg").write_text("<svg/>")
    assert cutwater(monkeypatch, "table-2", "--out", made) == 0
    assert 'id="server"' not in (made / "index.html").read_text()
