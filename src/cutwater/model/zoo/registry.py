"""Models by name, and the user's own as "package.module:function"."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, NamedTuple

from torch import Tensor, nn

from cutwater.base.errors import ModelError, suggest
from cutwater.base.kinds import Whole
from cutwater.base.usercode import blamed, find
from cutwater.model.zoo import efficientnet, inputs, resnet, small, transformers
from cutwater.model.zoo.inputs import InputSpec, parse_input

Builder = Callable[..., nn.Module]


class ZooModel(NamedTuple):
    """One model of the zoo."""

    builder: Builder
    kind: str = "floats"
    """What a sample holds: "floats" or "tokens"."""


_MODELS: Mapping[str, ZooModel] = {
    "cnn": ZooModel(small.cnn),
    "efficientnet_v2_l": ZooModel(efficientnet.efficientnet_v2_l),
    "efficientnet_v2_m": ZooModel(efficientnet.efficientnet_v2_m),
    "efficientnet_v2_s": ZooModel(efficientnet.efficientnet_v2_s),
    "mlp": ZooModel(small.mlp),
    "resnet18": ZooModel(resnet.resnet18),
    "resnet34": ZooModel(resnet.resnet34),
    "resnet50": ZooModel(resnet.resnet50),
    "text_transformer": ZooModel(transformers.text_transformer, kind="tokens"),
    "vit_tiny": ZooModel(transformers.vit_tiny),
}


def names() -> list[str]:
    """The models that can be built by name."""
    return sorted(_MODELS)


def is_user_model(name: str) -> bool:
    """Whether the name stands for a user's function, "package.module:function"."""
    return ":" in name


def build(
    name: str, input: str | InputSpec = "1x28x28", classes: int | None = 10, **options: Any
) -> nn.Module:
    """A model with fresh weights: one of the zoo, or what "package.module:function" returns.

    A zoo model is an nn.Sequential whose direct children are the layers w(1)…w(L); options are its own
    keyword arguments, such as ``depth=24``. A user's function is called with as much of ``input`` (the shape
    of one sample, a tuple) and ``classes`` as it takes, and with the options. Weights come from torch's
    generator on the current device, so build inside ``torch.device("meta")`` to have none at all.
    """
    spec = parse_input(input)
    if is_user_model(name):
        return _build_user(name, spec, classes, options)
    builder = _model(name).builder
    classes = Whole(1).check(classes, f"classes of {name}", ModelError)
    taken = signature(builder).parameters.values()
    known = [one.name for one in taken if one.kind is Parameter.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise ModelError(f"{name} has no option {option!r}; {suggest(option, known)}")
    return _call(name, builder, {"input": spec, "classes": classes, **options})


def example_input(
    name: str, input: str | InputSpec = "1x28x28", batch: int = 1, *, device: str = "cpu", **options: Any
) -> Tensor | dict[str, Tensor]:
    """A batch that the model takes, the same numbers on every call; ``options`` are those of the model.

    A user's model gets token ids for a single size ("128") and numbers for anything else, unless the input
    says which: "tokens:128" or "floats:128". Inputs with names ("input_ids=128,attention_mask=128") are a
    dict.
    """
    spec = parse_input(input)
    own = is_user_model(name)
    kind = spec.resolved(None if own else _model(name).kind)
    vocabulary = options.get("vocabulary", 2 if own else transformers.VOCABULARY)
    if spec.named:
        return inputs.draw_named(spec, batch, vocabulary, device)
    return inputs.draw(spec, kind, batch, vocabulary, device)


def _model(name: str) -> ZooModel:
    if name not in _MODELS:
        raise ModelError(
            f"there is no model {name!r}; {suggest(name, _MODELS)}; your own is 'package.module:function'"
        )
    return _MODELS[name]


def _build_user(name: str, spec: InputSpec, classes: int | None, options: Mapping[str, Any]) -> nn.Module:
    function = find(name, "model", ModelError)
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):  # some builtins don't say what they take
        parameters = signature(lambda: None).parameters
    anything = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    offered = {"input": spec.shape, "classes": classes}
    taken = {key: value for key, value in offered.items() if anything or key in parameters}
    module = _call(name, function, {**taken, **options})
    if not isinstance(module, nn.Module):
        raise ModelError(f"{name} returned {type(module).__name__}, but must return a torch.nn.Module")
    return module


def _call(name: str, function: Builder, arguments: Mapping[str, Any]) -> nn.Module:
    with blamed(ModelError, lambda said: f"{name} can't be built: {said}"):
        return function(**arguments)
