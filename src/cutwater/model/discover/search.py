"""Trace a model in one way after the other, until one holds.

A trace is used only where it computes what the model computes, bit for bit, in train and in eval mode, at
several batch sizes. Where it also does so at other lengths and resolutions, these are free; a size that is
not known to be right is refused later.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import fx, nn

from cutwater.base.errors import ModelError
from cutwater.model.at_cut import Lengths
from cutwater.model.discover.blocks import find_blocks, find_glue, find_operations
from cutwater.model.discover.boundaries import Places, find_cuts, grouped, name_layers
from cutwater.model.discover.culprit import inner_culprit
from cutwater.model.discover.example import Dim, Example, Variation, find_variations, unseen_lengths
from cutwater.model.discover.observe import observe, remove_unused
from cutwater.model.discover.only_tensors import ferry, spread_groups
from cutwater.model.discover.same_outputs import check_runs, verify
from cutwater.model.discover.trace_export import trace_export, trace_export_unseen
from cutwater.model.discover.trace_fx import trace_fx
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.nested import Builder
from cutwater.model.graph.program import NO_GRAD, Forward, Program
from cutwater.model.layers import Layered

ROUNDS = 4
"""A number that crosses may move a cut, behind which others are not told: so often is that seen to."""
TraceWay = Callable[[nn.Module, Sequence[Example], frozenset[str], bool], fx.Graph]


@dataclass(frozen=True)
class Attempt:
    """One way of tracing."""

    trace: TraceWay
    blocks: frozenset[str]
    widens: bool = False
    """Whether a module that can't be traced becomes a block of its own, or ends the attempt."""
    fixed: bool = False
    """Whether all sizes but the batch are the example's."""
    fine: bool = False
    """Whether cuts fall behind any operation."""


@dataclass(frozen=True)
class Found:
    """What an attempt led to."""

    layers: Layered
    free: frozenset[Dim]
    """Dimensions of the inputs in which it holds for other sizes."""

    @property
    def score(self) -> tuple[bool, int]:
        """How good it is."""
        return len(self.layers) > 1, len(self.free)


