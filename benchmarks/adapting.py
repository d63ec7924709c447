"""A link that becomes ten times slower in mid-round, really: how soon the round ends, against an oracle.

    python benchmarks/network.py --only adapting        about four minutes on two cores, as root

Two clients in network namespaces, whose devices the kernel holds to a part of a core (cgroups), train split
against the stream's server. When the session of one of them is a quarter done, its link is held to a tenth of
its rate. The server finds that out by its own clock, plans shares and cuts anew, and the round goes on. From
that moment an oracle, which knows the new rate at once and what the kernel's counters say is left of each
session, would be done in so many seconds: the round may take a tenth more. Staying at the old cut is told
beside it. The weights must be those of training in one process, bit for bit.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

from cutwater.base.jsonfile import read_json
from cutwater.federate.study import Study
from cutwater.plan.again import Rest
from cutwater.plan.moving import Pace, Ways, soonest, ways
from cutwater.plan.planners import solve
from cutwater.plan.value import Plan

LATER = 1.1
"""How much longer than the oracle's the rest of the round may take."""
CLIENTS = ("slow", "mid")
"""Of network.py's."""
SLOWED, TIMES = "mid", 10
"""Whose link becomes how many times slower."""
HOW = "burst 100kb latency 200ms"
AFTER = 0.25
"""Part of its session that is done by then."""
BEGUN = 0.02
"""Part of it that is more than enrolment sends."""
RATE = 200
"""Mbit/s of every link before that."""
DEVICE = 0.2
"""Part of a core that a device has."""
PERIOD = 10_000
"""Microseconds over which the kernel holds it to that: short beside a mini-batch."""
GROUPS = Path("/sys/fs/cgroup")
SCENARIO = """
[model]
name = "cnn"
input = "1x28x28"
[server]
compute = "{server}"
[session]
steps = 120
batch_size = 96
[data]
source = "adapting:images"
partition = "iid"
[train]
rounds = 1
lr = 0.05
seed = 1
"""
CLIENT = """
[[client]]
name = "{name}"
compute = "{compute}"
up = "{up}"
down = "{down}"
rtt = "{rtt}"
samples = 960
forbidden = [6]
"""


def images() -> tuple[TensorDataset, TensorDataset]:
    """Noise the size of MNIST's images: how fast it is learned is not the question here."""
    random = torch.Generator().manual_seed(1)
    pictures = torch.randn(4000, 1, 28, 28, generator=random)
    labels = torch.arange(4000) % 10
    return TensorDataset(pictures, labels), TensorDataset(pictures[:100], labels[:100])


class SlowDevices:
    """A group of processes for each client, which the kernel holds to a part of a core when it is told to."""

    def __init__(self, names: Sequence[str]) -> None:
        self._version_1 = (GROUPS / "cpu").is_dir()
        self._root = GROUPS / "cpu" if self._version_1 else GROUPS
        self._folders = {name: self._root / f"cw-{name}" for name in names}

    @property
    def possible(self) -> bool:
        """Whether there are such groups here."""
        return (self._root / "cgroup.procs").exists()

    def __enter__(self) -> "SlowDevices":
        for folder in self._folders.values():
            folder.mkdir(exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders.values():
            with suppress(OSError):
                folder.rmdir()

    def hold(self, part: float | None) -> None:
        """Give every device so much of a core; all that there is for None."""
        for folder in self._folders.values():
            quota = None if part is None else round(part * PERIOD)
            if self._version_1:
                (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
                (folder / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))
            else:
                (folder / "cpu.max").write_text(f"{'max' if quota is None else quota} {PERIOD}")

    def within(self, name: str) -> list[str]:
        """What runs a command in a client's group."""
        return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self._folders[name])]


class Slowing:
    """Called again and again: slows a link once, and notes what was done by then.

    Devices are slow from its first mini-batch on: before that they start and enrol, which is not in question.
    """

    def __init__(
        self,
        plan: Plan,
        received: Callable[[str], int],
        slow: Callable[[], None],
        devices: SlowDevices,
    ) -> None:
        self._plan, self._received, self._slow = plan, received, slow
        self._devices, self._held = devices, False
        self._before = {name: received(name) for name in plan.names}
        self.at = 0.0
        self.done: dict[str, float] = {}
        """Part of each session that had come up by then."""

    def __call__(self) -> None:
        """Look, and slow it down."""
        if not self._held and self._part(SLOWED) >= BEGUN:
            self._devices.hold(DEVICE)
            self._held = True
        if not self.at and self._part(SLOWED) >= AFTER:
            self._slow()
            self.at = time.time()
            self.done = {name: min(self._part(name), 1.0) for name in self._plan.names}

    def _part(self, name: str) -> float:
        """Of what goes up in a session; the client's half at its end is little of it at the first cuts."""
        return (self._received(name) - self._before[name]) / self._plan[name].bytes_up


def oracle(plan: Plan, may: Mapping[str, Ways], done: Mapping[str, float], *, moves: bool) -> float:
    """Seconds from then on until all could be done, with the true rate known at once."""
    choices: list[list[Rest]] = []
    for name, mine in may.items():
        cut, left = plan[name].cut, 1 - done[name]
        pace = Pace(up=TIMES, down=TIMES) if name == SLOWED else Pace()
        some = [mine.rest(cut, left, pace)]
        for to in mine.cuts.tolist() if moves else ():
            there = mine.rest(to, left, pace)
            way = there.besides + mine.transfer(cut, to, pace)
            some.append(Rest(there.name, there.away, there.work, way))
        choices.append(some)
    return soonest(choices, plan.server_compute)


def judge(study: Study, slowing: Slowing, run_dir: Path) -> bool:
    """Print how the round went; whether it was as soon over as it may be."""
    plan = solve(study.problem(list(study.fleet)))
    if not slowing.at:
        print("MISS the link was never slowed: its session was over too soon")
        return False
    may = ways(plan, {name: range(1, plan.layers) for name in plan.names})
    best, staying = (oracle(plan, may, slowing.done, moves=moves) for moves in (True, False))
    kept = run_dir / "measured" / "00001.json"
    took = kept.stat().st_mtime - slowing.at
    changes = read_json(kept)["replanned"]
    for each in changes:
        print(f"     after {each['at_seconds']:.1f} s: {each['why']}; cuts {each['cuts'] or 'stay'}")
    good = took <= LATER * best
    print(
        f"{'ok  ' if good else 'MISS'} a link {TIMES} times slower: the rest of the round took {took:.1f} s, "
        f"{took / best:.3f} of the oracle's {best:.1f} s (limit {LATER:g}); at the old cut with new shares "
        f"{staying:.1f} s at least"
    )
    return good


def on_path() -> None:
    """Have nodes find the data, which is in this module."""
    here = str(Path(__file__).resolve().parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, here)
