"""How fast the exact planner is, and how far the paper's algorithm is from it: ratios, in one run.

    python benchmarks/plan.py            all of it, about two minutes on two cores
    python benchmarks/plan.py --quick    smaller fleets, for a look

Exits with 1 if a limit is missed. Times are medians, taken in turns, so that a busy machine hits all alike.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from cutwater.plan.alternating import alternating
from cutwater.plan.exact import exact
from cutwater.plan.fleet import Fleet
from cutwater.plan.latency import overlapped_seconds
from cutwater.plan.problem import Problem, Server
from cutwater.plan.session import Session, Wires
from cutwater.profile.values import Profile

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "helpers"))

FASTER_THAN_SCIP = 100
OF_ONE_TABLE = 0.25
FEW_WITHIN = 5.0
"""Milliseconds."""
MEMORY = 1 << 30
EXPONENT = 1.15


def papers_profile() -> Profile:
    from cutwater.profile.count import profile_model

    return profile_model("efficientnet_v2_m", input="1x28x28", classes=10, count="paper", kappa=4.7)


def papers_kind(profile: Profile, count: int, seed: int) -> Problem:
    """Clients of the paper's kind, and its 3,000 GFLOPS for every ten of them."""
    rng = np.random.default_rng(seed)
    rate = rng.uniform(2, 12, count) * 8e6
    fleet = Fleet.from_columns(
        compute=rng.uniform(50e9, 300e9, count),
        up=rate,
        down=rate,
        samples=rng.integers(361, 3579, count),
    )
    return Problem(profile, fleet, Server(300e9 * count), Session(epochs=20))


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def against_scip(profile: Profile, fleets: int) -> bool:
    from scip_oracle import scip_optimum

    ratios, gaps = [], []
    for seed in range(fleets):
        problem = papers_kind(profile, 10, seed)
        ours = median(seconds(lambda: exact(problem)) for _ in range(9))  # noqa: B023
        start = time.perf_counter()
        theirs = scip_optimum(problem)
        ratios.append((time.perf_counter() - start) / ours)
        gaps.append(abs(exact(problem).latency / theirs - 1))
    good = median(ratios) >= FASTER_THAN_SCIP and max(gaps) <= 1e-6
    print(
        f"SCIP, 10 clients x 59 cuts, {fleets} fleets: exact is {median(ratios):.0f} x faster "
        f"({min(ratios):.0f} to {max(ratios):.0f}; limit {FASTER_THAN_SCIP}), "
        f"optima differ by {max(gaps):.0e}",
        _verdict(good),
    )
    return good


def one_table(problem: Problem) -> float:
    """One numpy evaluation of the K × L latency table, at equal shares."""
    costs, fleet, work = problem.costs, problem.fleet, problem.work[:, None]
    share = problem.server.compute / len(problem)
    table = costs.bits * (1 / fleet.up + 1 / fleet.down)[:, None] + work * (
        costs.client / fleet.compute[:, None]
        + costs.server / share
        + costs.smashed / fleet.up[:, None]
        + costs.gradient / fleet.down[:, None]
    )
    return float(table.min())


def against_one_table(profile: Profile, count: int) -> bool:
    problem = papers_kind(profile, count, 1)
    tables, plans, phases = [], [], []
    for _ in range(5):
        tables.append(seconds(lambda: one_table(problem)))
        start = time.perf_counter()
        plan = exact(problem)
        plans.append(time.perf_counter() - start)
        phases.append(seconds(lambda: plan.latency))  # noqa: B023
    ratio = median(plans) / median(tables)
    print(
        f"{count:,} clients x {problem.layers} cuts: exact {median(plans):.2f} s, one numpy table "
        f"{median(tables):.2f} s: {ratio:.2f} x (limit {OF_ONE_TABLE}); "
        f"all clients' phases take another {median(phases):.2f} s",
        _verdict(ratio <= OF_ONE_TABLE),
    )
    return ratio <= OF_ONE_TABLE


def with_wires(problem: Problem) -> Problem:
    """The same with six ways to cross each cut: two schedules by three codecs."""
    session = Session(epochs=20, micro_batches=4)
    wires = Wires(up=("fp32", "bf16", "int8"))
    return problem.replace(session=session, wires=wires)


def one_table_of_wires(problem: Problem, chunk: int = 1000) -> float:
    """One numpy evaluation of the K × L × 6 latencies by the closed form, at equal shares."""
    costs, crossing, fleet = problem.costs, problem.wire_costs, problem.fleet
    cuts, share = np.arange(1, problem.layers)[:, None], problem.server.compute / len(problem)
    rows, best = cuts - 1, np.inf
    for start in range(0, len(problem), chunk):
        some = slice(start, start + chunk)
        up, down, work = fleet.up[some], fleet.down[some], problem.work[some]
        parts, trips = problem.steps.parts[some], problem.steps.parts[some] * fleet.rtt[some]
        model = costs.bits[rows] * (1 / up + 1 / down)
        computing = work * (costs.client[rows] / fleet.compute[some] + costs.server[rows] / share)
        for wire, overlapped in enumerate(crossing.overlapped):
            if overlapped:
                table = model + overlapped_seconds(problem, cuts, share, some, wire)
            else:
                sent = work * crossing.smashed[wire, rows] + parts * crossing.smashed_message[wire, rows]
                got = work * crossing.gradient[wire, rows] + parts * crossing.gradient_message[wire, rows]
                table = model + computing + sent / up + got / down + trips
            best = min(best, float(table.min()))
    return best


