"""The blocks of a model: the submodules that are never looked into, so that cuts fall between them.

A model's author groups it already: stages in containers, blocks in stages. Tracing keeps a block as one call,
so whatever it does inside (modes, hooks, its own autograd, decisions that depend on the data) stays as it is.
"""

from collections.abc import Iterator

from torch import nn

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
ASSEMBLIES = (
    nn.Transformer,
    nn.TransformerEncoder,
    nn.TransformerDecoder,
    nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
)
"""Modules of torch that are made of others; all other modules of torch are one operation each."""


def find_blocks(root: nn.Module) -> frozenset[str]:
    """Names of the blocks: what lies below containers, and what holds no containers itself."""
    return frozenset(_blocks(root, "", inside_container=is_container(root)))


def find_operations(root: nn.Module) -> frozenset[str]:
    """Names of the modules of torch, which are one operation each: the finest blocks there are."""
    return frozenset(name for name, part in root.named_modules() if is_operation(part) and part is not root)


def find_glue(root: nn.Module, blocks: frozenset[str]) -> frozenset[str]:
    """Blocks of a user's own that hold nothing to learn, such as rotary position embeddings."""
    parts = {name: root.get_submodule(name) for name in blocks}
    return frozenset(
        name for name, part in parts.items() if not is_operation(part) and not list(part.parameters())
    )


def is_operation(module: nn.Module) -> bool:
    """Whether a module is one operation of torch, such as a convolution."""
    own = type(module).__module__.startswith(("torch.nn.", "torch.ao.nn."))
    return own and not isinstance(module, (*CONTAINERS, *ASSEMBLIES))


def is_container(module: nn.Module) -> bool:
    """Whether a module is one of torch's own containers, and not a class made from one."""
    return type(module) in CONTAINERS


def is_stage(module: nn.Module) -> bool:
    """Whether an element of a container is itself a row of blocks: several modules of one class of its own.

    The stages of Swin, ConvNeXt and DenseNet are; a block that holds a row of different modules, as the
    inverted residuals of MobileNet do, is not.
    """
    if type(module) is nn.Sequential:
        return any(not is_operation(child) for child in module)
    if is_container(module):
        return True
    rows = [part for part in (module, *module.children()) if isinstance(part, CONTAINERS)]
    return any(_is_row(row) for row in rows)


def _is_row(container: nn.Module) -> bool:
    members = list(container.children())
    if not members or len({type(member) for member in members}) != 1:
        return False
    return not is_operation(members[0]) and not isinstance(members[0], nn.Sequential)


def _blocks(module: nn.Module, path: str, inside_container: bool) -> Iterator[str]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if _is_descended(child, inside_container):
            yield from _blocks(child, inner, is_container(child))
        else:
            yield inner


def _is_descended(child: nn.Module, inside_container: bool) -> bool:
    if is_operation(child):
        return False
    if inside_container:
        return is_stage(child)
    return any(is_container(part) or is_stage(part) for part in child.modules())
