"""Random problems whose steps have parts and whose cuts can be crossed by several codecs."""

from dataclasses import replace

import numpy as np
from plan_cases import make_profile

from cutwater.base.errors import PlanError
from cutwater.codec.crossing import Crossing
from cutwater.plan.fleet import Client
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires

CODECS = ("fp32", "lossless", "bf16", "int8", "int4", "topk")


def crossing_profile(rng, layers, *, free=False):
    """Layers of all kinds of proportions; tensors cross every cut, some with a mask that has no gradient.

    ``free``: the last two layers cost no FLOPs, so that a cut below L may leave the server nothing to do.
    """
    cost = 10 ** rng.uniform(5, 7.5, layers)
    cost[layers - 2 :] *= not free
    forward = np.cumsum(cost) + 1e5
    bits = np.cumsum(rng.integers(10**3, 10**6, layers))
    crossings = [_crossing(rng) for _ in range(layers)]
    smashed = [_bits(tensors) for tensors in crossings]
    gradient = [_bits([tensor for tensor in tensors if tensor.gradient]) for tensors in crossings]
    profile = make_profile(
        [int(x) for x in bits],
        [float(x) for x in forward],
        smashed,
        kappa=float(rng.uniform(1, 4)),
        gradient=gradient,
        memory=[int(x) for x in 2 * bits + np.cumsum(smashed) * 16],
        batch_size=8,
    )
    frozen = np.cumsum(rng.integers(0, 10**6, layers) * (rng.random(layers) < 0.3))
    cuts = (
        replace(
            cut,
            crossing=crossing,
            frozen_bits=int(fixed),
            buffer_bits=int(rng.integers(0, 2) * cut.cut * 64),
            repeats=bool(cut.cut < layers and rng.random() < 0.4),
        )
        for cut, crossing, fixed in zip(profile.cuts, crossings, frozen, strict=True)
    )
    return replace(profile, cuts=tuple(cuts))


def _crossing(rng):
    tensors = [
        Crossing(tuple(int(n) for n in rng.integers(1, 16, rng.integers(1, 4))), "float32", gradient=True)
        for _ in range(rng.integers(1, 3))
    ]
    if rng.random() < 0.3:
        tensors.append(Crossing((int(rng.integers(1, 20)),), "int64", gradient=False))
    return tuple(tensors)


def _bits(tensors):
    return sum({"float32": 32, "int64": 64}[one.dtype] * int(np.prod(one.shape)) for one in tensors)


def random_client(rng, name, profile, *, wires=None):
    """A client; with ``wires``, also one with limits: memory, cuts, codecs and schedules of its own."""
    limits = {} if wires is None else _limits(rng, profile, wires)
    length = [{}, {}, {"epochs": int(rng.integers(1, 3))}, {"steps": int(rng.integers(1, 5))}]
    return Client(
        name=name,
        compute=10 ** rng.uniform(8, 10.5),
        up=10 ** rng.uniform(5, 7.5),
        down=10 ** rng.uniform(5, 7.5),
        samples=int(rng.integers(1, 60)),
        batch_size=None if rng.random() < 0.6 else int(rng.integers(5, 14)),
        rtt=float(rng.choice([0.0, 10 ** rng.uniform(-4, -1)])),
        holds=int(rng.integers(0, len(profile) + 1)),
        **length[rng.integers(len(length))],
        **limits,
    )


def _limits(rng, profile, wires):
    limits = {}
    layers, memory = len(profile), profile.column("client_memory_bits")
    if rng.random() < 0.4:
        limits["memory"] = float(rng.uniform(memory.min(), 1.5 * memory.max()))
    if rng.random() < 0.3:
        limits["min_cut"] = int(rng.integers(1, layers + 1))
    if rng.random() < 0.3:
        limits["forbidden"] = frozenset({int(rng.integers(1, layers + 1))})
    if rng.random() < 0.3:
        limits["codecs"] = frozenset({*rng.choice(wires.up, 1), *rng.choice(wires.down, 1)})
    if rng.random() < 0.3:
        limits["schedules"] = frozenset(rng.choice(wires.schedule, 1))
    return limits


def random_wires(rng, most=3):
    """Some codecs each way in some order, and one or both schedules."""

    def some():
        return tuple(rng.permutation(CODECS)[: rng.integers(1, most + 1)].tolist())

    schedules = (("in turn", "overlapped"), ("overlapped",), ("overlapped", "in turn"), ("in turn",))
    return Wires(up=some(), down=some(), schedule=schedules[rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])])


def random_wire_problem(rng, count, *, layers=(2, 5), codecs=3, limits=True):
    """A problem with up to 5 micro-batches and a choice of wires; one that is refused is drawn anew."""
    while True:
        profile = crossing_profile(rng, int(rng.integers(*layers)), free=rng.random() < 0.2)
        wires = random_wires(rng, codecs)
        length = {"epochs": int(rng.integers(1, 3))} if rng.random() < 0.6 else {"steps": 3}
        session = Session(
            batch_size=int(rng.integers(5, 12)), micro_batches=int(rng.integers(1, 6)), **length
        )
        fleet = [random_client(rng, f"c{k}", profile, wires=wires if limits else None) for k in range(count)]
        try:
            return Problem(profile, fleet, Server(10 ** rng.uniform(7.5, 10.5)), session, wires)
        except PlanError:
            continue
