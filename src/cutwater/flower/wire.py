"""Orders, weights and reports as Flower records: plain values and raw tensors, nothing pickled.

What arrives is checked against what the plan calls for, name by name, before it is used: Flower itself takes
any shape, any weight and any number for what it claims to be.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from cutwater.base.errors import EngineError
from cutwater.flower.failures import ForgottenError
from cutwater.plan.latency import PHASES
from cutwater.train.expected import from_raw, to_raw
from cutwater.train.session import State, Task

RAW = "cutwater.raw"
"""How tensors are written: bytes without a header, which would have to be parsed and believed."""
MEASURES = (*PHASES, "steps", "setup", "session")
"""Seconds that a node reports: by phase, of all mini-batches by the wall, before the session, in all."""


class WireError(EngineError):
    """A message that is not what it must be."""


@dataclass(frozen=True)
class Order:
    """What the server asks of a node in a round, besides the weights."""

    run: str
    task: Task
    fingerprint: str
    """Of what the server believes both ends to train."""
    ticket: str
    """For the activation stream; empty where the client trains the whole model."""
    fixed: Mapping[str, str]
    """Digests of the client-side weights that do not learn, by name; those it holds are not sent again."""


@dataclass(frozen=True)
class Report:
    """What a node says of its session, besides the weights."""

    run: str
    client: str
    round: int
    steps: int
    samples: int
    """n_k as the node has it."""
    loss: float
    kept: bool
    """Whether it holds the weights that do not learn from now on."""
    seconds: Mapping[str, float]


def order_records(order: Order, state: State) -> RecordDict:
    """An order with client-side weights."""
    body = {"run": order.run, "fingerprint": order.fingerprint, "ticket": order.ticket}
    return RecordDict(
        {
            "order": ConfigRecord({**body, **order.task.to_json()}),
            "fixed": ConfigRecord(dict(order.fixed)),
            "weights": pack(state),
        }
    )


def read_order(records: RecordDict) -> tuple[Order, ArrayRecord]:
    """The order in a message and its weights, which stay packed until the model is there."""
    body = _config(records, "order")
    task = {each.name: _value(body, each.name, each.type) for each in fields(Task)}
    texts = [_value(body, name, str) for name in ("run", "fingerprint", "ticket")]
    digests = _config(records, "fixed")
    fixed = {name: _value(digests, name, str) for name in digests}
    return Order(texts[0], Task(**task), texts[1], texts[2], fixed), _weights(records)


def report_records(report: Report, state: State) -> RecordDict:
    """A report with trained client-side weights."""
    body = {each.name: getattr(report, each.name) for each in fields(Report) if each.name != "seconds"}
    seconds = ConfigRecord({name: float(report.seconds.get(name, 0.0)) for name in MEASURES})
    return RecordDict({"report": ConfigRecord(body), "seconds": seconds, "weights": pack(state)})


def read_report(records: RecordDict) -> tuple[Report, ArrayRecord]:
    """The report in a message and its weights, or a WireError."""
    if "failure" in records:
        complaint = _config(records, "failure")
        kind = ForgottenError if complaint.get("forgot") is True else WireError
        raise kind(f"says: {_value(complaint, 'reason', str)[:500]}")
    body, seconds = _config(records, "report"), _config(records, "seconds")
    if set(seconds) != set(MEASURES):
        raise WireError(f"reports seconds for {sorted(seconds)}, but must for {sorted(MEASURES)}")
    measured = {name: _value(seconds, name, float) for name in MEASURES}
    values = {each.name: _value(body, each.name, each.type) for each in fields(Report)[:-1]}
    for name, value in {**measured, "loss": values["loss"]}.items():
        if not math.isfinite(value) or (name in measured and value < 0):
            raise WireError(f"reports {value} as {name}, which must be a finite number")
    return Report(**values, seconds=measured), _weights(records)


def pack(state: State) -> ArrayRecord:
    """Tensors as they travel."""
    return ArrayRecord(
        {
            name: Array(
                dtype=str(tensor.dtype).removeprefix("torch."),
                shape=tuple(tensor.shape),
                stype=RAW,
                data=to_raw(tensor),
            )
            for name, tensor in state.items()
        }
    )


def unpack(record: ArrayRecord, like: State) -> dict[str, Tensor]:
    """The tensors of a record, each of the type and shape that ``like`` has under its name."""
    odd = sorted(record.keys() ^ like.keys())
    if odd:
        what = "lacks" if odd[0] in like else "has an unknown"
        raise WireError(f"{what} tensor {odd[0]!r}; those of the client's layers are needed, no others")
    return {name: _tensor(name, record[name], expected) for name, expected in like.items()}


def _tensor(name: str, array: Array, like: Tensor) -> Tensor:
    kind = str(like.dtype).removeprefix("torch.")
    found = (array.stype, array.dtype, tuple(array.shape), len(array.data))
    if found != (RAW, kind, tuple(like.shape), like.numel() * like.element_size()):
        raise WireError(
            f"has {name!r} as {array.dtype} {list(array.shape)} ({array.stype}, {len(array.data)} bytes), "
            f"but it must be {kind} {list(like.shape)}"
        )
    return from_raw(array.data, like)


def _config(records: RecordDict, name: str) -> ConfigRecord:
    record = records.get(name)
    if not isinstance(record, ConfigRecord):
        raise WireError(f"has no {name!r}; is another release of cutwater at the other end?")
    return record


def _weights(records: RecordDict) -> ArrayRecord:
    record = records.get("weights")
    if not isinstance(record, ArrayRecord):
        raise WireError("has no weights")
    return record


def _value(body: Mapping[str, Any], name: str, kind: Any) -> Any:
    value = body.get(name)
    if type(value) is not kind:
        raise WireError(f"has {name} = {value!r:.100}, but it must be of type {kind.__name__}")
    return value