class Search:
    """The search for the layers of one model."""

    def __init__(self, module: nn.Module, example: Example, granularity: str) -> None:
        self.module, self.granularity = module, granularity
        self.blind = False
        self.failures: list[Exception] = []
        self.example = example
        if example.batch < 2 and self._runs(example.with_batch(2), modes=(False,)):
            self.example = example.with_batch(2)  # a batch of one looks like no batch at all
        try:
            check_runs(module, self.example)
        except ModelError:
            # Without contents, a model that looks at them (at a mask, say) can be traced, but not run.
            if not all(value.is_meta for value in example.values):
                raise
            self.blind = True
        single, larger = self.example.with_batch(1), self.example.with_batch(self.example.batch + 1)
        self.checked = [self.example, *(e for e in (larger, single) if self._runs(e, modes=(False,)))]
        self.batches = [e for e in self.checked if e is not single]
        varied = [unseen_lengths(self.example)] if self.blind else find_variations(self.example, self._runs)
        self.variations = [variation for variation in varied if variation is not None]

    def run(self) -> Layered | None:
        """The layers by the best attempt; None if all fail."""
        best: Found | None = None
        every = _dims(self.variations)
        for attempt in self._attempts():
            if best is not None and (attempt.widens or attempt.fixed or (best.score[0] and attempt.fine)):
                continue  # it is there for models that fail otherwise
            culprits = (inner_culprit(each, self.module, attempt.blocks) for each in self.failures)
            if attempt.widens and not any(culprits):
                continue
            try:
                found = self._layers(attempt)
            except Exception as failure:
                self.failures.append(failure)
                continue
            if best is None or found.score > best.score:
                best = found
            if best.score == (True, len(every)) or (best.score[0] and attempt.trace is not trace_fx):
                break  # another way of export has the same sizes in it
        return best.layers if best is not None else None

    def _attempts(self) -> Iterator[Attempt]:
        fine = self.granularity == "fine"
        operations = find_operations(self.module)
        blocks = operations if fine else find_blocks(self.module)
        glue = find_glue(self.module, blocks)
        yield Attempt(trace_fx, blocks, fine=fine)
        yield Attempt(trace_export_unseen, blocks - glue, fine=fine)
        yield Attempt(trace_export, blocks - glue, fine=fine)
        if glue:
            yield Attempt(trace_export, blocks, fine=fine)
        if any(variation.is_length for variation in self.variations):
            yield Attempt(trace_export_unseen, blocks - glue, fixed=True, fine=fine)
            yield Attempt(trace_export, blocks - glue, fixed=True, fine=fine)
        yield Attempt(trace_export, blocks - glue, widens=True, fine=fine)
        yield Attempt(trace_fx, blocks, widens=True, fine=fine)
        if not fine:
            yield Attempt(trace_fx, operations, fine=True)
            yield Attempt(trace_export_unseen, operations, fine=True)

    def _layers(self, attempt: Attempt) -> Found:
        train, evaluate, blocks = self._graphs(attempt)
        wholes = _whole(train), _whole(evaluate)
        self._verify(*wholes, self.checked)
        holding = [v for v in self.variations if not attempt.fixed and self._holds_for(v, *wholes)]
        seen = [*self.batches, *(v.examples[0] for v in holding)]
        same = evaluate is train
        for _ in range(ROUNDS):
            one = self._places(train, seen, training=True)
            other = one if same else self._places(evaluate, seen, training=False)
            cuts, eval_cuts = find_cuts(one, other, None if attempt.fine else blocks)
            ferried = self._ferry(one, cuts)
            if not same:
                ferried |= self._ferry(other, eval_cuts)
            if not ferried:
                break
        else:
            raise RuntimeError("its numbers can't be told behind a cut")
        if not cuts and attempt.widens:
            raise RuntimeError("what can't be traced leaves no place for a cut")
        names = name_layers(one.segments(cuts), one.stateful)
        expected = self._expected(holding)
        train_program = grouped(one, cuts, expected)
        eval_program = train_program if same else grouped(other, eval_cuts, expected)
        forward = train_program.compile(0, len(names))
        eval_forward = forward if same else eval_program.compile(0, len(names))
        # Torch takes other kernels for other sizes, so the same bits at one size are not enough.
        exact = all(self._verify(forward, eval_forward, [example]) for example in self.batches)
        return Found(Layered(self.module, names, train_program, eval_program, exact), _dims(holding))

    def _graphs(self, attempt: Attempt) -> tuple[fx.Graph, fx.Graph, frozenset[str]]:
        blocks = attempt.blocks
        varied = [v for v in self.variations if v.is_length and not attempt.fixed]
        examples = [self.example.freed(_dims(varied)), *self.batches[1:], *(v.examples[0] for v in varied)]
        while True:
            try:
                train, evaluate = (
                    _with_sources_at_their_use(attempt.trace(self.module, examples, blocks, mode))
                    for mode in (True, False)
                )
                return train, train if _is_same(train, evaluate) else evaluate, blocks
            except Exception as failure:
                path = inner_culprit(failure, self.module, blocks) if attempt.widens else None
                if path is None:
                    raise
                blocks = frozenset(b for b in blocks if not b.startswith(f"{path}.")) | {path}

    def _verify(self, train: Forward, evaluate: Forward, examples: Sequence[Example]) -> bool:
        return verify(self.module, train, evaluate, examples, blind=self.blind)

    def _holds_for(self, variation: Variation, train: Forward, evaluate: Forward) -> bool:
        """Whether a trace is right at other sizes."""
        try:
            self._verify(train, evaluate, variation.examples)
        except Exception:
            return False
        return True

    def _expected(self, holding: Sequence[Variation]) -> tuple[Lengths, ...]:
        """The shapes of inputs that the layers are right for."""
        alone = {next(iter(v.dims)) for v in holding if len(v.dims) == 1}
        together = {dim: f"n{number}" for number, v in enumerate(holding, start=1) for dim in v.dims}

        def length(index: int, dim: int, size: int) -> int | str | None:
            batch = dim == 0 and self.example.has_batch(index)
            return None if batch or (index, dim) in alone else together.get((index, dim), size)

        return tuple(
            tuple(length(index, dim, size) for dim, size in enumerate(value.shape))
            for index, value in enumerate(self.example.values)
        )

    def _places(self, graph: fx.Graph, examples: Sequence[Example], training: bool) -> Places:
        def observed() -> Places:
            return Places(self.module, graph, observe(self.module, graph, examples, training))

        found = observed()
        if spread_groups(graph, found.facts) | remove_unused(graph, found.facts):
            found = observed()
        return observed() if found.hoist() else found

    def _ferry(self, places: Places, cuts: Sequence[int]) -> bool:
        """Let the numbers cross that nothing tells behind these cuts; whether there are any."""
        numbers = dict.fromkeys(number for cut in cuts for number in places.untold(cut))
        if not numbers:
            return False
        ferry(places.graph, places.facts, self.example, numbers)
        return True

    def _runs(self, example: Example, modes: Sequence[bool] = (False, True)) -> bool:
        if self.blind:
            return True
        try:
            for training in modes:
                with untouched(self.module, training), torch.no_grad():
                    example.call(self.module)
        except Exception:
            return False
        return True


def _dims(variations: Sequence[Variation]) -> frozenset[Dim]:
    return frozenset[Dim]().union(*(variation.dims for variation in variations))


def _with_sources_at_their_use(graph: fx.Graph) -> fx.Graph:
    """Fetch each parameter and buffer where it is used, so that it belongs to the layer that uses it.

    What is only put together from other values (an output of a class of its own) is no different.
    """
    for node in reversed(list(graph.nodes)):
        if node.op == "get_attr" or isinstance(node.target, Builder):
            for user in list(node.users):
                with graph.inserting_before(user):
                    own = graph.node_copy(node)
                user.replace_input_with(node, own)
            graph.erase_node(node)
    return graph


def _is_same(one: fx.Graph, other: fx.Graph) -> bool:
    """Whether two graphs do the same in the same order."""

    def text(graph: fx.Graph) -> list[str]:
        return [
            f"{node.format_node()} {node.args} {node.kwargs} {node.meta.get(NO_GRAD)}" for node in graph.nodes
        ]

    return text(one) == text(other)


def _whole(graph: fx.Graph) -> Forward:
    """A graph as one function of (module, *inputs)."""
    layers = {node: int(node.op != "placeholder") for node in graph.nodes if node.op != "output"}
    return Program(graph, layers).compile(0, 1)
