"""Values by name and the model that takes them: what its forward does not know is left out, as Hugging
Face's Trainer does, and the rest is handed on in the order in which the model was traced."""

from inspect import Parameter, signature

from torch import nn

from cutwater.base.errors import DataError
from cutwater.data.samples import Data
from cutwater.model.layers import Layered


def fitted(data: Data, model: nn.Module) -> Data:
    """The data with those of its named inputs that the model takes."""
    if data.names is None:
        return data
    taken = [name for name in data.names if name in _accepted(model, data.names)]
    if not taken:
        raise DataError(
            f"{data.name!r} has {', '.join(map(repr, data.names))}, but {type(model).__name__}.forward takes "
            "none of them: give the values of a sample the names that it has for them"
        )
    return data if len(taken) == len(data.names) else data.with_inputs(taken)


def in_order(data: Data, model: Layered) -> Data:
    """The data with its named inputs in the order in which the layers take them."""
    if data.names is None:
        return data
    nodes = model.train_program.graph.nodes
    wanted = [str(node.target) for node in nodes if node.op == "placeholder"]
    if len(wanted) == 1 and len(data.names) == 1:  # a row of layers calls its one input what it likes
        return data
    if set(wanted) != set(data.names):
        raise DataError(
            f"the layers take {', '.join(wanted)}, but the samples of {data.name!r} have "
            f"{', '.join(data.names)}: take the model apart with these, by name"
        )
    return data if tuple(wanted) == data.names else data.with_inputs(wanted)


def _accepted(model: nn.Module, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that a model's forward takes; of one that hands on all, that of the model inside."""
    parameters = signature(model.forward).parameters
    hands_on = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    inside = getattr(model, "get_base_model", None)  # of peft's, which are around another
    if hands_on and callable(inside):
        return (*parameters, *_accepted(inside(), names))
    if hands_on and len(parameters) <= 2:  # those that take anything: *args and **kwargs
        return names  # it says nothing of what it takes
    return tuple(parameters)
