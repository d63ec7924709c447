"""What all tests share: one torch thread each, so that runs side by side stay deterministic and fair."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests in parallel are told of 80 columns; what the commands print into a pipe has no such limit.
os.environ.pop("COLUMNS", None)
# A job in the background ignores interrupts, and its children inherit that; some tests interrupt theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Neither what a user's cache holds nor what is left there is a test's business. Tests in parallel share one
# that their parent has made: a profile that one of them has counted is not counted by the others.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _CACHE = tempfile.TemporaryDirectory(prefix="cutwater-cache-")
    os.environ["XDG_CACHE_HOME"] = _CACHE.name

HERE = Path(__file__).resolve()


def _find_mnist() -> Path | None:
    """The folder with the four MNIST files: named by CUTWATER_DATA, or beside a checkout."""
    named = os.environ.get("CUTWATER_DATA")
    places = [Path(named), Path(named) / "mnist"] if named else []
    places += [parent / "shared" / "data" / "mnist" for parent in HERE.parents]
    return next((place for place in places if (place / "train-images-idx3-ubyte.gz").exists()), None)


@pytest.fixture(scope="session")
def mnist_folder() -> Path:
    """Real MNIST files; tests that need them are skipped, loudly, where there are none."""
    folder = _find_mnist()
    if folder is None:
        pytest.skip("no MNIST files: set CUTWATER_DATA to a folder that holds the four idx .gz files")
    return folder


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


@pytest.fixture(scope="session")
def browser():
    """A browser, one for all tests of a process: a second driver would meet the first one's event loop."""
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM: THE BROWSER TESTS DID NOT RUN (Debian: apt-get install chromium)")
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="PLAYWRIGHT IS MISSING: NO BROWSER TEST RAN"
    )
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()
