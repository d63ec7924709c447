"""Trace the glue between a model's blocks with torch.fx.

fx runs the model's own forward with stand-ins for tensors and writes down every operation. Blocks stay one
call each. What fx can't follow (a decision that depends on a tensor, say) raises; nothing is ever guessed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.proxy import TraceError

from cutwater.model.discover.example import Example
from cutwater.model.discover.own_functions import as_function, autograd_functions_kept
from cutwater.model.discover.unchanged import untouched
from cutwater.model.graph.nested import Builder, all_leaves, is_special
from cutwater.model.graph.program import NO_GRAD, SCOPE
from cutwater.model.randomness import generator_states


def trace_fx(
    module: nn.Module, examples: Sequence[Example], blocks: frozenset[str], training: bool
) -> fx.Graph:
    """The graph of a model's forward in train or eval mode; the first example says what it takes."""
    with untouched(module, training), autograd_functions_kept(_keep_call):
        before = generator_states()
        graph: fx.Graph = _Tracer(examples[0], blocks).trace(module)
        if generator_states() != before:
            raise DrawError("")
    return graph


class DrawError(TraceError):
    """A random number that was drawn while tracing would be the same in every step from then on."""

    def __init__(self, path: str) -> None:
        super().__init__("its forward draws a random number that fx can't see")
        self.path = path


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True

    def __init__(self, example: Example, blocks: frozenset[str]) -> None:
        super().__init__()
        self.example, self.blocks = example, blocks
        self.grad_enabled = torch.is_grad_enabled()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.blocks

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        before = generator_states()
        value = super().call_module(m, forward, args, kwargs)
        if generator_states() != before:
            raise DrawError(self.path_of_module(m))
        return value

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        inputs = [self.create_proxy("placeholder", name, (), {}) for name in self.example.names]
        root = self.root
        assert isinstance(root, nn.Module)

        def run(*values: Any) -> Any:
            return self.example.call(root.forward, values)

        return run, inputs

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, torch.Tensor) and not self._belongs_to_model(a):
            raise TraceError("the forward makes a tensor that depends on no input")
        if type(a) not in (tuple, list, dict) and is_special(a):
            return self.create_node(
                "call_function", Builder(a), tuple(map(self.create_arg, all_leaves(a))), {}
            )
        return super().create_arg(a)

    def create_node(self, kind: str, *args: Any, **kwargs: Any) -> fx.Node:
        node: fx.Node = super().create_node(kind, *args, **kwargs)
        if self.grad_enabled and not torch.is_grad_enabled():
            node.meta[NO_GRAD] = True
        node.meta[SCOPE] = self.scope.module_path
        return node

    def _belongs_to_model(self, tensor: torch.Tensor) -> bool:
        root = self.root
        assert isinstance(root, nn.Module)
        named = [*root.parameters(), *root.buffers()]
        return any(tensor is known for known in named) or tensor in self.tensor_attrs


def _keep_call(cls: type[torch.autograd.Function], args: Any, kwargs: Any) -> tuple[bool, Any]:
    """A call of a user's own autograd function is one node, with its own backward."""
    proxy = _first_proxy((*args, *kwargs.values()))
    if proxy is None:
        return False, None
    return True, proxy.tracer.create_proxy("call_function", as_function(cls), args, kwargs)


def _first_proxy(values: Sequence[Any]) -> fx.Proxy | None:
    for value in values:
        if isinstance(value, fx.Proxy):
            return value
        if isinstance(value, (tuple, list)) and (found := _first_proxy(value)) is not None:
            return found
    return None
