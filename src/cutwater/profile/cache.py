"""Profiles of the zoo's models, kept in the user's cache: counting one takes seconds and needs torch.

What such a model costs follows from what was asked for, this package's own source and torch's release, and
that is the name it is kept under. A user's own model is counted every time, for its code may have changed.
"""

import json
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import cutwater
from cutwater.base.errors import CutwaterError
from cutwater.base.folders import cache_folder
from cutwater.base.jsonfile import read_json, write_json
from cutwater.profile.values import Profile

_COUNTED_BY = ("model", "profile")
"""The packages that a profile follows from."""
MOST_KEPT = 256
"""Profiles; the oldest go first. Whoever tries sizes on a page, or releases, does not fill a disk."""


def profile_of(name: str, **settings: Any) -> Profile:
    """:func:`cutwater.profile_model`, or what it said the last time."""
    path = None if ":" in name else _path({"name": name, **settings})
    if path is not None:
        with suppress(CutwaterError):  # nobody asked before, or something happened to the file
            return Profile.from_json(read_json(path), str(path))
    # Imported here, because what is kept is planned from without torch.
    from cutwater.profile.count import profile_model

    profile = profile_model(name, **settings)
    if path is not None:
        with suppress(CutwaterError):  # a cache that can't be written is none
            write_json(path, profile.to_json())
            _remove_oldest(path.parent)
    return profile


def _remove_oldest(folder: Path) -> None:
    with suppress(OSError):  # another process removes the same ones
        kept = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        for file in kept[:-MOST_KEPT]:
            file.unlink()


def _path(settings: dict[str, Any]) -> Path | None:
    """Where the profile of these settings is kept; None where none can be."""
    try:
        asked = json.dumps(settings, sort_keys=True, allow_nan=False)
        folder = cache_folder() / "profiles"
    except (TypeError, ValueError, RuntimeError):  # options that are no JSON; a user without a home
        return None
    return folder / f"{sha256(f'{asked} {_counter()}'.encode()).hexdigest()}.json"


@cache
def _counter() -> str:
    """What counts: a digest of the source, and torch's release."""
    root, digest = Path(cutwater.__file__).parent, sha256()
    for file in sorted(file for package in _COUNTED_BY for file in (root / package).rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    with suppress(PackageNotFoundError):
        digest.update(version("torch").encode())
    return digest.hexdigest()
