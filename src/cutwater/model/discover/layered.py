"""Find the layers of any nn.Module (paper, Sec. III-B).

Of a row of modules they are its members. Of everything else they come from the model's own code, traced with
its blocks as they are (fx first, torch.export where fx can't follow), in train and in eval mode. A trace that
does not compute what the model computes, bit for bit, at several batch sizes, is not used.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from cutwater.base.errors import ModelError
from cutwater.model.discover.blocks import find_blocks, find_glue, find_operations
from cutwater.model.discover.boundaries import Places, find_cuts, grouped
from cutwater.model.discover.chains import explicit_chain, is_row, row_of
from cutwater.model.discover.culprit import inner_culprit, refusal
from cutwater.model.discover.example import Example, read_example
from cutwater.model.discover.flow import analyse, hoist
from cutwater.model.discover.naming import name_layers
from cutwater.model.discover.observe import observe, remove_unused, spread_groups
from cutwater.model.discover.same_outputs import MismatchError, check_runs, verify
from cutwater.model.discover.trace_export import trace_export, trace_export_unseen
from cutwater.model.discover.trace_fx import trace_fx
from cutwater.model.discover.unchanged import in_mode, untouched
from cutwater.model.graph.program import NO_GRAD, Forward, Program
from cutwater.model.layers import Layered

GRANULARITIES = ("block", "fine")
TraceWay = Callable[[nn.Module, Sequence[Example], frozenset[str], bool], fx.Graph]


def layered(
    module: nn.Module | Sequence[nn.Module],
    example_inputs: Any = None,
    *,
    layers: Sequence[nn.Module | Callable[[Any], Any] | str] | None = None,
    granularity: str = "block",
) -> Layered:
    """The layers of a model, to be split anywhere between them.

    ``example_inputs`` is a tensor, a tuple of tensors, or a dict of tensors by keyword; the client's half
    takes its inputs the same way. Of nn.Sequential the layers are its members, and no example is needed.

    ``granularity`` "block" offers a cut between two of the model's own blocks where one activation crosses;
    "fine" offers one behind every operation, where several tensors may cross as a tuple.

    ``layers`` hands over the layers of a model that can't be traced, in the order they are called: its
    submodules, and functions without parameters in between.
    """
    if granularity not in GRANULARITIES:
        raise ModelError(f"granularity is {granularity!r}, but must be 'block' or 'fine'")
    if isinstance(module, torch.jit.ScriptModule):
        raise ModelError(
            f"{module.original_name} is a scripted module, which can't be taken apart: give the nn.Module "
            "that it was made from"
        )
    if layers is not None or not isinstance(module, nn.Module) or type(module) is nn.ModuleList:
        return explicit_chain(module, layers, example_inputs)
    if is_row(module) and granularity == "block":
        return row_of(module, example_inputs)
    if example_inputs is None:
        raise ModelError(
            f"{type(module).__name__} is traced on example inputs, but none are given: "
            "pass a tensor, a tuple of tensors or a dict of tensors by keyword"
        )
    return _Search(module, read_example(module, example_inputs), granularity).run()


@dataclass(frozen=True)
class _Attempt:
    trace: TraceWay
    blocks: frozenset[str]
    widens: bool = False
    """Whether a module that can't be traced becomes a block of its own, or ends the attempt."""


