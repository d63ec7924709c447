"""Imports point one way: each package uses only what stands above it in ORDER."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "cutwater"
ORDER = (
    "base",
    "codec",
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
    "coverage",
    "web",
    "cli",
    "__main__",
)
PURE = (
    "base/",
    "codec/",
    "profile/values.py",
    "profile/fit.py",
    "profile/optimizers.py",
    "profile/cache.py",
    "plan/",
    "scenario/",
    "federate/measured.py",
    "federate/record.py",
    *(f"runs/{name}.py" for name in ("audit", "confined", "layout", "metrics", "reader", "summary")),
)
"""What must work without torch: planning from a saved profile, and looking at runs."""
FILES = sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Absolute names of every module that a file imports, inside functions too."""
    return _imported(ast.parse(path.read_text()))


def _imported(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"a relative import of {node.module}"
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


def test_no_module_imports_itself_in_a_circle() -> None:
    """Nor lazily, inside a function; what only type checkers follow does not count."""
    names = {_module(path): path for path in FILES}
    graph = {name: {_known(found, names) for found in _really(path)} for name, path in names.items()}
    order = TopologicalSorter({name: found - {name, ""} for name, found in graph.items()})
    tuple(order.static_order())  # raises a CycleError that names the circle


def _module(path: Path) -> str:
    return ".".join(("cutwater", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def _known(name: str, names: dict[str, Path]) -> str:
    """The module that a name is, or is in; none where it is not ours."""
    return name if name in names else name.rpartition(".")[0] if name.rpartition(".")[0] in names else ""


def _really(path: Path) -> set[str]:
    """What a file imports when it runs."""
    if path.name in ("extend.py", "__init__.py") and path.parent == ROOT:
        return set()
    tree = ast.parse(path.read_text())
    typed = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    for node in typed:
        node.body = [ast.Pass()]
    return _imported(tree)


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
