"""What an option of a model can't be called, because Cutwater itself passes something by that name."""

from collections.abc import Mapping

from cutwater.base.errors import ModelError

_RENAME = "Cutwater sets it itself, so call it something else in your function"
RESERVED: Mapping[str, str] = {
    "name": "use the model's name itself",
    **{
        key: f"use --{key} of the command, or {key} in [model]"
        for key in ("input", "classes", "count", "kappa", "optimizer")
    },
    "batch_size": "use --batch-size of the command, or batch_size in [session]",
    "batch": _RENAME,
    "device": _RENAME,
    "autocast": "use autocast in [session]",
}
"""What to do instead of each."""


def check_option(name: str, what: str) -> None:
    """Refuse a name that could never reach the model."""
    if name in RESERVED:
        raise ModelError(f"{what} is no option of a model: {RESERVED[name]}")
