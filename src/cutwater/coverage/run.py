"""Check many models, in processes of their own, and write down what became of them."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec

from cutwater.base.errors import ModelError, suggest
from cutwater.coverage.case import Case, Result

Heard = Callable[[Result], None]


def choose(cases: Sequence[Case], wanted: Sequence[str]) -> list[Case]:
    """The models of libraries or with names that are asked for; all unless any are."""
    if not wanted:
        return list(cases)
    libraries = sorted({case.library for case in cases})
    for word in wanted:
        if not any(word in (case.library, case.name, case.key) for case in cases):
            raise ModelError(f"no library or model of the list is named {word!r}; {suggest(word, libraries)}")
    return [case for case in cases if {case.library, case.name, case.key} & set(wanted)]


def run(cases: Sequence[Case], seconds: float, heard: Heard) -> list[Result]:
    """Check models one after the other; ``heard`` is told of each as soon as it is done."""
    results = [Result(case.library, case.name) for case in cases]
    there = [find_spec(case.library) is not None for case in cases]
    for result, present in zip(results, there, strict=True):
        if not present:
            heard(result.ends("skipped", f"{result.library} is not installed"))
    places = [place for place, present in enumerate(there) if present]
    found = _checked([cases[place].key for place in places], seconds)
    for place in places:
        checked = next(found, None)
        results[place] = checked or results[place].ends("wrong", "the process that checks models crashed")
        heard(results[place])
    return results


def _checked(keys: Sequence[str], seconds: float) -> Iterator[Result]:
    """Results in the order of the keys, as they come."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUTWATER_COVERAGE_SECONDS": str(seconds)}
    command = [sys.executable, "-m", "cutwater.coverage", *keys]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as host:
        assert host.stdout is not None
        try:
            for line in host.stdout:
                if line.startswith("{"):
                    yield Result(**json.loads(line))
        finally:
            host.kill()
