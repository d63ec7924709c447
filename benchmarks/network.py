"""Predicted against measured seconds over links that are really slow, and what a link that breaks does.

    python benchmarks/network.py        about two minutes on two cores, as root

Needs Linux and iproute2; where it can't make networks it says so and measures nothing. Each client has
a network namespace of its own, whose link the kernel holds to a rate; nothing is emulated. What a user does
is done in order: probe every link (`cutwater probe`), write the scenario, train on a Flower fleet with TLS,
read the audit. Then it trains again, and the slowest link is cut in the middle of its session. Both times
the weights must be those of training in one process, bit for bit. Exits with 1 if a limit is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cutwater.execute.local import run
from cutwater.federate.from_scenario import study_of
from cutwater.fleet.link_probe import EchoServer
from cutwater.fleet.supernodes import LocalFleet
from cutwater.runs.audit import audit
from cutwater.runs.metrics import read
from cutwater.runs.values import Round
from cutwater.scenario.file import load_scenario

OFF = 0.15
"""How far measured may be from predicted, of predicted."""
LINKS = {"slow": 4, "mid": 12, "fast": 40}
"""Mbit/s that the kernel lets through, up and down."""
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
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter).parse_args()
    if sys.platform != "linux" or os.geteuid() != 0 or not possible():
        print("skipped: networks of our own need Linux, root and iproute2")
        return 0
    with networks(), tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "network.toml")
        scenario.write_text(probed(Path(folder)), encoding="utf-8")
        wanted = [step.record.weights_sha256 for step in run(study_of(load_scenario(scenario)))]
        with Shaped(scenario, host=HOST) as fleet:
            fleet.run(Path(folder, "plain"), emulate=False)
            scissors = Scissors("slow")
            fleet.run(Path(folder, "broken"), emulate=False, rounds=1, meanwhile=scissors, name="broken")
        kept = [judge(each) for each in audit(Path(folder, "plain")).rounds]
        kept += [
            same("in two rounds", sha256s(Path(folder, "plain")), wanted),
            same(f"after a cut of {scissors.seconds:.1f} s", sha256s(Path(folder, "broken")), wanted[:1]),
        ]
        if not scissors.seconds:
            print("MISS the link was never cut: its session was over too soon")
    return 0 if all(kept) and scissors.seconds else 1


def judge(each: Round) -> bool:
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
    return int(Path(f"/sys/class/net/cw-{name}/statistics/rx_bytes").read_text())


def probed(folder: Path) -> str:
    """The scenario, with what `cutwater probe` finds in each namespace."""
    bare = folder / "bare.toml"
    text = CLIENT.format(name="any", compute="1 GFLOPS", up="1 MB/s", down="1 MB/s", forbidden=SPLIT)
    bare.write_text(SCENARIO.format(compute="1 GFLOPS") + text, encoding="utf-8")
    clients, compute = [], 0.0
    with EchoServer(HOST) as server:
        for name, rate in LINKS.items():
            command = [*inside(name), sys.executable, "-m", "cutwater", "probe", str(bare), "--json"]
            address = f"{HOST}:{server.port}"
            said = subprocess.run([*command, "--server", address], check=True, capture_output=True).stdout
            found = json.loads(said)
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


@contextmanager
def networks() -> Iterator[None]:
    """A namespace for each client, its link to a bridge of this machine held to a rate both ways."""
    try:
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
            # No more than a few packets may run ahead of the rate.
            shape = f"root tbf rate {rate}mbit burst 8kb latency 200ms"
            ip(f"qdisc add dev cw-{name} {shape}", "tc")
            ip(f"{own} qdisc add dev eth0 {shape}", "tc")
        yield
    finally:
        for words in (*(f"netns del cw-{name}" for name in LINKS), f"link del {BRIDGE}"):
            subprocess.run(["ip", *words.split()], check=False, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
