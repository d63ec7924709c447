"""A model as ordered layers, w = w(1) ⊎ … ⊎ w(L), and where it can be cut (paper, Sec. III-B)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cutwater.base.errors import ModelError
from cutwater.model.graph.program import Program, chain, tensors_of
from cutwater.model.halves import Half


@dataclass(frozen=True)
class Layer:
    """w(l): the smallest part of the model that is never divided."""

    name: str
    """Where it ends in the model's own names, such as "layer3.1"."""

    @property
    def stage(self) -> str:
        """The part of the model that it belongs to: its name without the running number."""
        return re.sub(r"[._]?\d+$", "", self.name) or "layers"


class Split(NamedTuple):
    """w^C and w^S (eq. (4))."""

    client: nn.Module
    server: nn.Module


@dataclass(frozen=True, eq=False)
class Layered:
    """A model and its layers; the halves it gives out share the model's tensors."""

    module: nn.Module
    layers: tuple[Layer, ...]
    train_program: Program
    eval_program: Program
    exact: bool = True
    """False where the whole was seen to differ from the module's own forward by rounding.

    It is the same function then, by other kernels of torch: attention has one of its own for input without
    padding, and sums add up in another order for each layout in memory. From cut to cut nothing differs.
    """

    def __post_init__(self) -> None:
        for program in (self.train_program, self.eval_program):
            if program.depth != len(self.layers):
                raise ModelError(
                    f"the model has {len(self.layers)} layers, but its program has {program.depth}"
                )

    def __len__(self) -> int:
        """L."""
        return len(self.layers)

    def split(self, cut: int) -> Split:
        """Layers 1..cut and the rest; at L the server's half is empty and passes everything through."""
        self.check_cut(cut)
        client = self.half(0, cut)
        return Split(client, nn.Identity() if cut == len(self) else self.half(cut, len(self)))

    def half(self, low: int, high: int) -> Half:
        """Layers low+1..high as one module."""
        train = self.train_program.compile(low, high)
        same = self.eval_program is self.train_program
        evaluate = train if same else self.eval_program.compile(low, high)
        targets = self._targets(low, high)
        owned = [target for target in targets if low < self._homes.get(target, high) <= high]
        borrowed = [target for target in targets if target not in owned]
        return Half(self.module, owned, train, evaluate, borrowed, self._still)

    def check_cut(self, cut: int) -> None:
        """Refuse a cut that is out of range or ruled out."""
        depth = len(self)
        if not isinstance(cut, int) or isinstance(cut, bool) or not 1 <= cut <= depth:
            raise ModelError(
                f"cut {cut!r} is out of range: the model has {depth} layers, so a cut is a whole number "
                f"from 1 to {depth} ({depth} keeps the whole model on the client)"
            )
        if cut in self.ruled_out:
            raise ModelError(f"cut {cut} can't be used: {self.ruled_out[cut]}")

    @cached_property
    def ruled_out(self) -> Mapping[int, str]:
        """Cuts that would put a tied parameter on both sides, each with the reason."""
        reasons: dict[int, str] = {}
        for name, used in self._uses.items():
            first, last = min(used), max(used)
            for cut in range(first, last):
                text = f"{name} is used in layers {first} and {last}, so both sides would train it"
                reasons.setdefault(cut, text)
        return dict(sorted(reasons.items()))

    @cached_property
    def parameters_of_layer(self) -> Mapping[int, tuple[str, ...]]:
        """Names of the parameters that each layer is the first to use; each tensor counts once."""
        parameters = dict(self.module.named_parameters())
        found: dict[int, list[str]] = {layer: [] for layer in range(1, len(self) + 1)}
        for name in parameters:
            found[min(self._uses.get(name, {1}))].append(name)
        return {layer: tuple(names) for layer, names in found.items()}

    @cached_property
    def _uses(self) -> Mapping[str, set[int]]:
        """For each tensor (under the first of its names) the layers that use it."""
        firm, loose = self._gather(constants=False), self._gather(constants=True)
        # A constant that no optimizer updates may live on both sides; the first layer to use it keeps it.
        return {**{name: {min(layers)} for name, layers in loose.items()}, **firm}

    @cached_property
    def _homes(self) -> Mapping[str, int]:
        """The layer that keeps each constant of the state dict."""
        first_names = _first_names(self.module)
        constants = {target for program in self._programs for target in program.constants}
        keys = {
            t: first_names.get(id(tensor), n) for t in constants for n, tensor in tensors_of(self.module, t)
        }
        return {target: min(self._uses[key]) for target, key in keys.items() if key in self._uses}

    def _gather(self, *, constants: bool) -> dict[str, set[int]]:
        uses: dict[str, set[int]] = {}
        first_names = _first_names(self.module)
        for program in self._programs:
            for target, layer in program.targets(0, len(self)):
                if (target in program.constants) is constants:
                    for name, tensor in tensors_of(self.module, target):
                        key = first_names.get(id(tensor), name)
                        if key in self._kept:
                            uses.setdefault(key, set()).add(layer)
        return uses

    @cached_property
    def unsaved(self) -> Mapping[str, Tensor]:
        """What the buffers that no state dict holds had in them when this was first asked for."""
        held = self.module.state_dict()
        buffers = self.module.named_buffers()
        return {name: buffer.detach().clone() for name, buffer in buffers if name not in held}

    def restart(self) -> None:
        """Fill these buffers as they were: what one session left in them is no business of the next."""
        for name, value in self.unsaved.items():
            buffer = self.module.get_buffer(name)
            if buffer.shape == value.shape:
                with torch.no_grad():
                    buffer.copy_(value)
            else:  # the model put another in its place
                owner, _, own_name = name.rpartition(".")
                setattr(self.module.get_submodule(owner), own_name, value.clone())

    @cached_property
    def _still(self) -> frozenset[str]:
        """Submodules that the model's own ``train`` leaves in eval mode: frozen BatchNorm, say."""
        modules = dict(self.module.named_modules())
        before = {name: module.training for name, module in modules.items()}
        self.module.train()
        still = frozenset(name for name, module in modules.items() if not module.training)
        for name, module in modules.items():
            module.training = before[name]
        return still

    @property
    def _programs(self) -> set[Program]:
        return {self.train_program, self.eval_program}

    @cached_property
    def _kept(self) -> frozenset[str]:
        """Names of parameters and of the buffers that a state dict holds."""
        state = self.module.state_dict(keep_vars=True)
        return frozenset(state) | {name for name, _ in self.module.named_parameters(remove_duplicate=False)}

    def _targets(self, low: int, high: int) -> list[str]:
        wanted = {target for p in self._programs for target, _ in p.targets(low, high)}
        wanted |= {name for name, layer in self._orphans.items() if low < layer <= high}
        return sorted(wanted, key=self._position)

    @cached_property
    def _orphans(self) -> Mapping[str, int]:
        """Names that no layer uses, each with the layer to keep it in, so that a joined state is complete.

        A second name of a tensor goes where the tensor is used; a tensor without use stays with the client.
        """
        every = {target for program in self._programs for target, _ in program.targets(0, len(self))}
        covered = {name for target in every for name, _ in tensors_of(self.module, target)}
        first_names = _first_names(self.module)
        return {
            name: min(self._uses.get(first_names[id(tensor)], {1}))
            for name, tensor in _state(self.module)
            if name not in covered
        }

    @cached_property
    def _order(self) -> Mapping[str, int]:
        return {
            name: index for index, (name, _) in enumerate(self.module.named_modules(remove_duplicate=False))
        }

    @cached_property
    def _tensor_order(self) -> Mapping[str, int]:
        return {name: index for index, (name, _) in enumerate(_state(self.module))}

    def _position(self, target: str) -> tuple[int, int]:
        """Where the model registered a target, so that halves and joins list their state in its order."""
        owner = target if target in self._order else target.rpartition(".")[0]
        return self._order[owner], self._tensor_order.get(target, -1)


def of_chain(
    root: nn.Module,
    steps: Sequence[str | Callable[[Any], Any]],
    may_change: Callable[[str], bool] = lambda name: True,
) -> Layered:
    """The layers of submodules, by name, called one after the other; functions join the layer before.

    ``may_change`` says which submodules may write into their input.
    """
    names = [step for step in steps if isinstance(step, str)]
    if not names:
        raise ModelError("a model needs at least one layer, but the list of layers is empty")
    program = chain(steps, may_change)
    return Layered(root, tuple(map(Layer, names)), program, program)


def _state(root: nn.Module) -> list[tuple[str, Tensor]]:
    """All parameters and buffers under all of their names."""
    parameters = root.named_parameters(remove_duplicate=False)
    return [*parameters, *root.named_buffers(remove_duplicate=False)]


def _first_names(root: nn.Module) -> dict[int, str]:
    """The first name of each parameter and buffer, by identity."""
    return {id(tensor): name for name, tensor in reversed(_state(root))}
