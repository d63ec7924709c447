"""Says aloud when the stream's tests are left out."""

import pytest

from cutwater.base.extras import STREAM, missing


def test_the_activation_stream_is_tested() -> None:
    if lacking := missing(STREAM):
        pytest.skip(
            f"the activation stream is NOT tested: {', '.join(lacking)} missing; "
            f"install with  pip install 'cutwater[flower]'"
        )
