"""Where this user's cache is."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """For downloads and counted profiles: ``$XDG_CACHE_HOME/cutwater`` or ``~/.cache/cutwater``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cutwater"
