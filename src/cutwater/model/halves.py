"""The two halves of a cut model, and how they are put together again: w = w^C ⊎ w^S (eq. (4))."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cutwater.base.errors import ModelError
from cutwater.model.graph.program import Forward, tensors_of


class _Part(nn.Module):
    """Some of a model's submodules under their own names, in the modes that the model puts them in."""

    def __init__(self, still: frozenset[str], order: Mapping[str, int]) -> None:
        super().__init__()
        self.still = still
        """Submodules that stay in eval mode when the model is trained: its own ``train`` says so."""
        self.order = order
        """The place of every submodule and tensor among the model's, by name."""
        self.lent: frozenset[str] = frozenset()
        """Tensors that this part uses and another keeps: no state dict of this one has them."""
        self.register_state_dict_post_hook(_leave_out_lent)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_miss_no_lent)  # type: ignore[no-untyped-call]

    def _arrange(self) -> None:
        """List everything in the model's own order, whatever came first here."""
        for path, part in self.named_modules():
            prefix = f"{path}." if path else ""
            for table in (part._parameters, part._buffers, part._modules):
                places = {name: self.order.get(prefix + name, -1) for name in table}
                if list(places.values()) != sorted(places.values()):
                    members = sorted(table.items(), key=lambda item: places[item[0]])
                    table.clear()
                    table.update(members)

    def _lend(self, targets: Sequence[str], borrowed: Sequence[str]) -> None:
        """What is borrowed and not kept here as well is lent."""
        kept, used = (
            {name for target in some for name, _ in tensors_of(self, target)} for some in (targets, borrowed)
        )
        self.lent = frozenset(used - kept)

    def train(self, mode: bool = True) -> "_Part":
        """Training mode or eval mode, as the model's own ``train`` would set it."""
        super().train(mode)
        for name, module in self.named_modules() if mode and self.still else ():
            if name in self.still:
                module.training = False
        return self


class Half(_Part):
    """One side of a cut model; it shares its tensors with the model and keeps their names.

    The client's half takes the model's inputs; the server's half takes what the client's returns.
    """

    def __init__(
        self,
        root: nn.Module,
        targets: Sequence[str],
        train: Forward,
        evaluate: Forward,
        borrowed: Sequence[str] = (),
        still: frozenset[str] = frozenset(),
        order: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(still, order or {})
        self.training, self._version = root.training, root._version
        self.targets, self.borrowed = tuple(targets), tuple(borrowed)
        self._programs = (evaluate, train)
        for target in self.borrowed:
            _adopt(self, root, target, keep=False)
        for target in self.targets:
            _adopt(self, root, target)
        self._lend(self.targets, self.borrowed)
        self._arrange()

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The layers of this half, in order."""
        return self.run(self, *inputs, **named)

    def run(self, holder: nn.Module, *inputs: Any, **named: Any) -> Any:
        """The same, with the parameters of another module of the same names."""
        return self._programs[holder.training](holder, *inputs, **named)


class _Several(_Part):
    """Some parts of a model in one, each tensor once."""

    def __init__(self, halves: Sequence[Half]) -> None:
        super().__init__(frozenset().union(*(half.still for half in halves)), halves[0].order)
        self.training, self._version = halves[0].training, halves[0]._version
        # A plain list keeps the halves out of the module tree, which already holds their contents.
        self._chain = [half.run for half in halves]
        for half in halves:
            for target in half.borrowed:
                _adopt(self, half, target, keep=False)
        # What one half owns and the other borrows ends up owned.
        for half in halves:
            for target in half.targets:
                _adopt(self, half, target)
        self._arrange()


class Joined(_Several):
    """Parts put together again that follow each other, as both halves do: w = w^C ⊎ w^S."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """All of them, one after the other."""
        value = self._chain[0](self, *inputs, **named)
        for run in self._chain[1:]:
            value = run(self, value)
        return value


class Ends(_Several):
    """Head and tail of a model, whose middle is elsewhere: called, it is the head."""

    def __init__(self, head: Half, tail: Half) -> None:
        super().__init__([head, tail])
        self._lend((*head.targets, *tail.targets), (*head.borrowed, *tail.borrowed))
        first = {id(parameter) for parameter in head.parameters()}
        named = self.named_parameters()
        self.of_tail = frozenset(name for name, parameter in named if id(parameter) not in first)
        """Parameters of the tail alone; what it shares with the head is the head's."""

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The layers before the first cut."""
        return self._chain[0](self, *inputs, **named)

    def tail(self, value: Any) -> Any:
        """The layers after the second cut, from what crosses it."""
        return self._chain[1](self, value)


def join(client: nn.Module, server: nn.Module) -> nn.Module:
    """Put the halves of a split together again: forward, names and state of the whole model."""
    halves = [half for half in (client, server) if isinstance(half, Half)]
    if not halves or not isinstance(client, Half):
        raise ModelError("join takes the two halves that split gave out, the client's first")
    return Joined(halves)


def join_states(client: Mapping[str, Tensor], server: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of the whole model from those of its halves."""
    both = client.keys() & server.keys()
    if both:
        raise ModelError(f"{sorted(both)[0]!r} is in both halves, but each tensor belongs to one side")
    return {**client, **server}


def _adopt(holder: nn.Module, root: nn.Module, target: str, *, keep: bool = True) -> None:
    """Register the submodule or tensor ``target`` of ``root`` under the same name in ``holder``.

    What is not to be kept stays out of the state dict.
    """
    *path, name = target.split(".")
    source = root
    for step in path:
        source = getattr(source, step)
        if step not in holder._modules:
            holder.add_module(step, nn.Module())
        inner = holder._modules[step]
        assert inner is not None
        if inner is source:
            return  # an outer module that is already here holds it
        inner.training, inner._version = source.training, source._version
        holder = inner
    found = getattr(source, name)
    if isinstance(found, nn.Module):
        holder.add_module(name, found)
    elif isinstance(found, nn.Parameter):
        holder.register_parameter(name, found)
    elif isinstance(found, torch.Tensor):
        kept = name in source._buffers and name not in source._non_persistent_buffers_set
        holder.register_buffer(name, found, persistent=keep and kept)
    else:
        setattr(holder, name, found)


def _leave_out_lent(part: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    assert isinstance(part, _Part)
    for name in part.lent:
        state.pop(f"{prefix}{name}", None)


def _miss_no_lent(part: nn.Module, incompatible: Any) -> None:
    assert isinstance(part, _Part)
    incompatible.missing_keys[:] = [name for name in incompatible.missing_keys if name not in part.lent]
