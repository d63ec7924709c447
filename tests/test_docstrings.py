"""The examples in docstrings say what really comes out."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src"
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    if name.startswith("cutwater.stream"):
        pytest.importorskip("grpc", reason="FLOWER IS MISSING: pip install 'cutwater[flower]'")
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
