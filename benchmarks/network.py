"""Predicted against measured seconds over links that are really slow, and what a link that breaks does.

    python benchmarks/network.py        about five minutes on two cores, as root

Needs Linux and iproute2; where it can't make networks it says so and measures nothing. Each client has
a network namespace of its own, whose link the kernel holds to a rate; nothing is emulated. What a user does
is done in order: probe every link (`cutwater probe`), write the scenario, train on a Flower fleet with TLS,
read the audit. Then it trains again without leases, and the slowest link is cut in mid-session. Both times
the weights must be those of training in one process, bit for bit. Last, a model with a frozen backbone
(examples/frozen_backbone.py): plan, audit and the kernel's counters must agree on the bytes of a round, and
the backbone must cross once; steps that overlap, with and without a codec (schedules.py); and a link that
becomes slower in mid-round (adapting.py). Exits with 1 if a limit is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from cutwater.base.jsonfile import read_json
from cutwater.execute.local import run
from cutwater.federate.from_scenario import study_of
from cutwater.federate.record import KeptRound
from cutwater.fleet.link_probe import EchoServer
from cutwater.fleet.supernodes import LocalFleet
from cutwater.plan.planners import solve
from cutwater.runs.audit import audit
from cutwater.runs.metrics import read
from cutwater.scenario.file import load_scenario

OFF = 0.15
"""How far measured may be from predicted, of predicted."""
LINKS = {"slow": 4, "mid": 12, "fast": 40}
"""Mbit/s that the kernel lets through, up and down."""
BYTES_OFF = 0.02
"""How far the kernel's counters may be from the plan's bytes, of the latter."""
MTU = 32000
"""Large packets, so that their headers and acknowledgements (4 to 5 % at 1,500 bytes) are no part of this."""
JUMBO = 12000
"""Packets whose headers and acknowledgements take about 1 %, and of which a small burst still holds one."""
CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
"""Linux's default, cubic, at both ends, wherever this runs: plain sockets that send as a session does need
1.02 to 1.03 of the link's time with it, and up to 1.06 with BBR, which tries now and then what a link can."""
HOST, NETWORK = "10.213.77.1", "10.213.77.{}/24"
BRIDGE = "cwbench0"
CUT_SECONDS, CUT_AFTER = 4.0, 1_000_000
"""How long the link is cut, and the bytes of the session that come before."""
SCENARIO = """
[model]
name = "cnn"
input = "1x8x8"
[server]
compute = "{compute}"
[session]
steps = 16
batch_size = 160
[data]
source = "digits"
[train]
rounds = 2
lr = 0.05
seed = 1
"""
FROZEN = """
[model]
name = "frozen_backbone:build"
input = "1x8x8"
[server]
compute = "{compute}"
[session]
steps = 72
batch_size = 64
micro_batches = 2
[wire]
schedule = "overlapped"
[data]
source = "digits"
[train]
rounds = 3
lr = 0.05
seed = 1
"""
"""With sessions so long that other messages do not count: parts that overlap send a row whenever it comes."""
CLIENT = """
[[client]]
name = "{name}"
compute = "{compute}"
up = "{up}"
down = "{down}"
samples = 320
forbidden = {forbidden}
"""
SPLIT, WHOLE = [2, 3, 4, 5, 6], [1, 2, 3, 4, 5]
"""Cuts ruled out, so that two clients put their links to use in every mini-batch."""


class Shaped(LocalFleet):
    """A fleet whose nodes live in the namespaces."""

    def within(self, name: str) -> Sequence[str]:
        """Enter the client's namespace."""
        return inside(name)


