"""What advice costs beside a plan: the best ten of all changes, and a plan as CSV, as ratios in one run.

    python benchmarks/advice.py            a million clients, a few minutes on two cores
    python benchmarks/advice.py --quick    a hundred thousand, for a look

Exits with 1 if the limit of a ratio is missed. Times are medians, taken in turns, so that a busy machine hits
all alike. Of the commands themselves, from start to end, seconds and memory are shown beside what they should
be at most on two idle cores, and CPU seconds, by which a busy machine is told from a slow program.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from cutwater.plan.exact import exact
from cutwater.plan.table import write_plan
from cutwater.plan.whatif import ranking
from plan import papers_kind, papers_profile, seconds

SMALL = 10_000
OF_ONE_PLAN = 12.0
"""The best ten of all single changes take at most so many plans' time."""
OF_ONE_PLAN_AS_CSV = 40.0
WHATIF = {10_000: 2.0, 1_000_000: 10.0}
"""Seconds that `cutwater whatif` should take at most, by the number of clients."""
AS_CSV = {1_000_000: (15.0, 2e9)}
"""Seconds and bytes of memory that `cutwater plan --out plan.csv` should take at most."""
SCENARIO = """
profile = "profile.json"
[server]
compute = "{compute} GFLOPS"
[session]
epochs = 20
[fleet]
clients = {count}
compute = ["50 GFLOPS", "300 GFLOPS"]
rate = ["2 MB/s", "12 MB/s"]
samples = [361, 3578]
"""


def advice(profile, count: int) -> bool:
    problem = papers_kind(profile, count, 1)
    plans, found = [], []
    for _ in range(3):
        plans.append(seconds(lambda: exact(problem).latency))
        found.append(seconds(lambda: ranking(problem)))
    ratio = median(found) / median(plans)
    verdict = "ok" if ratio <= OF_ONE_PLAN else "MISSED"
    print(
        f"{count:,} clients: the best ten of {1 + 2 * count:,} changes in {median(found):.2f} s, a plan in "
        f"{median(plans):.2f} s: {ratio:.1f} x (limit {OF_ONE_PLAN:.0f}) {verdict}"
    )
    return ratio <= OF_ONE_PLAN


def as_csv(profile, count: int) -> bool:
    plan = exact(papers_kind(profile, count, 1))
    planned = seconds(lambda: exact(papers_kind(profile, count, 1)).latency)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.csv"
        written = seconds(lambda: write_plan(path, plan))
        size = path.stat().st_size
    ratio = written / planned
    verdict = "ok" if ratio <= OF_ONE_PLAN_AS_CSV else "MISSED"
    print(
        f"{count:,} clients: {size / 1e6:.0f} MB of CSV in {written:.1f} s, {ratio:.1f} x the plan "
        f"(limit {OF_ONE_PLAN_AS_CSV:.0f}) {verdict}"
    )
    return ratio <= OF_ONE_PLAN_AS_CSV


def command(folder: Path, *arguments: str) -> tuple[float, float, float]:
    """Seconds on the wall, CPU seconds and bytes of memory of a command, in a process of its own."""
    began = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "cutwater", *arguments],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, str(folder / "out.txt"), os.O_WRONLY | os.O_CREAT, 0o600)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        sys.exit(f"cutwater {' '.join(arguments)} failed")
    return time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0


def shown(taken: float, most: float | None, unit: str = "s") -> str:
    limit = "" if most is None else f" (at most {most:g} {unit}: {'ok' if taken <= most else 'MISSED'})"
    return f"{taken:.2f} {unit}{limit}"


def commands(profile, counts: tuple[int, ...]) -> None:
    """The commands as people run them; what they should take at most is shown, and no exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profile.json").write_text(json.dumps(profile.to_json()))
        for count in counts:
            path = folder / "fleet.toml"
            path.write_text(SCENARIO.format(compute=300 * count, count=count))
            wall, cpu, memory = command(folder, "whatif", str(path))
            most = shown(wall, WHATIF.get(count))
            print(f"{count:,} clients: cutwater whatif in {most}, {cpu:.2f} s of CPU, {memory / 1e9:.2f} GB")
        wall, cpu, memory = command(folder, "plan", str(path), "--out", str(folder / "plan.csv"))
        most_seconds, most_bytes = AS_CSV.get(count, (None, None))
        most_gb = None if most_bytes is None else most_bytes / 1e9
        print(
            f"{count:,} clients: cutwater plan --out plan.csv in {shown(wall, most_seconds)}, {cpu:.2f} s of "
            f"CPU, {shown(memory / 1e9, most_gb, 'GB')}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    largest = 100_000 if parser.parse_args().quick else 1_000_000
    profile = papers_profile()
    ranking(papers_kind(profile, 100, 0))  # load compiled code before any clock starts
    good = [advice(profile, SMALL), advice(profile, largest), as_csv(profile, largest)]
    commands(profile, (SMALL, largest))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
