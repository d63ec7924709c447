"""Thirty ways to hurt a deployment (`make chaos`): runs the tests of each at full size, and prints a table.

    python scripts/chaos.py                  all of them; the table also becomes docs/chaos.md
    python scripts/chaos.py --seed 7         with the schedules of an earlier run
    python scripts/chaos.py --only 9 17      these alone; docs/chaos.md stays as it is
    python scripts/chaos.py --list           what there is

The scenarios are those of scripts/chaos.toml. One holds if each of its tests was run and passed: a test that
was skipped shows nothing. Exits with 1 if one does not hold.
"""

import argparse
import os
import platform
import random
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "chaos.md"
FULL = {
    "CUTWATER_FUZZ": "1000000",
    "CUTWATER_KILLS": "50",
    "CUTWATER_SERVER_KILLS": "10",
    "CUTWATER_SCHEDULES": "6",
}
"""How much is tried where `make test` tries less."""


class Scenario(NamedTuple):
    """What is done to a deployment, and where that is tried."""

    what: str
    tests: tuple[str, ...]
    quiet: bool = False
    """Whether something is held against the clock, so that nothing may run beside it."""
    cases: str = ""
    """What the cases of its tests are, where their number is its figure."""


class Case(NamedTuple):
    """How one test went."""

    test: str
    passed: bool
    skipped: str
    """Why, if it was."""
    seconds: float
    figures: tuple[tuple[str, str], ...]


class Row(NamedTuple):
    """A scenario in the table."""

    number: int
    what: str
    figures: str
    tried: int
    seconds: float
    verdict: str


def scenarios() -> dict[int, Scenario]:
    """All of them, by number."""
    found = tomllib.loads((ROOT / "scripts" / "chaos.toml").read_text())
    return {
        int(number): Scenario(
            each["what"], tuple(each["tests"]), each.get("quiet", False), each.get("cases", "")
        )
        for number, each in found.items()
    }


def run(chosen: Iterable[Scenario], seed: int) -> list[Case]:
    """All their tests, each once: first those that need quiet, then the others, two at a time."""
    chosen = list(chosen)
    quiet = {test for each in chosen if each.quiet for test in each.tests}
    others = {test for each in chosen for test in each.tests} - quiet
    found = []
    for tests, how in ((quiet, ()), (others, ("-n", "2", "--dist", "loadfile"))):
        if tests:
            found += _pytest([f"tests/{test}" for test in sorted(tests, key=_place)], seed, how)
    return found


def _place(test: str) -> tuple[str, int]:
    """A test's file and its place there: some of a file's tests end what others use."""
    file, _, name = test.partition("::")
    return file, (ROOT / "tests" / file).read_text().find(f"def {name}(") if name else 0


def _pytest(names: Sequence[str], seed: int, how: Sequence[str]) -> list[Case]:
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--hypothesis-seed={seed}"]
        command += [f"--junitxml={report}", "-o", "junit_family=xunit1"]
        command += ["-m", "chaos or not chaos"]  # those that are too long for `make test` as well
        environment = {**os.environ, **FULL, "CUTWATER_SEED": str(seed)}
        subprocess.run([*command, *how, *names], cwd=ROOT, env=environment, check=False)
        return read(report) if report.exists() else []


