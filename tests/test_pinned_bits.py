"""Plans to the last digit and weights to the last bit, as they were recorded: a change of either is seen.

    python tests/test_pinned_bits.py        records them anew, where they are meant to change

Other instructions and releases of torch and numpy add up in another order, so what was recorded counts only
where these are the same. Everything is computed in a process of its own in which torch, oneDNN and numpy use
AVX2 and nothing newer: a processor that has more gives the same bits then.
"""

import json
import os
import platform
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutwater.execute.local import run
from cutwater.federate.from_scenario import study_of
from cutwater.plan.planners import solve
from cutwater.scenario.file import load_scenario

EXAMPLES = Path(__file__).parents[1] / "examples"
RECORDED = Path(__file__).parent / "recorded" / "bits.json"
PLANNERS = ("exact", "alternating")
FOUND = np.show_config(mode="dicts")["SIMD Extensions"]["found"]  # type: ignore[call-overload]
NEWER = [name for name in FOUND if name.startswith("AVX512") or name == "X86_V4"]
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": " ".join(NEWER),
    "OMP_NUM_THREADS": "1",
}
"""What holds torch's own kernels, oneDNN's and numpy's to AVX2; all read it when they are loaded."""
ROUNDS = {"digits": 15, "mnist": 3}
"""Rounds that are recorded of each example."""


def conditions() -> dict[str, str]:
    """What the bits depend on, besides this package."""
    vendor = platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        vendor = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), vendor
        )
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": f"{platform.machine()} {vendor}, {torch.backends.cpu.get_cpu_capability()}",
    }


def plans() -> dict[str, Any]:
    problem = load_scenario(EXAMPLES / "paper-ten.toml").problem()
    found = {}
    for name in PLANNERS:
        plan = solve(problem, name)
        found[name] = {
            "latency": plan.latency.hex(),
            "lower_bound": plan.lower_bound.hex(),
            "cuts": plan.cuts.tolist(),
            "shares": [share.hex() for share in plan.shares.tolist()],
        }
    return found


def weights(example: str, rounds: int) -> list[str]:
    study = study_of(load_scenario(EXAMPLES / f"{example}.toml"), rounds=rounds)
    return [record.weights_sha256 for record in run(study, workers=1).records]


def held_to_avx2(what: str, *options: object) -> Any:
    """What a function of this file gives in a process that uses AVX2 at the most."""
    command = [sys.executable, __file__, what, *map(str, options)]
    done = subprocess.run(command, env=os.environ | AVX2, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    """What was recorded, where it can be the same."""
    pinned: dict[str, Any] = json.loads(RECORDED.read_text())
    here = held_to_avx2("conditions")
    for what, there in pinned["conditions"].items():
        if there != here[what]:
            pytest.skip(f"bits were recorded with {what} {there}, and this is {here[what]}")
    return pinned


def test_plans_of_the_papers_ten_clients_are_the_same_to_the_last_digit(recorded):
    assert held_to_avx2("plans") == recorded["plans"]


def test_all_rounds_of_digits_are_the_same_to_the_last_bit(recorded):
    assert len(recorded["weights"]["digits"]) == ROUNDS["digits"] == 15
    assert held_to_avx2("weights", "digits", 15) == recorded["weights"]["digits"]


def test_the_first_round_of_mnist_is_the_same_to_the_last_bit(recorded, mnist_folder, monkeypatch):
    monkeypatch.setenv("CUTWATER_DATA", str(mnist_folder))
    assert held_to_avx2("weights", "mnist", 1) == recorded["weights"]["mnist"][:1]


@pytest.mark.long
def test_and_so_are_its_first_three(recorded, mnist_folder, monkeypatch):
    monkeypatch.setenv("CUTWATER_DATA", str(mnist_folder))
    assert held_to_avx2("weights", "mnist", 3) == recorded["weights"]["mnist"]


def record() -> None:
    """Write what comes out here; MNIST is looked for in the folder that CUTWATER_DATA names."""
    found = {example: held_to_avx2("weights", example, rounds) for example, rounds in ROUNDS.items()}
    pinned = {name: held_to_avx2(name) for name in ("conditions", "plans")} | {"weights": found}
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(json.dumps(pinned, indent=1) + "\n")


def main(what: str | None = None, *options: str) -> None:
    """Print, as JSON, what a function of this file gives; or record all."""
    if what is None:
        record()
    elif what == "weights":
        print(json.dumps(weights(options[0], int(options[1]))))
    else:
        print(json.dumps({"conditions": conditions, "plans": plans}[what]()))


if __name__ == "__main__":
    main(*sys.argv[1:])
