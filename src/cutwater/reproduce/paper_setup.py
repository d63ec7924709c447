"""The paper's set-up (Sec. VI): its model, the client of Sec. VI-A, our thirty clients, the first ten."""

from functools import cache
from pathlib import Path

import numpy as np

from cutwater.base.arrays import Floats
from cutwater.plan.fleet import Client
from cutwater.plan.latency import Phases
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session
from cutwater.profile.cache import profile_of
from cutwater.profile.count import PAPER_KAPPA
from cutwater.profile.values import Profile
from cutwater.report.figures import GROUPS
from cutwater.scenario.file import Scenario, load_scenario

MODEL = "efficientnet_v2_m"
SHARE = 1484e9
"""f^S of the client of Sec. VI-A."""
SERVER = Server(3000e9)
EPOCHS = 20
PICKED = 10
"""Clients of Fig. 8: the first of the thirty."""
TEN_ARE = (
    "Given by the paper: model, server, session and client c10. Calibrated by us: clients c1 to c9, so that "
    "the ten show what Fig. 8 shows."
)


@cache
def paper_profile(model: str, input_: str, classes: int, kappa: float) -> Profile:
    """A model counted as the paper counts: mult-adds, and κ forward passes for a backward pass."""
    return profile_of(model, input=input_, classes=classes, count="paper", kappa=kappa)


def profile() -> Profile:
    """EfficientNetV2-M on one-channel 28×28 images."""
    return paper_profile(MODEL, "1x28x28", 10, PAPER_KAPPA)


@cache
def thirty() -> Scenario:
    """The committed scenario of all thirty clients."""
    return load_scenario(Path(__file__).with_name("thirty_clients.toml"))


def lone_client() -> Problem:
    """The client of Sec. VI-A by itself."""
    client = Client(name="c10", compute=100e9, rate=32e6, samples=3396)
    return Problem(profile(), [client], SERVER, Session(epochs=EPOCHS))


def ten(server: Server = SERVER) -> Problem:
    """The ten clients of Fig. 8."""
    scenario = thirty()
    return Problem(profile(), scenario.fleet.take(PICKED), server, scenario.session)


def by_group(phases: Phases[Floats]) -> dict[str, tuple[float, ...]]:
    """Seconds for each of the four kinds of time that the paper's figures stack."""
    return {
        group: tuple(map(float, np.sum([phases.named(phase) for phase in members], axis=0)))
        for group, members in GROUPS.items()
    }
