"""Test with the lowest and the highest versions of the dependencies that pyproject.toml allows.

    python scripts/versions.py                  both, in environments under .versions/
    python scripts/versions.py --only lowest    one of them
    python scripts/versions.py --torch 2.7.0    with this torch in the lowest, if it can be had

Lowest means that each dependency is at its lower bound; highest is what pip would choose today. torch is the
exception: most of its files come with gigabytes for GPUs, so both environments have the torch of the one that
runs this, unless another is asked for. What was installed and what was run is printed. Uses uv, which Flower
brings along.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = [
    "tests/base",
    "tests/plan",
    "tests/profile",
    "tests/stream",
    "tests/serve",
    "tests/train",
    "tests/model/test_discover.py",
    "tests/model/test_own_functions.py",
    "tests/cli/test_help.py",
    "tests/flower/test_roster.py",
    "tests/flower/test_rounds.py",
]
"""What stands on the dependencies: planning, counting, the stream, backward passes, discovery, Flower."""
TOOLS = ["pytest>=8.3", "pytest-xdist>=3.6", "hypothesis>=6.100", "scikit-learn>=1.5"]
LEFT_OUT = ["tests/plan/test_scip.py"]
"""Needs a solver that is no dependency."""
BOUNDS = re.compile(r"(?P<name>[\w-]+)(?P<extra>\[\w+\])?>=(?P<low>[\d.]+)(?P<rest>.*)")


def requirements() -> list[str]:
    """What the package needs, with Flower."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["flower"]]


def lowest(requirement: str) -> str:
    """The same at its lower bound."""
    found = BOUNDS.fullmatch(requirement)
    assert found is not None, f"{requirement} has no lower bound"
    return f"{found['name']}{found['extra'] or ''}=={found['low']}"


def wanted(which: str, torch: str | None) -> list[str]:
    """The requirements of an environment."""
    others = [each for each in requirements() if not each.startswith("torch")]
    return [*(map(lowest, others) if which == "lowest" else others), f"torch=={torch or version('torch')}"]


def uv(*arguments: str) -> None:
    """Run uv, with the places that pip looks at."""
    tool = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if tool is None:
        sys.exit("uv is missing: install it with  pip install uv")
    places = os.environ.get("PIP_FIND_LINKS", "")
    subprocess.run([tool, *arguments], check=True, env=os.environ | {"UV_FIND_LINKS": places})


def environment(which: str, torch: str | None) -> Path:
    """Make an environment; its Python."""
    place = ROOT / ".versions" / which
    python = place / "bin" / "python"
    uv("venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    uv("pip", "install", "--quiet", "--python", str(python), *wanted(which, torch), *TOOLS)
    uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", "--editable", str(ROOT))
    return python


def report(which: str, python: Path) -> None:
    """Say what is in an environment."""
    names = [re.split(r"[\[><=]", each)[0] for each in requirements()]
    code = "import sys; from importlib.metadata import version\n"
    code += "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    print(f"== {which}: ", end="", flush=True)
    subprocess.run([str(python), "-c", code, *names], check=True)
    bound = next(each for each in requirements() if each.startswith("torch"))
    print(
        f"   torch is the one that this runs with, or of --torch, wherever in {bound!r} that lies", flush=True
    )


def run_tests(python: Path) -> bool:
    """Whether the tests pass."""
    ignored = [f"--ignore={path}" for path in LEFT_OUT]
    command = [str(python), "-m", "pytest", "-q", "-n", "2", *ignored, *TESTS]
    print(f"   {' '.join(command[1:])}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Test in each environment that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["lowest", "highest"], help="one of the two environments")
    parser.add_argument("--torch", help="another torch than that of this environment, such as 2.7.0")
    arguments = parser.parse_args()
    passed = True
    for which in [arguments.only] if arguments.only else ["lowest", "highest"]:
        python = environment(which, arguments.torch)
        report(which, python)
        passed &= run_tests(python)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
