"""Where this user's cache is, and the examples that come with the package."""

import os
from pathlib import Path

import cutwater


def cache_folder() -> Path:
    """For downloads and counted profiles: ``$XDG_CACHE_HOME/cutwater`` or ``~/.cache/cutwater``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cutwater"


def examples_folder() -> Path:
    """Within the package where it was installed from a wheel, beside it in a checkout."""
    package = Path(cutwater.__file__).parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parents[1] / "examples"
