"""What the stream's tests share: both ways to connect, and their absence where packages are missing."""

import pytest

from cutwater.base.extras import STREAM, missing

collect_ignore_glob: list[str] = []
if missing(STREAM):
    # Without the extra packages of the stream its tests can't even be imported; one of them then says so.
    collect_ignore_glob = ["test_stream_[!i]*.py"]

CONNECTING = {"StreamClient", "connect"}
"""A test module that imports one of these is run twice."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Whatever connects is tested over gRPC's core and over its public interface."""
    if CONNECTING & set(vars(metafunc.module)):
        metafunc.fixturenames.insert(0, "calls")
        metafunc.parametrize("calls", ["fast", "plain"], indirect=True)


@pytest.fixture
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How devices connect in this test."""
    from cutwater.stream import connection

    assert connection.HAS_FAST_CALL, "the grpcio of the tests has both ways"
    monkeypatch.setattr(connection, "FAST", request.param == "fast")
    return request.param
