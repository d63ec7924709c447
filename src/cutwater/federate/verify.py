"""Is it true here? The same rounds as FedAvg, with a plan's cuts and with random cuts, bit for bit.

A lossy codec gives other bits than FedAvg's, wherever the model is cut. What is promised there is that a
session gives the same bits in one process as over a network; that is what is compared then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cutwater.federate.clock import VirtualClock
from cutwater.federate.executor import Trainer
from cutwater.federate.loop import Round, rounds, start
from cutwater.federate.record import ClientRound
from cutwater.federate.study import Study
from cutwater.plan.fleet import NO_LIMIT
from cutwater.train.expected import same_bytes

REFERENCE, RANDOM = "fedavg", "random cuts"
IN_PROCESS, OVER_THE_STREAM = "in process", "over the stream"
"""The two ways of a lossy run."""


@dataclass(frozen=True)
class Check:
    """One round, trained in several ways."""

    round: int
    clients: tuple[str, ...]
    """Whose updates count."""
    digests: Mapping[str, str]
    """SHA-256 of the global weights by the way they were trained, the reference first."""
    cuts: Mapping[str, tuple[int | tuple[int, int], ...]]
    """The clients' cuts, or pairs of them, by the same names, in the same order."""
    differs: Mapping[str, str]
    """The first tensor that is not the reference's, by the way it was trained; empty where all bits agree."""

    @property
    def reference(self) -> str:
        """The way that the others are compared with."""
        return next(iter(self.digests))

    @property
    def agrees(self) -> bool:
        """Whether every way gave the same bits."""
        return not self.differs

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return {
            "round": self.round,
            "agrees": self.agrees,
            "clients": list(self.clients),
            "weights_sha256": dict(self.digests),
            "cuts": {name: list(cuts) for name, cuts in self.cuts.items()},
            "differs": dict(self.differs),
        }


def verify(
    study: Study, trainer: Trainer, last: int, seed: int = 0, stream: Trainer | None = None
) -> Iterator[Check]:
    """Train rounds 1 to ``last`` as FedAvg, by the study's planner and with random cuts, side by side.

    With a ``stream``, random cuts are trained a second time, over that.

    A deadline would let other clients through than FedAvg's slower clock, and training on others is no
    difference of cutting: here every round waits for all, and nobody is selected in excess. Nobody drops out
    either, because a round in which nobody trains shows nothing. FedAvg trains whole models where a client's
    limits forbid it, because it is only the reference.
    """
    patient = _patient(study)
    ways = {
        REFERENCE: fedavg_without_limits(patient),
        f"{study.planner_name} plan": patient,
        RANDOM: patient.with_planner("random", seed=seed),
    }
    pairs = {name: (way, trainer) for name, way in ways.items()}
    if stream is not None:
        pairs[f"{RANDOM}, {OVER_THE_STREAM}"] = (ways[RANDOM], stream)
    yield from _side_by_side(pairs, last)


def verify_lossy(study: Study, trainer: Trainer, stream: Trainer, last: int) -> Iterator[Check]:
    """Train rounds 1 to ``last`` by the study's planner in process and over a real stream, side by side."""
    patient = _patient(study)
    return _side_by_side({IN_PROCESS: (patient, trainer), OVER_THE_STREAM: (patient, stream)}, last)


def fedavg_without_limits(study: Study) -> Study:
    """The study as FedAvg, which trains whole models at clients whose limits forbid that, too."""
    unlimited = study.fleet.replace(memory=NO_LIMIT, min_cut=np.ones(len(study.fleet)), forbidden={})
    return replace(study, fleet=unlimited).with_planner("fedavg")


def _patient(study: Study) -> Study:
    return replace(
        study,
        train=replace(study.train, deadline=None, over_selection=0.0, quorum=1),
        conditions=replace(study.conditions, dropout=0.0),
    )


def _side_by_side(ways: Mapping[str, tuple[Study, Trainer]], last: int) -> Iterator[Check]:
    runs = {
        name: rounds(way, VirtualClock(way, trainer), start(way), last)
        for name, (way, trainer) in ways.items()
    }
    # Each generator holds one model, and all stand at the same round.
    for trained in zip(*runs.values(), strict=True):
        yield _compare(dict(zip(runs, trained, strict=True)))


def _compare(trained: Mapping[str, Round]) -> Check:
    reference = next(iter(trained.values()))
    differs = {}
    for name, round_ in trained.items():
        for key, tensor in round_.progress.weights.items():
            if not same_bytes(tensor, reference.progress.weights[key]):
                differs[name] = key
                break
    return Check(
        round=reference.record.round,
        clients=reference.record.clients,
        digests={name: round_.record.weights_sha256 for name, round_ in trained.items()},
        cuts={name: tuple(map(_cuts, round_.outcome.parts)) for name, round_ in trained.items()},
        differs=differs,
    )


def _cuts(part: ClientRound) -> int | tuple[int, int]:
    return (part.cut, part.second_cut) if part.second_cut else part.cut
