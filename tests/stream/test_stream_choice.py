"""Which of the two ways to connect is taken is known once the stream was imported."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("before", "has", "fast"),
    [
        ("", True, True),
        ("import os; os.environ['CUTWATER_PLAIN_GRPC'] = '1'", True, False),
        ("import sys; sys.modules['grpc._cython.cygrpc'].OperationType = object", False, False),
        ("import sys; sys.modules['grpc._cython.cygrpc'].Channel = object", False, False),
    ],
    ids=["as it is", "by the switch", "without its operations", "without its call"],
)
def test_the_way_is_chosen_when_the_stream_is_imported(before: str, has: bool, fast: bool) -> None:
    code = f"import grpc\n{before}\nfrom cutwater.stream import connection as c\n"
    code += "print(c.HAS_FAST_CALL, c.FAST)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(has), str(fast)]
