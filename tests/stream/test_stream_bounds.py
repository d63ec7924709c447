"""What a client can cost the server: bounded memory, bounded time, and nothing left behind."""

import ctypes
import gc
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import torch
from stream_rig import QUICK, Echo, Raw, eventually, example, expected, expecting, issue, step_frames

from cutwater.stream.client import StreamClient
from cutwater.stream.frames import MAX_FRAME
from cutwater.stream.refusal import Status
from cutwater.stream.server import StreamServer

MIB = 1 << 20


def resident() -> int:
    """Bytes of memory that this process has now, less what it has freed and the allocator still holds.

    Hundreds of tests run in this process, and what they leave in the allocator comes and goes.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_reset() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Bytes of memory that this process had at most since the reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def test_a_message_above_the_cap_is_refused_and_not_even_read() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with Raw(ticket) as client:
            status, why = client.send(bytes(MAX_FRAME + 1)).verdict()
    assert status == "RESOURCE_EXHAUSTED"
    assert "larger than max" in why
    assert half.steps == []


@pytest.mark.parametrize("size", [64 * MIB, 1000], ids=["bomb", "harmless"])
def test_a_compressed_message_is_refused_and_never_inflated(
    size: int, record_property: Callable[[str, object], None]
) -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        payload = bytes(size)
        with Raw(ticket, compression=grpc.Compression.Gzip) as client:
            next(client.call)
            before = resident()  # gives back what was freed, so it comes before the peak is taken anew
            peak_reset()
            status, why = client.send(payload).verdict()
            grown = peak() - before
    record_property("memory for a bomb of 64 MiB, MiB more", round(grown / MIB, 1))
    assert status == "RESOURCE_EXHAUSTED"
    assert "compressed" in why
    # The client's own copy of what it packs is in this process, too; unpacked, there would be another.
    assert grown < size + 2 * MAX_FRAME + 16 * MIB
    assert half.steps == []


def test_a_client_that_never_reads_costs_bounded_memory_and_is_dropped_at_the_deadline(
    record_property: Callable[[str, object], None],
) -> None:
    rows, width = 64, 64 * 1024
    expect = expected(rows, width)
    half = Echo()
    with StreamServer(half, limits=replace(QUICK, keepalive_timeout=0.3)) as server:
        ticket = issue(server, expect, open_seconds=2.0, session_seconds=2.0)
        frames = step_frames(expect, 0, *example(rows, width))
        with Raw(ticket) as client:
            client.send(*frames)
            assert eventually(lambda: half.steps)
            settled = resident()
            client.send(*step_frames(expect, 1, *example(rows, width)))
            record = server.wait(ticket, 10)
            # It may go on to send; nothing more is taken in: one step was taken, one reply is due.
            assert half.steps == [("k1", 0)]
            grown = resident() - settled
            assert grown < 3 * 16 * MIB
        assert record.failure is not None
        assert record.failure.status is Status.DEADLINE_EXCEEDED
        assert record.bytes_down < 16 * MIB, "it was never sent in full"
    record_property("memory, MiB more", round(grown / MIB, 1))


def test_a_connection_is_closed_when_its_time_is_over_whatever_its_peer_does() -> None:
    """The session resumes; whoever holds a connection without a session is simply gone."""
    half = Echo()
    with StreamServer(half, limits=replace(QUICK, recycle=0.5)) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            number = 0
            while client.openings == 1 and number < 90:
                client.step(number, *example())
                number += 1
                time.sleep(0.05)
            assert client.openings > 1
            assert client.finish() == number
    assert half.steps == [("k1", n) for n in range(number)]


def test_someone_who_connects_and_says_nothing_is_shown_the_door() -> None:
    with StreamServer(Echo(), limits=replace(QUICK, handshake=0.5)) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as silent:
            while silent.recv(4096):
                pass


def test_memory_of_a_session_does_not_grow_with_its_steps() -> None:
    rows, width = 32, 8 * 1024
    expect = expected(rows, width, steps=200)
    with StreamServer(Echo()) as server, StreamClient(issue(server, expect), expect, client="k1") as client:
        smashed, labels = example(rows, width)
        for number in range(100):  # gRPC takes its time to settle on what it keeps
            client.step(number, smashed, labels)
        before = resident()
        for number in range(100, 200):
            client.step(number, smashed, labels)
        assert resident() - before < 8 * MIB, "a hundred steps of 1 MiB each way"


def test_what_was_refused_is_not_kept() -> None:
    rows, width = 32, 8 * 1024
    expect = expected(rows, width)
    smashed, labels = example(rows, width)
    labels[0] = -1
    frames = step_frames(expect, 0, smashed, labels)
    with StreamServer(Echo(), limits=QUICK) as server:

        def refuse(count: int) -> None:
            for _ in range(count):
                with Raw(issue(server, expect)) as client:
                    assert client.send(*frames).verdict()[0] == "INVALID_ARGUMENT"

        refuse(30)
        before = resident()
        refuse(150)
        assert len(server.records()) == 180
        assert resident() - before < 50 * MIB, "150 steps of 1 MiB were refused, and their records kept"


def test_sessions_leave_no_threads_and_no_descriptors_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def once() -> None:
        half = Echo()
        with StreamServer(half, limits=QUICK) as server:
            for name in ("k1", "k2", "k3"):
                ticket = issue(server, expected(), name)
                with StreamClient(ticket, expected(), client=name, limits=QUICK) as client:
                    client.step(0, *example())
                    client.finish()
                server.revoke(ticket)

    once()
    before = descriptors()
    for _ in range(3):
        once()
    assert eventually(lambda: descriptors() <= before + 2)


def test_an_expectation_bounds_a_message_exactly() -> None:
    expect = expecting([torch.zeros(2, 16)], torch.zeros(2).long(), batches=[2])
    gates = expect.at_server(2)
    assert max(gate.most for gate in gates.values()) == 2 * 16 * 4 + 2 * 8