def against_one_table_of_wires(profile: Profile, count: int) -> bool:
    base = papers_kind(profile, count, 1)
    tables, plans = [], []
    for _ in range(3):
        problem = with_wires(base)
        start = time.perf_counter()
        plan = exact(problem)
        plans.append(time.perf_counter() - start)
        assert plan.gap <= 1e-9
        tables.append(seconds(lambda: one_table_of_wires(problem)))  # noqa: B023
    ratio = median(plans) / median(tables)
    print(
        f"{count:,} clients x {problem.layers} cuts x {len(problem.options)} wires: exact "
        f"{median(plans):.2f} s, one numpy table {median(tables):.2f} s: {ratio:.2f} x "
        f"(limit {OF_ONE_TABLE})",
        _verdict(ratio <= OF_ONE_TABLE),
    )
    return ratio <= OF_ONE_TABLE


def few_clients_with_wires(profile: Profile) -> bool:
    base = papers_kind(profile, 10, 1)
    milliseconds = 1e3 * median(seconds(lambda: exact(with_wires(base))) for _ in range(51))
    print(
        f"10 clients x {len(profile)} cuts x 6 wires: exact {milliseconds:.1f} ms (limit {FEW_WITHIN})",
        _verdict(milliseconds <= FEW_WITHIN),
    )
    return milliseconds <= FEW_WITHIN


def peak_memory(count: int) -> bool:
    """Peak memory of a whole process that does nothing but plan from a saved profile, without torch."""
    done = subprocess.run(
        [sys.executable, __file__, "--plan-only", str(count)],
        input=json.dumps(papers_profile().to_json()),
        capture_output=True,
        text=True,
        check=True,
    )
    peak = int(done.stdout)
    print(
        f"{count:,} clients: peak memory {peak / 2**20:.0f} MiB of the whole process (limit {MEMORY >> 20})",
        _verdict(peak <= MEMORY),
    )
    return peak <= MEMORY


def plan_only(count: int) -> None:
    problem = papers_kind(Profile.from_json(json.load(sys.stdin)), count, 1)
    plan = exact(problem)
    assert plan.gap <= 1e-9
    # Not getrusage: its peak would include the process that started this one.
    status = Path("/proc/self/status").read_text()
    print(1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))))


def growth(profile: Profile, largest: int) -> bool:
    counts = [10**power for power in range(3, len(str(largest)))]
    times = []
    for count in counts:
        problem = papers_kind(profile, count, 2)
        times.append(median(seconds(lambda: exact(problem)) for _ in range(5)))  # noqa: B023
    exponent = float(np.polyfit(np.log(counts), np.log(times), 1)[0])
    each = ", ".join(f"{count:,}: {t * 1e6 / count:.2f} µs" for count, t in zip(counts, times, strict=True))
    print(
        f"time grows as K^{exponent:.2f} (limit {EXPONENT}); for each client, {each}",
        _verdict(exponent <= EXPONENT),
    )
    return exponent <= EXPONENT


def gap_of_the_papers_algorithm(profile: Profile, fleets: int) -> None:
    problems = [papers_kind(profile, 10, seed) for seed in range(fleets)]
    optima = np.array([exact(problem).latency for problem in problems])
    names = {
        "cuts": "cuts by regression, shares on the true profile",
        "all": "cuts and shares by regression",
        "none": "cuts and shares on the true profile",
    }
    for fitted, what in names.items():
        plans = [alternating(problem, fitted=fitted) for problem in problems]
        gaps = np.array([plan.latency for plan in plans]) / optima - 1
        cycles = np.mean([plan.outcome.startswith("cycle") for plan in plans])
        print(
            f"alternating ({what}), {fleets} fleets of 10: {gaps.mean():.1%} above the optimum on average, "
            f"{np.median(gaps):.1%} in the middle, {gaps.max():.1%} at worst; {cycles:.0%} end in a cycle"
        )


def _verdict(good: bool) -> str:
    return "ok" if good else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plan-only", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plan_only:
        plan_only(arguments.plan_only)
        return
    largest = 100_000 if arguments.quick else 1_000_000
    profile = papers_profile()
    for problem in (papers_kind(profile, 2, 0), with_wires(papers_kind(profile, 2, 0))):
        exact(problem)  # load compiled code before any clock starts
    good = [
        against_scip(profile, 3 if arguments.quick else 10),
        against_one_table(profile, largest),
        against_one_table_of_wires(profile, largest),
        few_clients_with_wires(profile),
        peak_memory(largest),
        growth(profile, largest),
    ]
    gap_of_the_papers_algorithm(profile, 100 if arguments.quick else 1000)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
