"""A model as ordered layers, w = w(1) ⊎ … ⊎ w(L), and where it can be cut (paper, Sec. III-B)."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cutwater.base.errors import ModelError
from cutwater.base.kinds import Whole
from cutwater.model.graph.program import Program, tensors_of
from cutwater.model.halves import Ends, Half
from cutwater.model.modes import in_mode


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
    """w^C and w^S (eq. (4)); w^C is an :class:`~cutwater.model.halves.Ends` where the tail stays, too."""

    client: nn.Module
    server: nn.Module


@dataclass(frozen=True)
class Shared:
    """A tensor that several layers use: a tied weight, say."""

    name: str
    """The first of its names."""
    layers: tuple[int, ...]
    """Those that use it, ascending."""
    learns: bool
    """One that does may be on one side only; one that does not is the same on both."""

    def torn_by(self, cut: int, second_cut: int) -> str | None:
        """Why a pair of cuts can't be used with it: both sides would train it; None if they would not."""
        if not self.learns or len({cut < layer <= second_cut for layer in self.layers}) == 1:
            return None
        used = " and ".join(map(str, (self.layers[0], self.layers[-1])))
        return f"{self.name} is used in layers {used}, so both sides would train it"


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
    padding, and sums add up in another order for each layout in memory. From cut to cut nothing differs. It
    is seen with samples of the example's size; with others, an exact one may differ so as well.
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

    def split(self, cut: int, second_cut: int = 0) -> Split:
        """Layers 1..cut and the rest; at L the server's half is empty and passes everything through.

        With a second cut the server has layers cut+1..second_cut, and the client the layers after that, too.
        """
        if second_cut:
            cut, second_cut = self.check_cuts(cut, second_cut)
            head, tail = self.half(0, cut), self._part(second_cut, len(self), ())
            return Split(Ends(head, tail), self._part(cut, second_cut, {*head.targets, *tail.targets}))
        cut = self.check_cut(cut)
        client = self.half(0, cut)
        return Split(client, nn.Identity() if cut == len(self) else self.half(cut, len(self)))

    def half(self, low: int, high: int) -> Half:
        """Layers low+1..high as one module; what layers before use as well is theirs, if both may have it."""
        targets = self._targets(low, high)
        return self._part(low, high, [t for t in targets if not low < self._homes.get(t, high) <= high])

    def _part(self, low: int, high: int, elsewhere: Collection[str]) -> Half:
        """Layers low+1..high as one module that keeps all it uses but for what is kept elsewhere."""
        train = self.train_program.compile(low, high)
        same = self.eval_program is self.train_program
        evaluate = train if same else self.eval_program.compile(low, high)
        targets = self._targets(low, high)
        owned = [target for target in targets if target not in elsewhere]
        borrowed = [target for target in targets if target in elsewhere]
        return Half(self.module, owned, train, evaluate, borrowed, self.still, self._places)

    def check_cut(self, cut: int) -> int:
        """The cut, unless it is out of range or ruled out."""
        depth = len(self)
        try:
            found: int = Whole(1, depth).take(cut)
        except ValueError:
            raise ModelError(
                f"cut {cut!r} is out of range: the model has {depth} layers, so a cut is a whole number "
                f"from 1 to {depth} ({depth} keeps the whole model on the client)"
            ) from None
        if found in self.ruled_out:
            raise ModelError(f"cut {found} can't be used: {self.ruled_out[found]}")
        return found

    def check_cuts(self, cut: int, second_cut: int) -> tuple[int, int]:
        """The pair of cuts, unless it is out of range or ruled out."""
        depth = len(self)
        try:
            second = Whole(1, depth - 1).take(second_cut)
            first = Whole(1, second - 1).take(cut)
        except ValueError:
            raise ModelError(
                f"cuts {cut!r} and {second_cut!r} are out of range: the model has {depth} layers, so two "
                f"cuts are whole numbers from 1 to {depth - 1}, the second above the first"
            ) from None
        for shared in self.shared:
            reason = shared.torn_by(first, second)
            if reason:
                raise ModelError(f"cuts {first} and {second} can't be used together: {reason}")
        return first, second

    @cached_property
    def ruled_out(self) -> Mapping[int, str]:
        """Cuts that would put a tied parameter that learns on both sides, each with the reason.

        One that does not learn is the same on both sides, and rules out nothing.
        """
        reasons: dict[int, str] = {}
        for shared in self.shared:
            for cut in range(shared.layers[0], shared.layers[-1]):
                reason = shared.torn_by(cut, len(self))
                if reason:
                    reasons.setdefault(cut, reason)
        return dict(sorted(reasons.items()))

    @cached_property
    def shared(self) -> tuple[Shared, ...]:
        """What several layers use, in the model's order."""
        frozen = _frozen(self.module)
        return tuple(
            Shared(name, tuple(sorted(layers)), name not in frozen)
            for name, layers in self._uses.items()
            if len(layers) > 1
        )

    @cached_property
    def parameters_of_layer(self) -> Mapping[int, tuple[str, ...]]:
        """Names of the parameters that each layer is the first to use; each tensor counts once."""
        parameters = dict(self.module.named_parameters())
        found: dict[int, list[str]] = {layer: [] for layer in range(1, len(self) + 1)}
        for name in parameters:
            found[min(self._uses.get(name, {1}))].append(name)
        return {layer: tuple(names) for layer, names in found.items()}

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of every parameter, by all of its names, among those of layers 1 to L."""
        own = [name for names in self.parameters_of_layer.values() for name in names]
        places = {name: place for place, name in enumerate(own)}
        return {name: places[first] for name, first in self._first_of.items()}

    def names_at_ends(self, first: int, last: int) -> frozenset[str]:
        """All names of the parameters that one of so many first layers uses, or one of so many last."""
        ends = self._ends_of_use.items()
        return frozenset(name for name, (low, high) in ends if low <= first or high > len(self) - last)

    @cached_property
    def _ends_of_use(self) -> Mapping[str, tuple[int, int]]:
        """For each parameter, by all of its names, the first and the last layer that uses it."""
        uses = {name: self._uses.get(first, {1}) for name, first in self._first_of.items()}
        return {name: (min(layers), max(layers)) for name, layers in uses.items()}

    @cached_property
    def _first_of(self) -> Mapping[str, str]:
        """The first name of each parameter, by all of its names."""
        first_names = _first_names(self.module)
        named = self.module.named_parameters(remove_duplicate=False)
        return {name: first_names[id(tensor)] for name, tensor in named}

    @cached_property
    def _uses(self) -> Mapping[str, set[int]]:
        """For each tensor (under the first of its names) the layers that use it."""
        firm, loose = dict[str, set[int]](), dict[str, set[int]]()
        first_names = _first_names(self.module)
        for program in self._programs:
            for target, layer in program.targets(0, len(self)):
                for name, tensor in tensors_of(self.module, target):
                    key = first_names.get(id(tensor), name)
                    if key in self._kept:
                        uses = loose if target in self._constants else firm
                        uses.setdefault(key, set()).add(layer)
        # A constant that no optimizer updates may live on both sides; the first layer to use it keeps it.
        return {**{name: {min(layers)} for name, layers in loose.items()}, **firm}

    @cached_property
    def _homes(self) -> Mapping[str, int]:
        """The layer that keeps what both sides may hold: constants, and what holds frozen weights only."""
        first_names = _first_names(self.module)
        keys = {
            target: first_names.get(id(tensor), name)
            for target in self._constants
            for name, tensor in tensors_of(self.module, target)
        }
        homes = {target: min(self._uses[key]) for target, key in keys.items() if key in self._uses}
        frozen, used = _frozen(self.module), dict[str, int]()
        for program in self._programs:
            for target, layer in program.targets(0, len(self)):
                used[target] = min(layer, used.get(target, layer))
        for target, layer in used.items():
            names = [first_names.get(id(tensor), name) for name, tensor in tensors_of(self.module, target)]
            if target not in homes and names and frozen.issuperset(names):
                homes[target] = layer
        return homes

    @cached_property
    def _constants(self) -> frozenset[str]:
        """Targets that either side may hold: not submodules with weights, which blocks may be handed."""
        return frozenset(
            target
            for program in self._programs
            for target in program.constants
            if not any(isinstance(one, nn.Parameter) for _, one in tensors_of(self.module, target))
        )

    @cached_property
    def unsaved(self) -> Mapping[str, Tensor]:
        """What the buffers that no state dict holds had in them when this was first asked for."""
        held = self.module.state_dict()
        buffers = self.module.named_buffers()
        return {name: buffer.detach().clone() for name, buffer in buffers if name not in held}

    def restart(self) -> None:
        """Fill these buffers as they were: what one session left in them is no business of the next."""
        for name, value in self.unsaved.items():
            fill_buffer(self.module, name, value)

    @cached_property
    def still(self) -> frozenset[str]:
        """Submodules that the model's own ``train`` leaves in eval mode: frozen BatchNorm, say."""
        with in_mode(self.module, True):
            return frozenset(name for name, module in self.module.named_modules() if not module.training)

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

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {**self._order, **self._tensor_order}

    def _position(self, target: str) -> tuple[int, int]:
        """Where the model registered a target, so that halves and joins list their state in its order."""
        owner = target if target in self._order else target.rpartition(".")[0]
        return self._order[owner], self._tensor_order.get(target, -1)


def _state(root: nn.Module) -> list[tuple[str, Tensor]]:
    """All parameters and buffers under all of their names."""
    parameters = root.named_parameters(remove_duplicate=False)
    return [*parameters, *root.named_buffers(remove_duplicate=False)]


def _frozen(root: nn.Module) -> frozenset[str]:
    """First names of the parameters that do not learn."""
    return frozenset(name for name, parameter in root.named_parameters() if not parameter.requires_grad)


def _first_names(root: nn.Module) -> dict[int, str]:
    """The first name of each parameter and buffer, by identity."""
    return {id(tensor): name for name, tensor in reversed(_state(root))}


def fill_buffer(module: nn.Module, name: str, value: Tensor) -> None:
    """Have these numbers in a buffer, or another of this shape in its place, as a module may have put one."""
    buffer = module.get_buffer(name)
    if buffer.shape == value.shape:
        with torch.no_grad():
            buffer.copy_(value)
    else:
        owner, _, own_name = name.rpartition(".")
        setattr(module.get_submodule(owner), own_name, value.to(buffer.device, copy=True))
