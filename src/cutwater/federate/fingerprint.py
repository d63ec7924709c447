"""What the results of a study follow from, as digests: a run goes on only where all of them are the same."""

import json
from dataclasses import asdict, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutwater.data.samples import ArraySamples, Samples
from cutwater.federate.description import described, frozen, settings, without_addresses
from cutwater.model.randomness import drawn_from
from cutwater.train.aggregate import weights_sha256

if TYPE_CHECKING:
    from cutwater.federate.study import Study

_SOME = 4
"""Samples at either end of the training data that are looked at."""
_READINGS = 8
"""How often each of them is read, to see whether it is always the same."""


def digests(study: "Study") -> dict[str, str]:
    """The digest of each part, by name."""
    train = asdict(study.train)
    if study.train.schedule in ("cosine", "linear"):
        train["horizon"] = study.train.horizon or study.train.rounds
    else:
        train.pop("horizon")
    # Neither of these changes what a round computes.
    del train["rounds"], train["evaluate_every"]
    # Of a trace it matters what it says, not where it is.
    trace = study.truth.trace
    conditions = {**asdict(study.conditions), "trace": trace and asdict(trace)}
    sections = {
        "train": train,
        "session": asdict(study.session),
        "server": asdict(study.server),
        "conditions": conditions,
    }
    fleet = {f.name: getattr(study.fleet, f.name) for f in fields(study.fleet)}
    held = study.partition
    parts = {
        **{f"{name}.{key}": value for name, keys in sections.items() for key, value in keys.items()},
        "planner": [study.planner, dict(study.planner_options)],
        "fleet": {name: list(map(str, column)) for name, column in fleet.items() if name != "forbidden"},
        "forbidden": {str(k): sorted(cuts) for k, cuts in study.fleet.forbidden.items()},
        "data": [study.data.name, study.data.input, study.data.classes, held.method, held.local_test],
        "labels": _digest(study.data.train.labels),
        "inputs": _inputs(study.data.train),
        "loss": described(study.loss),
        "aggregator": described(study.aggregator),
        "held": [_digest(held.order), held.ends.tolist()],
        "weights": weights_sha256(study.initial),
        "layers": [layer.name for layer in study.model.layers],
        "frozen parameters": frozen(study.model.module),
        "buffers": weights_sha256(study.model.unsaved),
        # What has no weights shows here (dropout's rate, say).
        "modules": [without_addresses(repr(study.model.module)), settings(study.model.module)],
    }
    return {name: text_digest(part) for name, part in parts.items()}


def text_digest(part: Any) -> str:
    """SHA-256 of a value as JSON."""
    return sha256(json.dumps(part, sort_keys=True, default=str).encode()).hexdigest()


def _inputs(samples: Samples) -> str | None:
    """A digest of the first and last training samples; None where they are augmented at random."""
    some = np.unique(np.r_[: min(_SOME, len(samples)), max(0, len(samples) - _SOME) : len(samples)])
    # What draws from a generator of its own, and seldom, shows only in several readings.
    readings = 1 if isinstance(samples, ArraySamples) else _READINGS
    found = set()
    for reading in range(readings):
        with drawn_from(reading, "fingerprint"):
            read = [samples.batch(some[k : k + 1]) for k in range(len(some))]
        tensors = {f"{k} {n}": t for k, one in enumerate(read) for n, t in enumerate((*one[0], one[1]))}
        found.add(weights_sha256(tensors))
    return found.pop() if len(found) == 1 else None


def _digest(array: NDArray[Any] | None) -> str | None:
    return None if array is None else sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