def main() -> int:
    """Measure everything; 0 if all limits were kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    only = parser.parse_args().only
    if sys.platform != "linux" or os.geteuid() != 0 or not possible():
        print("skipped: networks of our own need Linux, root and iproute2")
        return 0
    with networks(), tempfile.TemporaryDirectory() as folder:
        kept = [PARTS[name](Path(folder)) for name in PARTS if only in (None, name)]
    return 0 if all(kept) else 1


def overlapping(folder: Path) -> bool:
    """Steps in 1, 2, 4 and 8 parts, as fp32 and int8, and with a round trip."""
    import schedules

    name = schedules.CLIENT
    large_packets(JUMBO)
    hold(name, schedules.RATE, schedules.HOW)
    guess = {"compute": "1 GFLOPS", "server": "1 GFLOPS", "up": "1 MB/s", "down": "1 MB/s", "rtt": "0 s"}
    found = probe(folder, name, schedules.SCENARIO.format(**guess))
    link = found["link"]
    said = guess | {"rtt": f"{link['round_trip']:.6f} s"}
    said |= {way: f"{link[way]:.0f} bit/s" for way in ("up", "down")}
    print(f"     {name}: {schedules.RATE} Mbit/s, probed {link['up'] / 1e6:.2f} and {link['down'] / 1e6:.2f}")
    return schedules.schedules(
        folder, said, inside(name), HOST, lambda: counted(name, "rx_bytes") + counted(name, "tx_bytes")
    )


def links(folder: Path) -> bool:
    """Two rounds over slow links, and one in which a link is cut."""
    scenario = folder / "network.toml"
    scenario.write_text(probed(folder), encoding="utf-8")
    wanted = [record.weights_sha256 for record in run(study_of(load_scenario(scenario))).records]
    with Shaped(scenario, host=HOST) as fleet:
        fleet.run(folder / "plain", emulate=False)
        scissors = Scissors("slow")
        # A lease gives a node up of which nothing is heard for so long; without, its session is resumed.
        fleet.run(folder / "broken", emulate=False, lease=False, rounds=1, meanwhile=scissors, name="broken")
    kept = [judge(each) for each in audit(folder / "plain").rounds]
    kept += [
        same("in two rounds", sha256s(folder / "plain"), wanted),
        same(f"after a cut of {scissors.seconds:.1f} s", sha256s(folder / "broken"), wanted[:1]),
    ]
    if not scissors.seconds:
        print("MISS the link was never cut: its session was over too soon")
    return all(kept) and bool(scissors.seconds)


def frozen(folder: Path) -> bool:
    """Three rounds with a frozen backbone: whether all agree on the bytes, and it crossed once."""
    examples = str(Path(__file__).resolve().parents[1] / "examples")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [examples, os.environ.get("PYTHONPATH")]))
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # what other runs left there is not held
    sys.path.insert(0, examples)
    scenario, run_dir = folder / "frozen.toml", folder / "frozen"
    rows = [
        CLIENT.format(
            name=name, compute="20 GFLOPS", up=f"{rate} Mbit/s", down=f"{rate} Mbit/s", forbidden=cuts
        )
        for (name, rate), cuts in zip(LINKS.items(), ([1, 3, 4], [2, 3, 4], [1, 2, 3]), strict=True)
    ]
    scenario.write_text(FROZEN.format(compute="20 GFLOPS") + "".join(rows), encoding="utf-8")
    large_packets()
    study = study_of(load_scenario(scenario))
    wanted = [record.weights_sha256 for record in run(study).records]
    with Shaped(scenario, host=HOST) as fleet, Counters(run_dir) as counters:
        fleet.run(run_dir, emulate=False, name="frozen")
    kept = [same("with a frozen backbone", sha256s(run_dir), wanted)]
    lines = read(run_dir / "metrics.jsonl")
    fixed = sum(study.job().traffic(2).fixed.values()) + sum(study.job().traffic(1).fixed.values())
    fixed += sum(study.traffic.fixed.values())
    once = lines[0].bytes_down - lines[1].bytes_down
    kept.append(once == fixed and lines[1].bytes_down == lines[2].bytes_down)
    print(f"{'ok  ' if kept[-1] else 'MISS'} the backbone crosses once: {once:,} bytes, of {fixed:,}")
    for line, (up, down) in zip(lines, counters.by_round(), strict=True):
        planned = read_json(run_dir / "plans" / f"{line.round:05d}.json")["clients"]
        plan = [sum(client[way] for client in planned) for way in ("bytes_up", "bytes_down")]
        rows = {"kernel": (up, down), "audit": (line.bytes_up, line.bytes_down)}
        good = all(abs(sum(row) / sum(plan) - 1) <= BYTES_OFF for row in rows.values())
        kept.append(good)
        ratios = ", ".join(f"{who} {sum(row) / sum(plan):.4f}" for who, row in rows.items())
        told = "; ".join(f"{who} {row[0]:,.0f} up {row[1]:,.0f} down" for who, row in rows.items())
        verdict = "ok  " if good else "MISS"
        print(f"{verdict} round {line.round}, bytes of the plan's: {ratios}  1 ± {BYTES_OFF:g}")
        print(f"     {told}; plan {plan[0]:,.0f} up {plan[1]:,.0f} down")
    return all(kept)


def adapting(folder: Path) -> bool:
    """A link that becomes ten times slower in mid-round."""
    import adapting as slower

    slower.on_path()
    for name in slower.CLIENTS:
        hold(name, slower.RATE, slower.HOW)
    devices = slower.SlowDevices(slower.CLIENTS)
    if not devices.possible:
        print("skipped: slow devices need cgroups")
        return True

    class Slow(Shaped):
        def within(self, name: str) -> Sequence[str]:
            return [*devices.within(name), *inside(name)]

    with devices:
        scenario, run_dir = folder / "adapting.toml", folder / "slowed"
        scenario.write_text(_slowly_probed(folder, slower, devices), encoding="utf-8")
        study = study_of(load_scenario(scenario))
        wanted = [record.weights_sha256 for record in run(study).records]
        plan = solve(study.problem(list(study.fleet)))
        print(f"     cuts {plan.cuts.tolist()}, planned {plan.latency:.1f} s")
        rate = slower.RATE // slower.TIMES
        with Slow(scenario, host=HOST) as fleet:
            slowing = slower.Slowing(plan, received, lambda: hold(slower.SLOWED, rate, slower.HOW), devices)
            fleet.run(run_dir, emulate=False, meanwhile=slowing, name="slowed")
    good = slower.judge(study, slowing, run_dir)
    return same("over a link that became slower", sha256s(run_dir), wanted) and good


def _slowly_probed(folder: Path, slower: ModuleType, devices: Any) -> str:
    """The scenario, with what is probed of each link and slow device, and of this machine as a server."""
    guess = {"compute": "1 GFLOPS", "up": "1 MB/s", "down": "1 MB/s", "rtt": "0 s"}
    bare = slower.SCENARIO.format(server="1 GFLOPS") + slower.CLIENT.format(name="any", **guess)
    devices.hold(slower.DEVICE)
    found = {name: probe(folder, name, bare, devices.within(name)) for name in slower.CLIENTS}
    devices.hold(None)
    server = probe(folder, slower.SLOWED, bare)["compute"]["flops"]["median"]
    rows = [slower.CLIENT.format(name=name, **_as_probed(each)) for name, each in found.items()]
    return slower.SCENARIO.format(server=f"{server:.0f} FLOPS") + "".join(rows)


def _as_probed(found: dict[str, Any]) -> dict[str, str]:
    """What was probed, as a client's keys."""
    link, compute = found["link"], found["compute"]["flops"]["median"]
    rates = {way: f"{link[way]:.0f} bit/s" for way in ("up", "down")}
    return rates | {"compute": f"{compute:.0f} FLOPS", "rtt": f"{link['round_trip']:.6f} s"}


