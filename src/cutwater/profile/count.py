"""Count what every cut of a model costs, without ever allocating the model (paper, Sec. IV-A).

FLOPs, smashed data and gradients are for one sample. Client and server add up to the whole model's at every
cut (see :mod:`cutwater.profile.walk`), so that Γ is one number. Memory is for a whole mini-batch.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from cutwater.base.errors import ModelError, suggest
from cutwater.base.kinds import Whole
from cutwater.model import zoo
from cutwater.model.discover.layered import layered as discover
from cutwater.model.layers import Layered
from cutwater.model.traffic import tensor_bytes
from cutwater.profile.flops import EXACT, PAPER, Formulas
from cutwater.profile.optimizers import OPTIMIZER_STATE
from cutwater.profile.options import check_option
from cutwater.profile.values import Cut, Profile, SharedWeight
from cutwater.profile.walk import LayerCost, first_tensor, naming, walk

PAPER_KAPPA = 4.7
"""κ = BP/FP, which the latencies in the paper's figures follow from."""
MOST_KAPPA = 1e6
"""Far beyond any model, and safe to multiply and to square."""
MOST_SAMPLES = 10**9
"""Of a mini-batch, as in a session; more is a slip of the pen."""
_BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
COUNTERS: Mapping[str, Formulas] = {"exact": EXACT, "paper": PAPER}


def profile_model(
    name: str,
    input: str = "1x28x28",
    classes: int | None = 10,
    *,
    count: str = "exact",
    kappa: float | None = None,
    batch_size: int = 32,
    optimizer: str = "sgd",
    autocast: str | None = None,
    **options: Any,
) -> Profile:
    """The profile of a model by name (see :func:`cutwater.build`), built without memory for its weights.

    >>> profile = profile_model("resnet18", input="3x32x32")
    >>> len(profile), profile.total_bits // 32
    (10, 11181642)
    """
    check_settings(count, kappa, batch_size, optimizer)
    for option in options:
        check_option(option, f"option {option!r}")
    spec = zoo.parse_input(input)

    def on(device: str) -> Profile:
        layered, example = load_model(name, spec, classes, batch_size, device=device, **options)
        return profile_layered(
            layered,
            example,
            count=count,
            kappa=kappa,
            optimizer=optimizer,
            autocast=autocast,
            model=name,
            input=str(spec),
            classes=None if classes is None else Whole(0).check(classes, "classes", ModelError),
        )

    if not zoo.is_user_model(name):
        return on("meta")
    try:
        return on("meta")
    except Exception:
        # A user's code may want to see numbers; what fails with real ones is the error to report.
        return on("cpu")


def load_model(
    name: str,
    input: str | zoo.InputSpec,
    classes: int | None,
    batch_size: int,
    *,
    device: str = "cpu",
    **options: Any,
) -> tuple[Layered, torch.Tensor | dict[str, torch.Tensor]]:
    """A model by name as layers, and a batch for it."""
    with torch.device(device):
        module = zoo.build(name, input, classes, **options)
        with naming(f"a batch of {batch_size} samples of {input} can't be made"):
            example = zoo.example_input(name, input, batch_size, device=device, **options)
        return discover(module, example), example


def profile_layered(
    layered: Layered,
    example_inputs: Any,
    *,
    count: str = "exact",
    kappa: float | None = None,
    optimizer: str = "sgd",
    autocast: str | None = None,
    model: str | None = None,
    input: str | None = None,
    classes: int | None = None,
) -> Profile:
    """The profile of a model as layers; the first dimension of the examples is the batch size.

    ``autocast`` is the session's. The model stays as it is: weights, gradients, running statistics and mode.
    """
    first = first_tensor(example_inputs)
    batch = first.shape[0]
    check_settings(count, kappa, batch, optimizer)
    costs = walk(layered, example_inputs, COUNTERS[count], autocast)
    backward, ratio = _backward_flops(costs, count, kappa)
    return Profile(
        model=model or type(layered.module).__name__,
        input=input or "x".join(map(str, first.shape[1:])),
        classes=classes,
        count=count,
        kappa=ratio,
        batch_size=batch,
        optimizer=optimizer,
        cuts=_cuts(layered, costs, backward, batch, OPTIMIZER_STATE[optimizer], buffers=count != "paper"),
        shared=_shared(layered),
        batch_norm=_batch_norm(layered),
    )


