"""Every tutorial runs as it stands, and says what it shows."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pages import blocks, run_page

DOCS = Path(__file__).parents[2] / "docs"
STARTS = [DOCS / "start" / f"{name}.md" for name in ("ten-minutes", "check-list")]
PAGES = [*STARTS, *sorted((DOCS / "tutorials").glob("*.md"))]
NEEDS = {"huggingface": "transformers", "three-machines": "flwr", "paper": "matplotlib"}


def is_run(page: Path) -> bool:
    return any(
        not block.title and block.language in ("python", "console") for block in blocks(page.read_text())
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to run a page in; whatever a page has left running is ended."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    yield folder
    for file in folder.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)


@pytest.mark.parametrize("page", list(filter(is_run, PAGES)), ids=lambda page: page.stem)
def test_a_page_runs_as_it_stands(page, here):
    if page.stem in NEEDS:
        pytest.importorskip(NEEDS[page.stem])
    exports = {}
    if page.stem == "three-machines":
        from cutwater.fleet.processes import free_ports

        exports = {"PORT": str(free_ports(1)[0])}
    assert run_page(page, here, exports) > 0


def test_every_tutorial_is_run():
    assert {page.stem for page in PAGES if not is_run(page)} <= {"index"}


@pytest.mark.parametrize(
    ("shown", "came", "fits"),
    [
        ("a round takes 391 s", "a round takes 392 s", True),
        ("a round takes 391 s", "a round takes 421 s", False),
        ("1  ed6dde59b0f69060  agree", "1  0000000000000000  agree", True),
        ("1  ed6dde59b0f69060  agree", "1  ed6dde59b0f69060  differ", False),
        ("Planned in … optimal", "Planned in 3 ms optimal", True),
        ("first\n…\nlast", "first\nsecond\nthird\nlast", True),
        ("first\nlast", "first\nsecond\nlast", False),
    ],
)
def test_what_a_page_shows_is_compared(shown, came, fits, here):
    page = here / "page.md"
    page.write_text(f"```python\nprint({came!r})\n```\n\n```text\n{shown}\n```\n")
    if fits:
        assert run_page(page, here) == 1
    else:
        with pytest.raises(AssertionError, match="but this came"):
            run_page(page, here)


ROOT = DOCS.parent


def shown_below(page: Path, command: str) -> str:
    """What a page shows below a command, in a block of any kind."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = next(place for place, line in enumerate(lines) if line.strip() == f"$ {command}")
    margin = lines[at][: lines[at].index("$")]
    found = []
    for line in lines[at + 1 :]:
        if line == "```" or (margin and line and not line.startswith(margin)):
            break
        found.append(line.removeprefix(margin))
    return "\n".join(found).strip("\n")


def alike(text: str) -> list[str]:
    """Lines without how long planning took, which is each machine's own, and without widths of columns."""
    lines = text.strip("\n").splitlines()
    return [re.sub(r"( \d+ of \d+) [\d.,]+ (?:µs|ms|s)\b", r"\1 T", " ".join(line.split())) for line in lines]


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("README.md", "cutwater compare examples/paper-ten.toml"),
        ("docs/planning.md", "cutwater jobs examples/two-jobs.toml"),
    ],
)
def test_what_a_page_shows_is_all_that_the_command_prints(page, command, monkeypatch):
    monkeypatch.chdir(ROOT)
    shown = shown_below(ROOT / page, command)
    # In a process of its own: a tutorial that ran in this one may have made planners by name.
    words = [sys.executable, "-m", *command.split()]
    # The environment is told: readline, which pytest loads, adds COLUMNS to what a process inherits unasked.
    came = subprocess.run(words, capture_output=True, text=True, check=True, env=dict(os.environ)).stdout
    assert alike(shown) == alike(came)
