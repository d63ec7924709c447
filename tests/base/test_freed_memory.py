"""Freed memory is kept: allocating it again costs no page faults."""

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys, torch
from cutwater.base.freed_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()

def steps(count):
    for _ in range(count):
        alive = [torch.ones(700_000) for _ in range(4)]  # 11 MB, given up together
        del alive

steps(5)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
steps(20)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def faults(how: str) -> float:
    # glibc's own thresholds, which it would otherwise raise as it goes, more or less soon.
    fixed = {"MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    command = [sys.executable, "-c", FAULTS, how]
    done = subprocess.run(command, env={**os.environ, **fixed}, capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told to keep memory")
def test_a_process_that_keeps_its_memory_does_not_fault_at_every_step() -> None:
    assert faults("keep") < 50
    assert faults("as it comes") > 1000
