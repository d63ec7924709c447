"""Check models, each in a process of its own: ``python -m cutwater.coverage KEY ...`` prints lines of JSON.

A process is forked from one that has imported everything, as importing takes longer than most checks. One
that crashes or takes too long ends nothing but itself.
"""

import importlib
import json
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout, suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from cutwater.coverage.case import Case, Result
from cutwater.coverage.checks import check
from cutwater.coverage.models import all_cases

SECONDS = float(os.environ.get("CUTWATER_COVERAGE_SECONDS", "180"))
"""The time limit of a model, in seconds of a processor, so that a busy machine finds nothing else."""
_HANGS = 10
"""Times as many seconds by the clock after which one that waits for something is given up."""
_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")
_declared: list[torch.library.Library] = []
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


def import_torchvision() -> None:
    """Import torchvision, whether its compiled operators load or not; where it is not installed, do nothing.

    They don't load beside every build of torch. Its Python files name them when they are imported, and other
    libraries import it in turn. Declared by name alone, everything that does without them (all of the models
    here) works.
    """
    while True:
        try:
            importlib.import_module("torchvision")
            return
        except ImportError:
            return
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define(f"{missing[1]}(Tensor value) -> Tensor")  # type: ignore[no-untyped-call]
            _declared.append(library)
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]


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
