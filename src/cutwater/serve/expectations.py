"""What crosses the cuts of a session, as both ends know it before anything comes.

Both look at what the client's layers make of a few samples. Where sizes of samples vary, these are the
largest mini-batch that there can be and smaller ones: a size of a tensor that differs between them varies,
and may be anything up to that of the largest.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cutwater.base.errors import RunError
from cutwater.base.usercode import told
from cutwater.data.samples import Batch
from cutwater.federate.study import Study
from cutwater.model.at_cut import as_tuple
from cutwater.model.layers import Layered
from cutwater.model.precision import autocast
from cutwater.model.randomness import RandomStream
from cutwater.stream.expectation import Expectation
from cutwater.stream.tensors import TensorSpec
from cutwater.train.session import Task, coders
from cutwater.train.step import Tensors


def expectation(study: Study, task: Task) -> Expectation:
    """What crosses the cut, or both cuts, in this session, found out by both ends on their own."""
    smashed, output, labels = _example(study.model, study, task.cut, task.second_cut)
    up, down = coders(task)
    classes = study.data.classes
    if classes is not None and not labels.dtype.is_floating_point:
        labels = replace(labels, values=(0, classes - 1))
    return Expectation(
        batches=tuple(study.batch_sizes(task.client)),
        smashed=smashed.specs,
        labels=None if task.second_cut else labels,
        gradients=smashed.wanted,
        output=output.specs,
        output_gradients=output.wanted,
        micro_batches=study.session.micro_batches,
        overlapped=task.schedule == "overlapped",
        once=task.rows_once,
        up=up,
        down=down,
    )


class _Crossing(NamedTuple):
    """What crosses a cut, and what of it needs gradients."""

    specs: tuple[TensorSpec, ...] = ()
    wanted: tuple[TensorSpec, ...] = ()


@lru_cache(maxsize=128)
def _example(
    model: Layered, study: Study, cut: int, second_cut: int
) -> tuple[_Crossing, _Crossing, TensorSpec]:
    """Smashed data, what the server's layers make of it (with a second cut), and labels."""
    # Copies, because even a trial run moves running statistics.
    client, server = (copy.deepcopy(half).train() for half in model.split(cut, second_cut))
    given, made = list[Tensors](), list[Tensors]()
    for batch in study.example_batches:
        smashed = _tried(study, client, batch, batch.inputs)
        given.append(as_tuple(smashed))
        made.append(as_tuple(_tried(study, server, batch, (smashed,))) if second_cut else ())
    labels = [batch.labels for batch in study.example_batches]
    return _crossing("smashed", given), _crossing("output", made), _spec("labels", labels)


def _tried(study: Study, half: nn.Module, batch: Batch, inputs: tuple[Any, ...]) -> Any:
    try:
        with RandomStream(0, 0), autocast(study.session.autocast, batch.inputs):
            return half(*inputs)
    except Exception as error:  # whatever a model makes of a size that it was not made for
        if study.data.longest is None:
            raise
        raise RunError(
            f"longest is {study.data.longest}, but the model can't take samples of that size "
            f"({told(error)}): set longest to what it can take"
        ) from error


def _crossing(name: str, seen: Sequence[Tensors]) -> _Crossing:
    specs = [_spec(f"{name}.{place}", each) for place, each in enumerate(zip(*seen, strict=True))]
    pairs = zip(specs, seen[0], strict=True)
    return _Crossing(tuple(specs), tuple(spec for spec, tensor in pairs if tensor.requires_grad))


def _spec(name: str, seen: Sequence[Tensor]) -> TensorSpec:
    """A tensor that crosses, as it was seen with samples of several sizes."""
    shapes = torch.tensor([tuple(tensor.shape[1:]) for tensor in seen], dtype=torch.int64)
    most, least = shapes.amax(dim=0), shapes.amin(dim=0)
    varies = tuple((most > least).nonzero().flatten().tolist())
    return TensorSpec(name, seen[0].dtype, tuple(most.tolist()), varies=varies)
