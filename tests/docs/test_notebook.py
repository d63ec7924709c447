"""The notebook runs, and says what it says in the repository."""

from pathlib import Path

import pytest
from pages import Runner

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install 'cutwater[dev]'")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
BOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


def text_of(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def kinds_of(cell):
    return [sorted(output.data) for output in cell.outputs if output.output_type == "display_data"]


def test_the_notebook_runs_and_has_the_outputs_that_it_is_kept_with(tmp_path):
    kept = nbformat.read(BOOK, as_version=4)
    book = nbformat.read(BOOK, as_version=4)
    for cell in book.cells:
        cell.get("outputs", []).clear()
    nbclient.NotebookClient(
        book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    runner = Runner(BOOK, tmp_path)
    cells = [pair for pair in zip(kept.cells, book.cells, strict=True) if pair[0].cell_type == "code"]
    for before, after in cells:
        runner.compare(text_of(before), text_of(after), BOOK.name)
        assert kinds_of(before) == kinds_of(after)
    kinds = [kind for _, after in cells for kind in kinds_of(after)]
    assert kinds.count(["image/png", "text/plain"]) == 2
    assert kinds.count(["text/html", "text/plain"]) == 2, "a progress bar for each run"