def check_settings(count: str, kappa: float | None, batch_size: int, optimizer: str) -> None:
    """Refuse settings that mean nothing, before any work is done."""
    if count not in COUNTERS:
        raise ModelError(f"there is no way of counting named {count!r}; {suggest(count, COUNTERS)}")
    if optimizer not in OPTIMIZER_STATE:
        raise ModelError(f"there is no optimizer {optimizer!r}; {suggest(optimizer, OPTIMIZER_STATE)}")
    Whole(1, MOST_SAMPLES).check(batch_size, "batch size", ModelError)
    if kappa is None:
        return
    if count == "exact":
        raise ModelError(
            f"kappa is {kappa}, but the exact count finds it itself: use it with the paper's count"
        )
    if not 0 < kappa <= MOST_KAPPA:
        raise ModelError(
            f"kappa is {kappa}, but must be a finite number above zero, {MOST_KAPPA:,.0f} at most"
        )


def _backward_flops(costs: Sequence[LayerCost], count: str, kappa: float | None) -> tuple[list[float], float]:
    """B of each layer and κ: assumed as in eq. (24), or counted."""
    if count == "paper":
        ratio = PAPER_KAPPA if kappa is None else kappa
        return [ratio * cost.forward_flops for cost in costs], ratio
    backward = [float(cost.backward_flops) for cost in costs]
    forward = sum(cost.forward_flops for cost in costs)
    return backward, sum(backward) / forward if forward else 0.0


def _cuts(
    layered: Layered,
    costs: Sequence[LayerCost],
    backward: Sequence[float],
    batch: int,
    state: int,
    *,
    buffers: bool,
) -> tuple[Cut, ...]:
    """Sums over layers 1..l and l+1..L (eq. (22))."""
    forwards = list(accumulate(cost.forward_flops / batch for cost in costs))
    backwards = list(accumulate(flops / batch for flops in backward))
    trainable = list(accumulate(cost.trainable_bits for cost in costs))
    weights = list(accumulate(cost.weight_bits for cost in costs))
    buffered = list(accumulate(cost.buffer_bits if buffers else 0 for cost in costs))
    frozen = list(accumulate(cost.frozen_bits for cost in costs))
    varies = list(accumulate(cost.varies or cost.gradient_bits > 0 for cost in costs))
    return tuple(
        Cut(
            cut=index + 1,
            name=layer.name,
            stage=layer.stage,
            client_bits=trainable[index],
            client_forward_flops=forwards[index],
            client_backward_flops=backwards[index],
            server_forward_flops=forwards[-1] - forwards[index],
            server_backward_flops=backwards[-1] - backwards[index],
            smashed_bits=-(-cost.output_bits // batch),
            gradient_bits=-(-cost.gradient_bits // batch),
            client_memory_bits=weights[index] + (1 + state) * trainable[index] + cost.held_bits,
            ruled_out=layered.ruled_out.get(index + 1),
            weight_bits=weights[index],
            buffer_bits=buffered[index],
            frozen_bits=frozen[index],
            crossing=cost.crossing,
            repeats=not varies[index] and cost.crossing is not None and index + 1 < len(costs),
        )
        for index, (layer, cost) in enumerate(zip(layered.layers, costs, strict=True))
    )


def _shared(layered: Layered) -> tuple[SharedWeight, ...]:
    module = layered.module
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return tuple(
        SharedWeight(each.name, each.layers, 8 * tensor_bytes([tensors[each.name]]), each.learns)
        for each in layered.shared
    )


def _batch_norm(layered: Layered) -> bool:
    """Whether a module normalises by the statistics of its batch; one that stays in eval mode does not."""
    modules = layered.module.named_modules()
    return any(isinstance(module, _BATCH_NORM) and name not in layered.still for name, module in modules)
