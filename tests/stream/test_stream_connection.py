"""A client's connection: which way it is opened, whose threads it needs, and that any may end its waiting."""

import _thread
import threading
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import torch
from stream_rig import QUICK, Echo, Slow, eventually, example, expected, in_a_thread, issue, proxied

from cutwater.base.errors import EngineError
from cutwater.stream import connection, session_connections
from cutwater.stream.call_end import LostError
from cutwater.stream.client import StreamClient
from cutwater.stream.connection import Connection, connect
from cutwater.stream.fast_call import FastCall
from cutwater.stream.plain_call import PlainCall
from cutwater.stream.server import StreamServer


def test_a_session_needs_no_thread_but_its_callers_and_a_lookout_unless_it_is_grpcs(calls: str) -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
        before = threading.active_count()
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            for number in range(3):
                client.step(number, *example())
            # One looks out for partitions; none carries parts.
            assert (threading.active_count() == before + 1) == (calls == "fast")
            assert client.finish() == 3
        assert eventually(lambda: threading.active_count() == before), "and leaves none behind"


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


def test_a_connection_can_be_closed_twice_and_says_afterwards_that_it_is_lost(
    monkeypatch, calls: str
) -> None:
    connections: list[Connection] = []

    def remember(*args: Any, **how: Any) -> Connection:
        connections.append(connect(*args, **how))
        return connections[-1]

    monkeypatch.setattr(session_connections, "connect", remember)
    with (
        StreamServer(Echo(), limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        client.step(0, *example())
        (first,) = connections
        first.close()
        if calls == "fast":
            assert first._due == 0, "gRPC keeps a call until all that became of it was asked for"
        first.close()
        with pytest.raises(LostError):
            first.receive(client._connections._assembler)
        client.step(1, *example())
        assert len(connections) == 2
        assert client.finish() == 2


def test_a_part_of_one_frame_and_its_reply_wake_the_device_once(monkeypatch, calls: str) -> None:
    seen: list[object] = []
    note = FastCall._note
    monkeypatch.setattr(FastCall, "_note", lambda call, event: (seen.append(event), note(call, event)))
    with (
        StreamServer(Echo(), limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        for number in range(3):
            seen.clear()
            reply = client.step(number, *example())
            assert torch.equal(reply.gradients[0], example()[0][0])
            assert len(seen) == (calls == "fast")


def test_the_way_is_the_one_that_was_asked_for(calls: str) -> None:
    with (
        StreamServer(Echo(), limits=QUICK) as server,
        StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client,
    ):
        assert (
            type(client._connections.connection).__name__ == {"fast": "FastCall", "plain": "PlainCall"}[calls]
        )


@pytest.mark.parametrize("inside", [object(), SimpleNamespace(segregated_call=lambda: None)])
def test_a_grpc_that_is_built_otherwise_is_used_by_its_public_interface(
    monkeypatch, inside: object, calls: str
) -> None:
    """What is not public may change. What then fails is noticed at the first connection, once."""
    opened, channels = grpc.secure_channel, []

    def other(*args: Any) -> Any:
        channels.append(opened(*args))
        monkeypatch.setattr(grpc, "secure_channel", opened)
        return SimpleNamespace(_channel=inside, close=channels[0].close)

    if calls == "fast":
        monkeypatch.setattr(FastCall, "works", True)
        monkeypatch.setattr(grpc, "secure_channel", other)
    with StreamServer(Echo(), limits=QUICK) as server:
        for name in ("k1", "k2"):
            ticket = issue(server, expected(), name)
            with StreamClient(ticket, expected(), client=name, limits=QUICK) as client:
                assert torch.equal(client.step(0, *example()).gradients[0], example()[0][0])
                assert isinstance(client._connections.connection, PlainCall)
                assert client.openings == 1
                assert client.finish() == 1


NOTE = FastCall._note


@pytest.mark.parametrize(
    "note",
    [
        lambda _, event: event.no_such_thing,
        lambda call, event: NOTE(call, SimpleNamespace(batch_operations=())),
    ],
    ids=["another form", "no operations"],
)
def test_a_grpc_that_says_otherwise_what_happened_costs_a_session_one_connection(monkeypatch, note) -> None:
    """What can't be known before the first message is noticed there, and the session goes on."""
    monkeypatch.setattr(FastCall, "works", True)
    monkeypatch.setattr(connection, "FAST", True)
    monkeypatch.setattr(FastCall, "_note", note)
    with StreamServer(Echo(), limits=QUICK) as server:
        with StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK) as client:
            assert torch.equal(client.step(0, *example()).gradients[0], example()[0][0])
            assert isinstance(client._connections.connection, PlainCall)
            assert client.openings == 2
            assert client.finish() == 1
        with StreamClient(issue(server, expected(), "k2"), expected(), client="k2", limits=QUICK) as client:
            assert client.openings == 1


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
