"""Values to compare: outputs with their types, gradients, and a model with everything on it."""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

ROUNDING = 1e-3
"""How far apart two kernels' results may be, relative to their size, where bits are not promised."""
Flat = dict[str, Any]
"""Values by name: tensors, and what is compared by equality."""


class WrongError(Exception):
    """What a model that was taken apart does otherwise than it should."""


def flat(name: str, value: Any) -> Flat:
    """Every tensor in a value, however nested, under a name that says where it is."""
    if isinstance(value, Tensor):
        return {name: value}
    parts: Flat = {}
    for key, part in _parts(value):
        parts |= flat(f"{name}.{key}", part)
    return parts


def kind_of(value: Any) -> Any:
    """The types in a value: its own and those of what it holds."""
    inside = [(key, kind_of(part)) for key, part in _parts(value)]
    return (type(value).__name__, *inside) if inside else type(value).__name__


def _parts(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return [(key, part) for key, part in value.items() if part is not None]
    if is_dataclass(value) and not isinstance(value, type):
        return [(f.name, getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) is not None]
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if type(value).__module__.split(".")[0] not in ("builtins", "torch") and hasattr(value, "__dict__"):
        return [(key, part) for key, part in vars(value).items() if isinstance(part, Tensor)]
    return []


def loss_of(output: Any) -> Tensor | None:
    """A number that every output with a gradient has a part in."""
    parts = [v.abs().square().sum() for v in flat("", output).values() if v.requires_grad]
    return torch.stack(parts).sum() if parts else None


def explain_difference(one: Flat, other: Flat, loosely: bool = False) -> str | None:
    """What differs, in a few words; None where nothing does (but for rounding, if ``loosely``)."""
    if one.keys() != other.keys():
        odd = sorted(map(str, one.keys() ^ other.keys()))
        return f"{odd[0]} is only on one side"
    for name, value in one.items():
        scale = _scale(other, name) if loosely else 0.0
        if not _equal(value, other[name], scale):
            detail = f" ({_short(value)} for {_short(other[name])})" if not isinstance(value, Tensor) else ""
            return f"{name} differs{detail}"
    return None


def _short(value: Any) -> str:
    return str(value)[:120]


def _scale(values: Flat, name: str) -> float:
    """The size of the largest tensor of a kind: a gradient that should be zero is all rounding."""
    kind = name.split(maxsplit=1)[0].split(".", maxsplit=1)[0]
    alike = [v for n, v in values.items() if n.startswith(kind) and isinstance(v, Tensor)]
    return max((float(v.double().norm()) for v in alike), default=0.0)


def _equal(one: Any, other: Any, scale: float) -> bool:
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return bool(one == other) if not isinstance(one, Tensor) and not isinstance(other, Tensor) else False
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if torch.allclose(one, other, rtol=0, atol=0, equal_nan=True):
        return True
    return float((one.double() - other.double()).norm()) <= ROUNDING * scale


def fingerprint(model: nn.Module) -> Flat:
    """Everything on a model that taking it apart may not change."""
    found: Flat = {}
    for path, part in model.named_modules():
        for key, value in part.__dict__.items():
            if key in ("_parameters", "_buffers", "_modules"):
                found[f"{path}.{key}"] = [(name, id(each)) for name, each in value.items()]
            elif key.endswith("hooks") and isinstance(value, dict):
                found[f"{path}.{key}"] = list(map(id, value.values()))
            else:
                plain = isinstance(value, (bool, int, float, str, type(None)))
                found[f"{path}.{key}"] = value if plain else (type(value).__name__, _length(value))
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        digest = hashlib.blake2b(tensor.detach().contiguous().view(-1).numpy().tobytes()).hexdigest()
        found[f"tensor {name}"] = (digest, tensor.requires_grad, tensor.grad is None, tuple(tensor.shape))
    return found


def _length(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return -1