def read(report: Path) -> list[Case]:
    """What pytest's report says."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        file = "/".join(case.get("classname", "").split(".")[1:]) + ".py"
        skipped = case.find("skipped")
        bad = case.find("failure") is not None or case.find("error") is not None
        figures = [(each.get("name", ""), each.get("value", "")) for each in case.iter("property")]
        found.append(
            Case(
                f"{file}::{case.get('name', '').partition('[')[0]}",
                not bad and skipped is None,
                "" if skipped is None else skipped.get("message", "skipped"),
                float(case.get("time", 0)),
                tuple(figures),
            )
        )
    return found


def row(number: int, scenario: Scenario, cases: Sequence[Case]) -> Row:
    """What came of a scenario: it holds if all of its tests were run, and each of them passed."""
    mine = [case for case in cases if any(_is_of(case, test) for test in scenario.tests)]
    missing = [test for test in scenario.tests if not any(_is_of(case, test) for case in mine)]
    if missing or not all(case.passed or case.skipped for case in mine):
        verdict = "DID NOT HOLD"
    elif any(case.skipped for case in mine):
        verdict = f"SKIPPED ({next(case.skipped for case in mine if case.skipped)})"
    else:
        verdict = "held"
    seconds = sum(case.seconds for case in mine)
    counted = f"{scenario.cases} {sum(case.passed for case in mine)}" if scenario.cases else ""
    figures = "; ".join(filter(None, (counted, told(mine))))
    return Row(number, scenario.what, figures, len(mine), seconds, verdict)


def _is_of(case: Case, test: str) -> bool:
    return case.test == test or case.test.startswith(f"{test}::")


def told(cases: Iterable[Case]) -> str:
    """The figures of some tests: whole numbers of a name are added up, of others the largest is shown."""
    found: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        for name, value in case.figures:
            found[name].append(value)
    return "; ".join(f"{name} {_together(values)}" for name, values in found.items())


def _together(values: Sequence[str]) -> str:
    if all(value.isdigit() for value in values):
        return f"{sum(map(int, values)):,}"
    try:
        return f"{max(map(float, values)):g}"
    except ValueError:
        return ", ".join(values)


def page(rows: Sequence[Row], seed: int, seconds: float) -> str:
    """docs/chaos.md."""
    lines = [
        "# Thirty ways to hurt a deployment",
        "",
        "What becomes of a deployment whose devices, links, disks and clients fail or lie, each tried by",
        "real processes, sockets and files. `make chaos` runs all of it and writes this page; `--seed` of",
        "`scripts/chaos.py` repeats the random schedules of a run, and `scripts/chaos.toml` names the tests",
        "of each scenario. Figures are what the tests measured: sums of counts, the largest of others.",
        "",
        "| # | scenario | figures | tests | s | verdict |",
        "|---:|---|---|---:|---:|---|",
        *(
            f"| {each.number} | {each.what} | {each.figures} | {each.tried} | {each.seconds:.0f} | "
            f"{each.verdict} |"
            for each in rows
        ),
        "",
        f"{_sum(rows)} in {seconds:.0f} s on {os.cpu_count()} cores ({platform.machine()}, "
        f"{platform.system()}, Python {platform.python_version()}), with seed {seed}.",
    ]
    return "\n".join(lines) + "\n"


def show(rows: Sequence[Row], seed: int, seconds: float) -> None:
    """The same for a terminal."""
    print(f"\n{'#':>2}  {'scenario':<52} {'tried':>6} {'seconds':>8}")
    for each in rows:
        print(f"{each.number:>2}  {each.what:<52} {each.tried:>6} {each.seconds:>8.1f}  {each.verdict}")
        if each.figures:
            print(f"      {each.figures}")
    print(f"\n{_sum(rows)} in {seconds:.0f} s, seed {seed}")


def _sum(rows: Sequence[Row]) -> str:
    return f"{sum(each.verdict == 'held' for each in rows)} of {len(rows)} held"


def _chosen(all_: Mapping[int, Scenario], only: Sequence[int]) -> dict[int, Scenario]:
    odd = sorted(set(only) - set(all_))
    if odd:
        sys.exit(f"there is no scenario {odd[0]}: they are 1 to {len(all_)}")
    return {number: all_[number] for number in (sorted(set(only)) or all_)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, help="of all random schedules; drawn and printed if not given")
    parser.add_argument("--only", type=int, nargs="+", default=[], metavar="N", help="these scenarios alone")
    parser.add_argument("--list", action="store_true", help="show what there is, and run nothing")
    given = parser.parse_args(arguments)
    chosen = _chosen(scenarios(), given.only)
    if given.list:
        for number, scenario in chosen.items():
            print(f"{number:2}  {scenario.what}: {len(scenario.tests)} tests")
        return 0
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    cases = run(chosen.values(), seed)
    seconds = time.monotonic() - began
    rows = [row(number, scenario, cases) for number, scenario in chosen.items()]
    show(rows, seed, seconds)
    if not given.only:
        PAGE.write_text(page(rows, seed, seconds))
    return 0 if all(each.verdict == "held" for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