class _Search:
    """Tries one way of tracing after the other, until one holds."""

    def __init__(self, module: nn.Module, example: Example, granularity: str) -> None:
        self.module, self.granularity = module, granularity
        self.blind = False
        self.example = example
        if example.batch < 2 and self._runs(example.with_batch(2)):
            self.example = example.with_batch(2)  # a batch of one looks like no batch at all
        try:
            check_runs(module, self.example)
        except ModelError:
            # Without contents, a model that looks at them (at a mask, say) can be traced, but not run.
            if not all(value.is_meta for value in example.values):
                raise
            self.blind = True
        single, larger = self.example.with_batch(1), self.example.with_batch(self.example.batch + 1)
        self.checked = [self.example, *(e for e in (larger, single) if self._runs(e))]
        shorter = self.example.shortened()
        self.shorter = shorter if shorter is not None and self._runs(shorter) else None
        self.sizes = [e for e in (*self.checked, self.shorter) if e is not None and e is not single]

    def run(self) -> Layered:
        """The layers by the first attempt that succeeds."""
        by_fx: list[Exception] = []
        by_export: list[Exception] = []
        for attempt in self._attempts():
            if not self._is_worth_trying(attempt, [*by_export, *by_fx]):
                continue
            try:
                return self._layers(attempt)
            except Exception as failure:
                (by_fx if attempt.trace is trace_fx else by_export).append(failure)
        # What export says comes first, as fx takes any question about a shape for one about data.
        raise refusal(self.module, [*by_export, *by_fx]) from by_export[0]

    def _attempts(self) -> Iterator[_Attempt]:
        blocks = find_blocks(self.module) if self.granularity == "block" else find_operations(self.module)
        glue = find_glue(self.module, blocks)
        yield _Attempt(trace_fx, blocks)
        yield _Attempt(trace_export_unseen, blocks - glue)
        yield _Attempt(trace_export, blocks - glue)
        if glue:
            yield _Attempt(trace_export, blocks)
        yield _Attempt(trace_export, blocks - glue, widens=True)
        yield _Attempt(trace_fx, blocks, widens=True)

    def _is_worth_trying(self, attempt: _Attempt, failures: Sequence[Exception]) -> bool:
        return not attempt.widens or any(inner_culprit(f, self.module, attempt.blocks) for f in failures)

    def _layers(self, attempt: _Attempt) -> Layered:
        train, evaluate, blocks = self._graphs(attempt)
        self._verify(_whole(train), _whole(evaluate), self.checked)
        seen = self._varied(train, evaluate)
        train_places = self._places(train, seen, training=True)
        same = evaluate is train
        eval_places = train_places if same else self._places(evaluate, seen, training=False)
        cuts = find_cuts(train_places, eval_places, blocks if self.granularity == "block" else None)
        if not cuts and attempt.widens:
            raise RuntimeError("what can't be traced leaves no place for a cut")
        segments = train_places.segments([place for place, _ in cuts])
        names = name_layers(segments, train_places.flow.stateful)
        train_program = grouped(train_places, [place for place, _ in cuts])
        eval_program = train_program if same else grouped(eval_places, [place for _, place in cuts])
        depth = len(names)
        train_forward = train_program.compile(0, depth)
        eval_forward = train_forward if same else eval_program.compile(0, depth)
        exact = self._verify(train_forward, eval_forward, [self.example])
        return Layered(self.module, names, train_program, eval_program, exact)

    def _graphs(self, attempt: _Attempt) -> tuple[fx.Graph, fx.Graph, frozenset[str]]:
        blocks = attempt.blocks
        while True:
            try:
                train, evaluate = (
                    _with_weights_at_their_use(attempt.trace(self.module, self.sizes, blocks, mode))
                    for mode in (True, False)
                )
                return train, train if _is_same(train, evaluate) else evaluate, blocks
            except Exception as failure:
                path = inner_culprit(failure, self.module, blocks) if attempt.widens else None
                if path is None:
                    raise
                blocks = frozenset(b for b in blocks if not b.startswith(f"{path}.")) | {path}

    def _verify(self, train: Forward, evaluate: Forward, examples: Sequence[Example]) -> bool:
        return verify(self.module, evaluate, train, examples, blind=self.blind)

    def _varied(self, train: fx.Graph, evaluate: fx.Graph) -> list[Example]:
        """Inputs of different sizes, from which to see what depends on which size."""
        if self.shorter is not None:
            try:
                self._verify(_whole(train), _whole(evaluate), [self.shorter])
            except MismatchError:
                return [e for e in self.sizes if e is not self.shorter]  # the trace holds for this size only
        return self.sizes

    def _places(self, graph: fx.Graph, examples: Sequence[Example], training: bool) -> Places:
        facts = observe(self.module, graph, examples, training)
        if spread_groups(graph, facts) | remove_unused(graph, facts):
            facts = observe(self.module, graph, examples, training)
        if hoist(self.module, graph, facts):
            facts = observe(self.module, graph, examples, training)
        return Places(analyse(self.module, graph, facts))

    def _runs(self, example: Example) -> bool:
        if self.blind:
            return True
        try:
            with untouched(self.module), in_mode(self.module, False), torch.no_grad():
                example.call(self.module)
        except Exception:
            return False
        return True


def _with_weights_at_their_use(graph: fx.Graph) -> fx.Graph:
    """Fetch each parameter and buffer where it is used, so that it belongs to the layer that uses it."""
    for node in list(graph.nodes):
        if node.op == "get_attr":
            for user in list(node.users):
                with graph.inserting_before(user):
                    own = graph.node_copy(node)
                user.replace_input_with(node, own)
            graph.erase_node(node)
    return graph


def _is_same(one: fx.Graph, other: fx.Graph) -> bool:
    """Whether two graphs do the same in the same order."""
    return _text(one) == _text(other)


def _whole(graph: fx.Graph) -> Forward:
    """A graph as one function of (module, *inputs)."""
    layers = {node: int(node.op != "placeholder") for node in graph.nodes if node.op != "output"}
    return Program(graph, layers).compile(0, 1)


def _text(graph: fx.Graph) -> list[str]:
    return [
        f"{node.format_node()} {node.args} {node.kwargs} {node.meta.get(NO_GRAD)}" for node in graph.nodes
    ]
