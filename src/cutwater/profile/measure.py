"""Time forward and backward passes on this device: κ and its effective FLOPS (paper, Sec. V-A and Fig. 4)."""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from cutwater.base.errors import ModelError
from cutwater.base.kinds import Whole
from cutwater.model.layers import Layered
from cutwater.model.randomness import cuda_in_use
from cutwater.profile.flops import EXACT
from cutwater.profile.walk import backward, call, first_tensor, naming, walk

WARM_UP = 2
"""Passes that are not timed: the first ones also choose algorithms and allocate."""


@dataclass(frozen=True)
class Spread:
    """A measured amount: the median and the quartiles around it."""

    median: float
    low: float
    """A quarter of the measurements are below."""
    high: float
    """A quarter of the measurements are above."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of some measurements."""
        low, median, high = np.quantile(values, [0.25, 0.5, 0.75])
        return cls(float(median), float(low), float(high))


@dataclass(frozen=True)
class Measurement:
    """What training mini-batches of one model on one device takes."""

    device: str
    threads: int
    batch_size: int
    repetitions: int
    forward_seconds: Spread
    """FP of one mini-batch."""
    backward_seconds: Spread
    """BP of one mini-batch."""
    kappa: Spread
    """κ: backward over forward time, for each repetition (eq. (24))."""
    flops: Spread
    """Effective FLOPS: counted FLOPs of a mini-batch, forward and backward, over the time they took."""

    def to_json(self) -> dict[str, Any]:
        """For a JSON document."""
        return asdict(self)


def measure(
    layered: Layered,
    example_inputs: Any,
    repetitions: int = 20,
    *,
    flops_per_sample: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    after_each: Callable[[], object] = lambda: None,
) -> Measurement:
    """Time a copy of the model in training mode, on the device that it is on.

    ``flops_per_sample`` (Γ of a profile) says what the effective FLOPS are in terms of; without it they are
    counted exactly. Give the Γ of the profile that you plan with: then FLOPs over FLOPS is the time measured.
    ``after_each`` is called after each repetition, for a progress bar.
    """
    repetitions = check_repetitions(repetitions)
    first = first_tensor(example_inputs)
    batch = first.shape[0]
    if flops_per_sample is None:
        costs = walk(layered, example_inputs, EXACT)
        flops_per_sample = sum(cost.forward_flops + cost.backward_flops for cost in costs) / batch
    module = replace(layered, module=copy.deepcopy(layered.module).train()).split(len(layered)).client
    with torch.random.fork_rng(), naming("the model can't be measured"):
        for _ in range(WARM_UP):
            _time_once(module, example_inputs, clock)
        rounds = []
        for _ in range(repetitions):
            rounds.append(_time_once(module, example_inputs, clock))
            after_each()
    forward, backward = [pair[0] for pair in rounds], [pair[1] for pair in rounds]
    return Measurement(
        device=str(first.device),
        threads=torch.get_num_threads(),
        batch_size=batch,
        repetitions=repetitions,
        forward_seconds=Spread.of(forward),
        backward_seconds=Spread.of(backward),
        kappa=Spread.of([b / f for f, b in rounds]),
        flops=Spread.of([batch * flops_per_sample / (f + b) for f, b in rounds]),
    )


def check_repetitions(repetitions: int) -> int:
    """The number of repetitions, unless it measures nothing."""
    found: int = Whole(1).check(repetitions, "repetitions", ModelError)
    return found


def _time_once(module: nn.Module, inputs: Any, clock: Callable[[], float]) -> tuple[float, float]:
    """Seconds of one forward and of one backward pass."""
    module.zero_grad(set_to_none=True)
    start = _now(clock)
    output = call(module, inputs)
    middle = _now(clock)
    if not backward(output):
        raise ModelError(
            "no output of the model has a gradient, so no backward pass can be timed: let a parameter learn"
        )
    return middle - start, _now(clock) - middle


def _now(clock: Callable[[], float]) -> float:
    if cuda_in_use():
        torch.cuda.synchronize()  # calls return before the work is done
    return clock()
