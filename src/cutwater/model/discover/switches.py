"""Settings that models of well-known libraries have for what training can do without."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

OFF = {
    "apply_spec_augment": False,
    "layerdrop": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "mask_time_prob": 0.0,
    "mask_feature_prob": 0.0,
    "use_cache": False,
}
"""Settings by name, each with the value that switches it off: layers left out at random, masks drawn with
NumPy, and a cache that only text generation needs."""


@dataclass(frozen=True)
class Switch:
    """A setting that is on."""

    path: str
    """Where it is, such as ``model.config``."""
    holder: Any
    name: str


def find_switches(module: nn.Module) -> list[Switch]:
    """Every such setting of a model's parts and of their configurations that is on."""
    found: list[Switch] = []
    seen: set[int] = set()
    for path, part in module.named_modules():
        own = f"model.{path}" if path else "model"
        for where, holder in ((own, part), (f"{own}.config", getattr(part, "config", None))):
            if holder is not None and id(holder) not in seen:
                seen.add(id(holder))
                held = getattr(holder, "__dict__", {})
                found += [
                    Switch(where, holder, name) for name, off in OFF.items() if held.get(name, off) != off
                ]
    return found


@contextmanager
def switched_off(switches: Sequence[Switch]) -> Iterator[None]:
    """While open, these settings are off."""
    before = [getattr(switch.holder, switch.name) for switch in switches]
    try:
        for switch in switches:
            setattr(switch.holder, switch.name, OFF[switch.name])
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            setattr(switch.holder, switch.name, value)


def describe_switches(switches: Sequence[Switch]) -> str:
    """What to write to switch them off."""
    lines = [f"{switch.path}.{switch.name} = {OFF[switch.name]}" for switch in switches]
    return f"it can be with {', '.join(lines)}, so set that first"
