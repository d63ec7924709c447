"""A client's connection, driven by the thread that trains: no other of ours, and any may end its waiting."""

import _thread
import threading
from types import SimpleNamespace

import grpc
import pytest
import torch
from stream_rig import QUICK, Echo, Slow, eventually, example, expected, in_a_thread, issue, proxied

from cutwater.base.errors import EngineError
from cutwater.stream.client import StreamClient
from cutwater.stream.connection import Line, LostError
from cutwater.stream.server import StreamServer


def test_a_session_needs_no_thread_but_its_callers() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
        before = threading.active_count()
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            for number in range(3):
                client.step(number, *example())
            assert threading.active_count() == before
            assert client.finish() == 3


def test_closing_from_another_thread_ends_the_wait_for_a_slow_server() -> None:
    half = Slow()
    with StreamServer(half, limits=QUICK) as server:
        client = StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK).__enter__()
        thread, out = in_a_thread(lambda: client.step(0, *example()))
        assert half.begun.wait(5)
        client.close()
        thread.join(5)
        assert not thread.is_alive()
        half.go.set()
    assert isinstance(out[0], EngineError)


def test_an_interrupted_wait_ends_the_connection_and_not_the_session() -> None:
    """Ctrl-C between two steps of a device: gRPC gives the call up, and what is left must be usable."""
    half = Slow()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            interrupt = threading.Timer(0.1, lambda: (half.begun.wait(5), _thread.interrupt_main()))
            interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                client.step(0, *example())
            interrupt.join()
            half.go.set()
            reply = client.step(0, *example())
            assert torch.equal(reply.gradients[0], example()[0][0])
            assert client.openings == 2
            assert client.finish() == 1
    assert half.steps == [("k1", 0)]


def test_a_line_can_be_closed_twice_and_says_afterwards_that_it_is_lost(monkeypatch) -> None:
    lines: list[Line] = []
    opened = Line.__init__

    def remember(line: Line, *args: object) -> None:
        opened(line, *args)  # type: ignore[arg-type]
        lines.append(line)

    monkeypatch.setattr(Line, "__init__", remember)
    with (
        StreamServer(Echo(), limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        client.step(0, *example())
        (line,) = lines
        line.close()
        assert line._due == 0, "gRPC keeps a call until all that became of it was asked for"
        line.close()
        with pytest.raises(LostError):
            line.receive(client._assembler(4))
        client.step(1, *example())
        assert len(lines) == 2
        assert client.finish() == 2


@pytest.mark.parametrize("inside", [object(), SimpleNamespace(segregated_call=lambda: None)])
def test_a_grpc_that_is_built_otherwise_is_named(monkeypatch, inside: object) -> None:
    """What is not public may change; a device must then say what to install, and not how gRPC failed."""
    other = SimpleNamespace(_channel=inside, close=lambda: None)
    monkeypatch.setattr(grpc, "secure_channel", lambda *_: other)
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
        with pytest.raises(EngineError, match=r"grpcio [0-9.]+ opens streams in another way.*install one"):
            StreamClient(ticket, expected(), client="k1", limits=QUICK).__enter__()


def test_a_connection_that_breaks_under_a_large_message_is_noticed_by_who_sends_it() -> None:
    rows, width = 8, 1 << 18
    half = Echo()
    with proxied(half) as (server, proxy):
        ticket = issue(server, expected(rows, width))
        with StreamClient(ticket, expected(rows, width), client="k1", limits=QUICK) as client:
            proxy.cut_after["up"] = 3 << 20
            reply = client.step(0, *example(rows, width))
            assert torch.equal(reply.gradients[0], example(rows, width)[0][0])
            assert client.openings == 2
    assert eventually(lambda: half.steps == [("k1", 0)])
