"""Which tensors of a half cross a client's link, how often, and how large they are.

The one answer to what a model transfer is (eqs. (9) and (16)): the profile prices it, sessions send it, and
counters and estimates count it. Weights that learn travel down and up in every round, and so do buffers,
which training may change (running statistics). Weights that do not learn are the same in every round: they
travel down once, and a device that holds them knows them by their digest. A tensor with two names travels
under the first of them.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Traffic:
    """The tensors of a state dict by what becomes of them, each with its size in bytes."""

    learned: Mapping[str, int]
    buffers: Mapping[str, int]
    fixed: Mapping[str, int]
    aliases: Mapping[str, str]
    """Second names of tensors, each with the first."""

    @property
    def every_round(self) -> tuple[str, ...]:
        """What travels down and up in every round."""
        return (*self.learned, *self.buffers)

    @property
    def never_learning(self) -> frozenset[str]:
        """The names of weights that do not learn, second names included."""
        return frozenset(self.fixed) | {name for name, first in self.aliases.items() if first in self.fixed}

    def lacking(self, held: Container[str]) -> tuple[str, ...]:
        """The fixed weights that a device lacks which holds some of them."""
        return tuple(name for name in self.fixed if name not in held)

    def bytes_down(self, held: Container[str] = ()) -> int:
        """What a round sends to a device that holds some fixed weights already."""
        return self.bytes_up + sum(self.fixed[name] for name in self.lacking(held))

    def first_name(self, name: str) -> str:
        """The first name of a tensor, by any of its names."""
        return self.aliases.get(name, name)

    @property
    def bytes_up(self) -> int:
        """What a round sends back."""
        return sum(self.learned.values()) + sum(self.buffers.values())

    def completed(self, sent: Mapping[str, Tensor], rest: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A whole state dict from what was sent, with fixed weights from ``rest``, and second names."""
        state = {**{name: rest[name] for name in self.fixed}, **sent}
        return {**state, **{name: state[first] for name, first in self.aliases.items()}}


def traffic(half: nn.Module, seen: set[int] | None = None) -> Traffic:
    """The traffic of a half; ``seen`` are tensors that count elsewhere, to which its own are added."""
    known: dict[int, str] = dict.fromkeys(seen or (), "")
    learned: dict[str, int] = {}
    buffers: dict[str, int] = {}
    fixed: dict[str, int] = {}
    aliases: dict[str, str] = {}
    for name, tensor in half.state_dict(keep_vars=True).items():
        if id(tensor) in known:
            aliases[name] = known[id(tensor)]
            continue
        known[id(tensor)] = name
        kind = buffers if not isinstance(tensor, nn.Parameter) else learned if tensor.requires_grad else fixed
        kind[name] = tensor_bytes((tensor,))
    if seen is not None:
        seen.update(known)
    return Traffic(learned, buffers, fixed, {name: first for name, first in aliases.items() if first})


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Size of tensors as they cross a network."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
