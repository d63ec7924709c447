"""Build sdist and wheel, install the wheel into an empty environment, and use it there (`make wheel`).

The wheel is built from the sdist, so that what is missing in either shows. With --reuse, nothing is fetched:
both are built with what is installed here, and the new environment sees the dependencies that are installed
here, but not the package itself; profiles are taken from the user's cache where the same source has counted
them. A test does that, with --short.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = (
    "cutwater/data/digits.npz",
    "cutwater/examples/demo.sh",
    "cutwater/examples/notebook.ipynb",
    "cutwater/examples/paper-ten.toml",
    "cutwater/py.typed",
    "cutwater/report/assets/report.html",
    "cutwater/reproduce/page.css",
    "cutwater/reproduce/recorded.json",
    "cutwater/reproduce/thirty_clients.toml",
    "cutwater/web/assets/planner.html",
)
"""What is no Python and must be in the wheel all the same."""
SOURCES = (
    "CITATION.cff",
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "src/cutwater/__init__.py",
    "tests/conftest.py",
)
"""What must be in the sdist."""
EXTRAS = ("matplotlib", "flwr", "grpc", "starlette", "uvicorn")
"""What the extras bring: neither planning nor training needs any of it."""
WITHOUT = """
import sys
for name in {names!r}:
    sys.modules[name] = None  # importing it fails, as where it is not installed
from cutwater.cli.start import main
main()
"""
PLANNED = "A round takes 391 s (exact, optimal)"


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """A command to its end; its output, or what it complained about."""
    # A checkout on the path would hide what is missing in the wheel.
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path, *, reuse: bool) -> Path:
    """The wheel, made of the sdist, both in a folder."""
    here = ("--no-isolation",) if reuse else ()
    seen = {"PYTHONPATH": os.pathsep.join(sys.path)} if reuse else {}
    run(sys.executable, "-m", "build", *here, "--outdir", folder, ROOT, **seen)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    for name in SOURCES:
        assert name in names, f"{name} is not in the sdist"
    print(source.name)
    (found,) = folder.glob("*.whl")
    return found


def install(wheel: Path, place: Path, *, reuse: bool) -> Path:
    """A new environment with the wheel in it; its Python."""
    venv.create(place, with_pip=not reuse, clear=True)
    python = place / "bin" / "python"
    if not reuse:
        run(python, "-m", "pip", "install", "--quiet", f"{wheel}[plot]")
        return python
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    # Folders on the path are seen, but what their own .pth files add is not: no editable install gets in.
    others = [path for path in sys.path if path.endswith("-packages")] or [sysconfig.get_paths()["purelib"]]
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in others))
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, wheel, PYTHONPATH=os.pathsep.join(sys.path))
    return python


def use(python: Path, folder: Path, *, short: bool, reuse: bool) -> None:
    """Plan an example of the package, and run the demo or a round of it; the checkout is not there."""
    cutwater = python.with_name("cutwater")
    cache = {} if reuse else {"XDG_CACHE_HOME": str(folder / "cache")}
    print(run(cutwater, "--version", cwd=folder).strip())
    print(run(cutwater, "examples", cwd=folder).strip())
    home = run(python, "-c", "import cutwater; print(cutwater.__file__)", cwd=folder).strip()
    assert Path(home).is_relative_to(python.parents[1]), f"cutwater is {home}, not that of the wheel"
    for name in DATA:
        assert (Path(home).parents[1] / name).exists(), f"{name} is not in the wheel"
    # What works without the extras works with them.
    bare = (python, "-c", WITHOUT.format(names=EXTRAS))
    plan = run(*bare, "plan", "examples/paper-ten.toml", cwd=folder, **cache)
    assert PLANNED in plan, plan
    print(f"{plan}without {', '.join(EXTRAS)}")
    if short:
        use_a_little(cutwater, bare, folder, cache)
        return
    paths = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    said = run("bash", "examples/demo.sh", cwd=folder, PATH=paths, **cache)
    assert "bit for bit" in said, said
    assert (folder / "out" / "demo" / "report.html").exists()
    print("the demo ran to its end")


def use_a_little(cutwater: Path, bare: tuple[str | Path, ...], folder: Path, cache: dict[str, str]) -> None:
    """A round of what the demo trains, verified without the extras, and reported."""
    run(cutwater, "train", "examples/digits.toml", "--run", "run", "--rounds", "1", cwd=folder, **cache)
    # With an empty cache, so that the wheel itself counts a profile, whatever others have counted before.
    empty = {"XDG_CACHE_HOME": str(folder / "empty")}
    said = run(*bare, "verify", "examples/digits.toml", "--rounds", "1", cwd=folder, **empty)
    assert "bit for bit" in said, said
    run(cutwater, "report", "run", "--out", "report.html", cwd=folder, **cache)
    assert (folder / "report.html").stat().st_size > 10_000
    assert list((folder / "empty" / "cutwater" / "profiles").iterdir()), "no profile was counted"
    print("a round of the demo was trained, verified and reported")


def main() -> None:
    """Build it, install it, use it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--reuse", action="store_true", help="fetch nothing")
    options.add_argument("--short", action="store_true", help="a round of the demo in place of all of it")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="cutwater-wheel-") as spare:
        folder = Path(spare)
        wheel = build(folder / "dist" if chosen.reuse else ROOT / "dist", reuse=chosen.reuse)
        print(wheel.name)
        python = install(wheel, folder / "venv", reuse=chosen.reuse)
        use(python, folder, short=chosen.short, reuse=chosen.reuse)


if __name__ == "__main__":
    main()
