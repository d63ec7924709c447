"""Make docs/api.md anew: every public name with what it is, from its own docstring (`make reference`)."""

import ast
import inspect
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import cutwater
import cutwater.extend

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """\
# The names of the package

Made from docstrings by `make reference`; a test pins the names. What is not listed is private. Names are
imported on first use, so that `import cutwater` and planning need no torch.
"""
SECTIONS = (
    (cutwater, "`cutwater`: what a user types", ""),
    (
        cutwater.extend,
        "`cutwater.extend`: what one's own is written with",
        "\n[extending.md](extending.md) shows how.\n",
    ),
)


def meaning(home: str, name: str) -> str:
    """The first paragraph of a name's docstring, or of the one below its assignment."""
    found = getattr(import_module(home), name)
    if inspect.isclass(found) or inspect.isfunction(found):
        text = inspect.getdoc(found) or ""
    else:
        text = below(home, name)
    assert text, f"{home}.{name} has no docstring"
    plain = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text.split("\n\n")[0]).replace("``", "`")
    return " ".join(plain.split()).replace("|", "\\|")


def below(home: str, name: str) -> str:
    """The docstring below an assignment."""
    source = Path(import_module(home).__file__ or "").read_text(encoding="utf-8")
    body = ast.parse(source).body
    for node, after in pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets):
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            return str(after.value.value) if is_text else ""  # type: ignore[attr-defined]
    return ""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for module, title, more in SECTIONS:
        rows = [f"| `{name}` | {meaning(home, name)} |" for name, home in sorted(module._HOME.items())]
        parts.append(f"\n## {title}\n{more}\n| name | what it is |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