class Counters:
    """What the kernel counts on all links, looked at again and again."""

    EVERY, BEFORE = 0.02, 2.0
    """Seconds: between two looks, and before the first orders, when nodes that are enrolled say little."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._over = run_dir, threading.Event()
        self._seen: list[tuple[float, int, int]] = []
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Counters":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def by_round(self) -> list[tuple[int, int]]:
        """Bytes up and down of each round: from its orders, or the end of the one before, to its end."""
        files = sorted((self._run_dir / "measured").glob("0*.json"))
        kept = [file.stat().st_mtime for file in files]
        marks = [self._at(kept[0] - read_json(files[0])["wall_seconds"] - self.BEFORE), *map(self._at, kept)]
        return [(after[1] - before[1], after[2] - before[2]) for before, after in pairwise(marks)]

    def _at(self, moment: float) -> tuple[float, int, int]:
        return self._seen[max(bisect_right(self._seen, (moment,)) - 1, 0)]

    def _look(self) -> None:
        while not self._over.wait(self.EVERY):
            up, down = (sum(counted(name, way) for name in LINKS) for way in ("rx_bytes", "tx_bytes"))
            self._seen.append((time.time(), up, down))


def judge(each: KeptRound) -> bool:
    """Print a round's ratios of measured to predicted seconds; whether they are within the limit."""
    rows = {f"round {each.round}": (each.actual_seconds, each.planned_seconds)}
    for client in each.clients:
        if client.mode == "split":
            sides = [side.smashed_upload + side.gradient_download for side in (client.actual, client.planned)]
            rows[f"round {each.round}, {client.name}'s smashed data"] = (sides[0], sides[1])
    kept = True
    for what, (measured, predicted) in rows.items():
        good = abs(measured / predicted - 1) <= OFF
        kept &= good
        ratio = f"{measured / predicted:6.3f}  1 ± {OFF:g}   {measured:.2f} of {predicted:.2f} s"
        print(f"{'ok  ' if good else 'MISS'} {what:<32} {ratio}")
    return kept


