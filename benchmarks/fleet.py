"""A Flower fleet on this machine, on the wall: a round against its prediction, and split against whole.

    python benchmarks/fleet.py

Runs what `make demo-flower` runs, once. A round, from its orders to its aggregate, may take 1.1 times the
predicted seconds with either planner; split rounds are at least 3 times as fast as those of the whole model;
and all of it, enrolment and certificates included, is over in 180 s. Exits with 1 if a limit is missed.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean

EXAMPLE = Path(__file__).parents[1] / "examples" / "fleet.toml"
WHOLE, SPLIT = "fedavg", "exact"
OF_PREDICTION, FASTER, LONGEST = 1.1, 3.0, 180.0


def demo() -> tuple[dict, float]:
    command = [sys.executable, "-m", "cutwater", "fleet", str(EXAMPLE), "--rounds", "1", "--json"]
    began = time.monotonic()
    done = subprocess.run(
        [*command, "--planner", WHOLE, "--planner", SPLIT], stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout), time.monotonic() - began


def told(what: str, good: bool) -> bool:
    print(f"{what} {'ok' if good else 'MISSED'}")
    return good


def main() -> int:
    found, seconds = demo()
    walls, good = {}, []
    for name in (WHOLE, SPLIT):
        rounds = found[name]["rounds"]
        walls[name] = mean(each["wall_seconds"] for each in rounds)
        predicted = mean(each["planned_seconds"] for each in rounds)
        enrolled = sum(each["enrolment_seconds"] for each in rounds)
        ratio = walls[name] / predicted
        what = (
            f"{name}: {walls[name]:.2f} s on the wall, {predicted:.2f} s predicted, after {enrolled:.1f} s "
            f"of enrolment: {ratio:.3f} x (at most {OF_PREDICTION})"
        )
        good.append(told(what, ratio <= OF_PREDICTION))
    faster = walls[WHOLE] / walls[SPLIT]
    good.append(told(f"split is {faster:.2f} x as fast on the wall (at least {FASTER})", faster >= FASTER))
    good.append(told(f"all of it took {seconds:.0f} s (at most {LONGEST:.0f})", seconds <= LONGEST))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
