"""Names for layers, from the model's own names."""

from collections import Counter
from collections.abc import Sequence

from torch import fx

from cutwater.model.graph.program import SCOPE
from cutwater.model.layers import Layer


def name_layers(segments: Sequence[Sequence[fx.Node]], stateful: frozenset[fx.Node]) -> tuple[Layer, ...]:
    """Name each run of operations after what it ends with, or after the part of the model that it is.

    Modules with something to learn or to keep give the name, where there are any.
    """
    calls = [_calls(segment, stateful) for segment in segments]
    totals = Counter(part for inside in calls for path in inside for part in _ancestors(path))
    names = [_name(segment, inside, totals) for segment, inside in zip(segments, calls, strict=True)]
    return tuple(Layer(name) for name in _unique(names))


def _calls(segment: Sequence[fx.Node], stateful: frozenset[fx.Node]) -> list[str]:
    called = [node for node in segment if node.op == "call_module"]
    return [str(node.target) for node in called if node in stateful] or [str(node.target) for node in called]


def _name(segment: Sequence[fx.Node], calls: Sequence[str], totals: Counter[str]) -> str:
    """The widest part of the model that this layer holds all of, and that it ends with."""
    last = segment[-1]
    if not calls:
        return f"{last.meta.get(SCOPE, '')}:{_operation(last)}".removeprefix(":")
    for part in _ancestors(calls[-1]):
        inside = sum(part in _ancestors(call) for call in calls)
        if inside > 1 and inside == totals[part]:
            return part
    return calls[-1]


def _ancestors(path: str) -> tuple[str, ...]:
    """The parts of a model that hold a module, the widest first: a, a.b for a.b.c."""
    steps = path.split(".")
    return tuple(".".join(steps[:count]) for count in range(1, len(steps)))


def _operation(node: fx.Node) -> str:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    return name.split(".")[0].strip("_")


def _unique(names: Sequence[str]) -> list[str]:
    """Tell layers of the same name apart: relu, relu@2."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name}@{seen[name]}")
    return result
