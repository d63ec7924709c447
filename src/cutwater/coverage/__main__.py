"""Check models, each in a process of its own: ``python -m cutwater.coverage KEY ...`` prints lines of JSON.

A process is forked from one that has imported everything, as importing takes longer than most checks. One
that crashes or takes too long ends nothing but itself.
"""

import importlib
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection
from typing import Any

from cutwater.coverage.case import Case
from cutwater.coverage.checks import check
from cutwater.coverage.models import all_cases
from cutwater.coverage.result import Result
from cutwater.coverage.without_operators import import_torchvision

SECONDS = float(os.environ.get("CUTWATER_COVERAGE_SECONDS", "180"))
"""The time limit of a model, in seconds of a processor, so that a busy machine finds nothing else."""
_HANGS = 10
"""Times as many seconds by the clock after which one that waits for something is given up."""
PRELOADED = ("torch.export", "torch._dynamo", "torch._export", "transformers", "timm")


def main() -> None:
    """Results come in the order of the keys."""
    warnings.simplefilter("ignore")
    cases = {case.key: case for case in all_cases()}
    import_torchvision()
    for name in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(name)
    for key in sys.argv[1:]:
        print(json.dumps(_check_apart(cases[key]).to_json()), flush=True)


def _check_apart(case: Case) -> Result:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_in_child, args=(case, there))
    child.start()
    there.close()
    result = Result(case.library, case.name)
    try:
        if here.poll(_HANGS * SECONDS):
            return Result(**here.recv())
        return result.ends("wrong", f"is not done after {_HANGS * SECONDS:.0f} seconds by the clock")
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGXCPU
        return result.ends(
            "wrong", f"takes longer than {SECONDS:.0f} seconds" if late else "the process crashed"
        )
    finally:
        child.kill()
        child.join()


def _in_child(case: Case, answer: Connection) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(SECONDS), most))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        result: dict[str, Any] = check(case).to_json()
    answer.send(result)


main()
