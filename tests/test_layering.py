"""Imports point one way: each package uses only what stands above it in ORDER."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "cutwater"
ORDER = (
    "base",
    "model",
    "profile",
    "plan",
    "data",
    "scenario",
    "train",
    "federate",
    "runs",
    "execute",
    "stream",
    "serve",
    "flower",
    "fleet",
    "report",
    "reproduce",
    "web",
    "cli",
    "__main__",
)
PURE = (
    "base/",
    "profile/values.py",
    "profile/fit.py",
    "profile/optimizers.py",
    "profile/cache.py",
    "plan/",
    "scenario/",
    "federate/measured.py",
    "federate/record.py",
    *(f"runs/{name}.py" for name in ("audit", "confined", "info", "layout", "metrics", "reader", "summary")),
)
"""What must work without torch: planning from a saved profile, and looking at runs."""
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Absolute names of every module that a file imports, inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def part(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_up(path: Path) -> None:
    home = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if home in ("__init__", "extend"):
        pytest.skip("a front door, which names everything lazily")
    for name in imports(path):
        if name.startswith("cutwater."):
            assert ORDER.index(part(name)) <= ORDER.index(home), f"{path.name} imports {name}"


def top_level_imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_planning_needs_no_torch(path: Path) -> None:
    if str(path.relative_to(ROOT)).startswith(PURE):
        assert "torch" not in top_level_imports(path)
