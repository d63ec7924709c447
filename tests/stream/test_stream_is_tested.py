"""Says aloud when the stream's tests are left out."""

from importlib.util import find_spec

import pytest


def test_the_activation_stream_is_tested() -> None:
    missing = [name for name in ("cryptography", "grpc", "xxhash") if find_spec(name) is None]
    if missing:
        pytest.skip(
            f"the activation stream is NOT tested: {', '.join(missing)} missing; "
            f"install with  pip install 'cutwater[flower]'"
        )
