"""Where the examples are that come with the package."""

from pathlib import Path

import cutwater


def examples_folder() -> Path:
    """Within the package where it was installed from a wheel, beside it in a checkout."""
    package = Path(cutwater.__file__).parent
    inside = package / "examples"
    return inside if inside.is_dir() else package.parents[1] / "examples"
