"""What one sample looks like, as people write it: "1x28x28" is an image, "128" a sequence of 128 tokens.

Several inputs have the names that the model gives them: "input_ids=128,attention_mask=128".
"""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from cutwater.base.errors import ModelError

KINDS = ("floats", "tokens")
_SPEC = re.compile(r"\s*(?:(?P<kind>[a-z]+):)?(?P<sizes>[0-9]{1,9}(?:x[0-9]{1,9})*)\s*$")
_HINT = (
    "write an image as channels x height x width ('1x28x28') and a sequence of tokens as its length ('128')"
)


@dataclass(frozen=True)
class InputSpec:
    """The shape of one sample and whether it holds numbers or token ids."""

    shape: tuple[int, ...]
    kind: str | None = None
    """"floats" or "tokens"; None leaves it to the model."""
    named: "tuple[tuple[str, InputSpec], ...]" = ()
    """All inputs by name, of a model that takes several; shape and kind are those of the first."""

    def __str__(self) -> str:
        if self.named:
            return ",".join(f"{name}={spec}" for name, spec in self.named)
        sizes = "x".join(map(str, self.shape))
        return f"{self.kind}:{sizes}" if self.kind else sizes

    def resolved(self, default: str | None) -> str:
        """The kind that a model which takes ``default`` (None: anything) gets."""
        return self.kind or default or ("tokens" if len(self.shape) == 1 else "floats")


def parse_input(spec: "str | InputSpec") -> InputSpec:
    """Read "1x28x28", "128" or, where a model could take either, "floats:64" and "tokens:64".

    >>> parse_input("3x224x224").shape
    (3, 224, 224)
    >>> str(parse_input("input_ids=128, attention_mask=128"))
    'input_ids=128,attention_mask=128'
    """
    if isinstance(spec, InputSpec):
        return spec
    if isinstance(spec, str) and "=" in spec:
        return _parse_named(spec)
    match = _SPEC.match(spec) if isinstance(spec, str) else None
    if match is None or match["kind"] not in (None, *KINDS):
        raise ModelError(f"input {spec!r} is not a shape: {_HINT}")
    shape = tuple(int(size) for size in match["sizes"].split("x"))
    if 0 in shape:
        raise ModelError(f"input {spec!r} has a size of zero, but every size must be at least 1: {_HINT}")
    return InputSpec(shape, match["kind"])


def _parse_named(text: str) -> InputSpec:
    parts = [part.partition("=") for part in text.split(",")]
    odd = next((name for name, sign, _ in parts if not (sign and name.strip().isidentifier())), None)
    names = [name.strip() for name, _, _ in parts]
    if odd is not None or len(set(names)) < len(names):
        raise ModelError(
            f"input {text!r} is not a list of inputs by name: write each once, as "
            "'input_ids=128,attention_mask=128'"
        )
    named = tuple((name.strip(), parse_input(spec)) for name, _, spec in parts)
    return InputSpec(named[0][1].shape, named[0][1].kind, named)


def image_shape(model: str, spec: InputSpec) -> tuple[int, int, int]:
    """Channels, height and width, for models that look at images."""
    if len(spec.shape) != 3 or spec.kind == "tokens":
        raise ModelError(
            f"{model} takes images, but the input is '{spec}': write channels x height x width, "
            "such as '1x28x28'"
        )
    channels, height, width = spec.shape
    return channels, height, width


def sequence_length(model: str, spec: InputSpec) -> int:
    """The number of tokens, for models that read text."""
    if len(spec.shape) != 1 or spec.kind == "floats":
        raise ModelError(
            f"{model} takes token ids, but the input is '{spec}': write the sequence's length, such as '128'"
        )
    return spec.shape[0]


def draw_named(spec: InputSpec, batch: int, vocabulary: int = 2, device: str = "cpu") -> dict[str, Tensor]:
    """A batch of each named input; of masks, nothing is masked."""
    made = {name: draw(one, one.resolved(None), batch, vocabulary, device) for name, one in spec.named}
    return {name: torch.ones_like(one) if name.endswith("mask") else one for name, one in made.items()}


def draw(spec: InputSpec, kind: str, batch: int, vocabulary: int = 2, device: str = "cpu") -> Tensor:
    """A batch of that shape: normal numbers or token ids, the same on every call; empty on "meta"."""
    if batch < 1:
        raise ModelError(f"batch size {batch} is too small: at least one sample is needed")
    shape = (batch, *spec.shape)
    if device == "meta":
        return torch.empty(shape, dtype=torch.int64 if kind == "tokens" else torch.float32, device=device)
    source = torch.Generator().manual_seed(0)
    if kind == "tokens":
        return torch.randint(0, vocabulary, shape, generator=source).to(device)
    return torch.randn(shape, generator=source).to(device)