def same(what: str, found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Print whether the bits are those of one process."""
    good = list(found) == list(wanted)
    print(f"{'ok  ' if good else 'MISS'} the bits of one process {what}")
    return good


def sha256s(folder: Path) -> list[str]:
    """Of the weights after every round of a run."""
    return [row.weights_sha256 for row in read(folder / "metrics.jsonl")]


class Scissors:
    """Called again and again: cuts a client's link once, when its session has sent enough."""

    def __init__(self, name: str) -> None:
        self._name, self._before, self.seconds = name, received(name), 0.0

    def __call__(self) -> None:
        """Look, and cut."""
        if self.seconds or received(self._name) - self._before < CUT_AFTER:
            return
        began = time.monotonic()
        ip(f"link set cw-{self._name} down")
        time.sleep(CUT_SECONDS)
        ip(f"link set cw-{self._name} up")
        self.seconds = time.monotonic() - began


def received(name: str) -> int:
    """Bytes that have come from a client."""
    return counted(name, "rx_bytes")


def counted(name: str, what: str) -> int:
    """What the kernel counts at our end of a client's link."""
    return int(Path(f"/sys/class/net/cw-{name}/statistics/{what}").read_text())


def probe(folder: Path, name: str, scenario: str, by: Sequence[str] = ()) -> dict[str, Any]:
    """What `cutwater probe` finds in a namespace, started ``by`` a command that makes the device slow."""
    bare = folder / "bare.toml"
    bare.write_text(scenario, encoding="utf-8")
    with EchoServer(HOST) as server:
        command = [*by, *inside(name), sys.executable, "-m", "cutwater", "probe", str(bare), "--json"]
        address = f"{HOST}:{server.port}"
        said = subprocess.run([*command, "--server", address], check=True, capture_output=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def probed(folder: Path) -> str:
    """The scenario, with what `cutwater probe` finds in each namespace."""
    clients, compute = [], 0.0
    any_client = CLIENT.format(name="any", compute="1 GFLOPS", up="1 MB/s", down="1 MB/s", forbidden=SPLIT)
    for name, rate in LINKS.items():
        found = probe(folder, name, SCENARIO.format(compute="1 GFLOPS") + any_client)
        compute, link = found["compute"]["flops"]["median"], found["link"]
        up, down = f"{link['up']:.0f} bit/s", f"{link['down']:.0f} bit/s"
        print(f"     {name}: {rate} Mbit/s, probed {link['up'] / 1e6:.2f} and {link['down'] / 1e6:.2f}")
        rest = WHOLE if name == "fast" else SPLIT
        clients.append(
            CLIENT.format(name=name, compute=f"{compute:.0f} FLOPS", up=up, down=down, forbidden=rest)
        )
    return SCENARIO.format(compute=f"{compute:.0f} FLOPS") + "".join(clients)


def inside(name: str) -> list[str]:
    """What runs a command in a client's namespace."""
    return ["ip", "netns", "exec", f"cw-{name}"]


def ip(words: str, program: str = "ip") -> None:
    """One of iproute2's commands."""
    subprocess.run([program, *words.split()], check=True, capture_output=True)


def possible() -> bool:
    """Whether namespaces can be made."""
    try:
        ip("netns add cw-try")
        ip("netns del cw-try")
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def hold(name: str, rate: int, how: str) -> None:
    """Have the kernel hold a client's link to a rate, both ways."""
    shape = f"root tbf rate {rate}mbit {how}"
    ip(f"qdisc replace dev cw-{name} {shape}", "tc")
    ip(f"-n cw-{name} qdisc replace dev eth0 {shape}", "tc")


def large_packets(mtu: int = MTU, how: str = "burst 100kb latency 500ms") -> None:
    """Make packets so large that their headers hardly count."""
    for name, rate in LINKS.items():
        ip(f"link set cw-{name} mtu {mtu}")
        ip(f"-n cw-{name} link set eth0 mtu {mtu}")
        hold(name, rate, how)


@contextmanager
def networks() -> Iterator[None]:
    """A namespace for each client, its link to a bridge of this machine held to a rate both ways."""
    before = CONGESTION.read_text()
    try:
        CONGESTION.write_text("cubic")
        ip(f"link add {BRIDGE} type bridge")
        ip(f"addr add {NETWORK.format(1)} dev {BRIDGE}")
        ip(f"link set {BRIDGE} up")
        for place, (name, rate) in enumerate(LINKS.items(), start=11):
            own = f"-n cw-{name}"
            ip(f"netns add cw-{name}")
            ip(f"link add cw-{name} type veth peer name eth0 netns cw-{name}")
            ip(f"link set cw-{name} master {BRIDGE}")
            ip(f"{own} addr add {NETWORK.format(place)} dev eth0")
            for link in (f"{own} link set eth0 up", f"{own} link set lo up", f"link set cw-{name} up"):
                ip(link)
            subprocess.run([*inside(name), "sh", "-c", f"echo cubic > {CONGESTION}"], check=True)
            # No more than a few packets may run ahead of the rate.
            hold(name, rate, "burst 8kb latency 200ms")
        yield
    finally:
        CONGESTION.write_text(before)
        for words in (*(f"netns del cw-{name}" for name in LINKS), f"link del {BRIDGE}"):
            subprocess.run(["ip", *words.split()], check=False, capture_output=True)


PARTS = {"links": links, "frozen": frozen, "schedules": overlapping, "adapting": adapting}

if __name__ == "__main__":
    sys.exit(main())
