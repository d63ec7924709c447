"""Where a model can be cut (paper, Sec. III-B): the boundaries between its layers.

By default a cut lies between two blocks; of the places between the two, it is the one where one activation
crosses, or else the least. On request it may lie behind any operation. Several tensors may cross, masks and
other values without gradient among them. The floating-point inputs that a later layer would learn from never
do: the data stays on the device.

What is between two cuts is a layer, called after what it ends with or after the part of the model that it is.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import compress, pairwise
from typing import Any

from torch import fx

from cutwater.model.at_cut import Lengths
from cutwater.model.discover.flow import Flow
from cutwater.model.graph.program import SCOPE, Program
from cutwater.model.graph.sizes import can_be_rows
from cutwater.model.layers import Layer


@dataclass(frozen=True, eq=False)
class Places(Flow):
    """The places behind the operations of a graph, as candidates for a cut."""

    @cached_property
    def program(self) -> Program:
        """The graph as a program in which every operation is a layer: its position."""
        sizes, changed_by = self.facts.sizes(), self.facts.changed_by
        return Program(self.graph, self.positions, self.replicable, sizes, changed_by)

    def activations_at(self, place: int) -> int:
        """How many tensors with a gradient cross; in a part that has none, how many activations."""
        crossing = [node for node in self.program.frontier(place) if node in self.activations]
        return sum(node in self.facts.learning for node in crossing) or len(crossing)

    def bits(self, place: int) -> int:
        """How much crosses."""
        return sum(self.facts.bits(node) for node in self.program.frontier(place))

    def is_possible(self, place: int) -> bool:
        """Whether the model can be taken apart here at all."""
        crossing = self.program.frontier(place)
        return (
            place < self._last_tensor
            and all(node in self.facts.tensors and node.op != "get_attr" for node in crossing)
            and any(node in self.activations for node in crossing)
            and not any(self.data_until.get(node, 0) > place for node in crossing)
            and not self._is_torn(crossing, place)
            and all(can_be_rows(self.facts.numbers[n][0]) for n in self.untold(place))
        )

    def fingerprint(self, place: int) -> Any:
        """Equal for two places where the same memory crosses and the same parameters are behind."""
        facts = self.facts
        memory = {(facts.storages[n], facts.tensors[n][0].numel()) for n in self.program.frontier(place)}
        return frozenset(memory), self._targets_until[place]

    @cached_property
    def _targets_until(self) -> list[int]:
        """How many of the model's modules and tensors with state the operations up to each place use."""
        seen: set[str] = set()
        counts = [0]
        for node in self.operations:
            if node in self.stateful:
                seen.add(str(node.target))
            counts.append(len(seen))
        return counts

    def _is_torn(self, crossing: Sequence[fx.Node], place: int) -> bool:
        """Whether two values that cross share memory that is changed later: apart they would differ."""
        facts, at = self.facts, self.positions
        later = [n for n in crossing if n in facts.changed_by and at[facts.changed_by[n]] > place]
        touched = {facts.storages[n] for n in later}
        return sum(facts.storages[n] in touched for n in crossing) > len(touched)

    def untold(self, place: int) -> list[fx.Node]:
        """Numbers that are needed behind a place and that nothing which crosses there tells."""
        crossing = self.program.frontier(place)
        needed = [number for number, until in self._number_uses.items() if until > place]
        return [number for number in needed if not self.program.can_tell(number, place, crossing)]

    @cached_property
    def _last_tensor(self) -> int:
        """The place of the last operation that makes a tensor: behind it, nothing is left to compute."""
        return max(self.positions[node] for node in self.facts.tensors)

    @cached_property
    def _number_uses(self) -> Mapping[fx.Node, int]:
        """The last place where each number is used for something other than another number."""
        numbers, program = self.facts.numbers, self.program
        uses: dict[fx.Node, int] = {}
        for number in numbers:
            for user in number.users:
                if user not in numbers:
                    known = user in self.replicable
                    until = program.last_use(user) if known else program.layer(user)
                    uses[number] = max(uses.get(number, 0), until)
        return uses

    def segments(self, cuts: Sequence[int]) -> list[list[fx.Node]]:
        """The operations between the cuts, without those that either side computes for itself."""
        bounds = pairwise([0, *cuts, len(self.operations)])
        own = [n not in self.replicable for n in self.operations]
        return [list(compress(self.operations[a:b], own[a:b])) for a, b in bounds]


def find_cuts(train: Places, evaluate: Places, blocks: frozenset[str] | None) -> tuple[list[int], list[int]]:
    """The places of all cuts, in train and in eval mode; ``blocks`` are None for the finest granularity."""
    partner = _partners(train, evaluate)
    possible = [
        place
        for place in range(1, len(train.operations))
        if place in partner
        and train.is_possible(place)
        and (evaluate is train or evaluate.is_possible(partner[place]))
    ]
    if blocks is not None:
        possible = _best_between_blocks(train, blocks, possible)
    # Of neighbours where the same crosses and the same is behind, the last.
    found = sorted({train.fingerprint(place): place for place in possible}.values())
    return found, [partner[place] for place in found]


def _best_between_blocks(places: Places, blocks: frozenset[str], possible: Sequence[int]) -> list[int]:
    placed = enumerate(places.operations, start=1)
    calls = [place for place, node in placed if node.op == "call_module" and node.target in blocks]
    chosen = []
    for low, high in pairwise(calls):
        between = [p for p in possible if low <= p < high]
        if between:
            # One activation rather than several; the least that crosses; and the latest of equals, so that
            # operations between blocks go with the block before them.
            chosen.append(min(between, key=lambda p: (places.activations_at(p) > 1, places.bits(p), -p)))
    return chosen


def _partners(train: Places, evaluate: Places) -> Mapping[int, int]:
    """For places in the train graph the same place in the eval graph."""
    one, other = _signature(train.operations), _signature(evaluate.operations)
    if one == other:
        return {place: place for place in range(1, len(one) + 1)}
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return {b.a + k + 1: b.b + k + 1 for b in blocks for k in range(b.size)}


def _signature(operations: Sequence[fx.Node]) -> list[tuple[str, str]]:
    return [(node.op, str(getattr(node.target, "__name__", node.target))) for node in operations]


def grouped(places: Places, cuts: Sequence[int], expected: tuple[Lengths, ...]) -> Program:
    """The program with layers between the cuts, for inputs of the expected shapes."""
    layer_of = {
        node: 0 if place == 0 else 1 + bisect_left(cuts, place) for node, place in places.positions.items()
    }
    return replace(places.program, layer_of=layer_of, expected=expected)


def name_layers(segments: Sequence[Sequence[fx.Node]], stateful: frozenset[fx.Node]) -> tuple[Layer, ...]:
    """Name each run of operations after what it ends with, or after the part of the model that it is.

    Modules with something to learn or to keep give the name, where there are any.
    """
    calls = [_calls(segment, stateful) for segment in segments]
    totals = Counter(part for inside in calls for path in inside for part in _ancestors(path))
    names = [_name(segment, inside, totals) for segment, inside in zip(segments, calls, strict=True)]
    seen, layers = Counter[str](), list[Layer]()
    for name in names:
        seen[name] += 1
        # Layers of the same name are told apart: relu, relu@2.
        layers.append(Layer(name if seen[name] == 1 else f"{name}@{seen[name]}"))
    return tuple(layers)


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
