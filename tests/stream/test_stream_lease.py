"""A lease between a real server and a real holder: letters, lost connections, silence and the end."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from stream_rig import QUICK, Echo, Proxy

from cutwater.stream.lease import News
from cutwater.stream.lease_holder import LeaseHolder
from cutwater.stream.limits import Limits
from cutwater.stream.refusal import RefusedError
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Ticket

LIMITS = replace(QUICK, beat=0.1, silence=1.0, away=0.5, patience=5.0)
MOST = 1 << 24


@contextmanager
def leased(limits=LIMITS, open_seconds=60.0):
    """A server, a proxy before it, and a ticket for a lease."""
    proxy = Proxy()
    try:
        with StreamServer(Echo(), advertise=proxy.address, limits=limits) as server:
            proxy.aim(server)
            yield server, proxy, server.lease(run="r", client="c", most=MOST, open_seconds=open_seconds)
    finally:
        proxy.close()


class Mirror(threading.Thread):
    """A holder that answers every letter with its mirror image."""

    def __init__(self, ticket, limits=LIMITS):
        super().__init__(daemon=True)
        self.holder, self.error = LeaseHolder(ticket, client="c", most=MOST, limits=limits), None
        self.start()

    def run(self):
        try:
            with self.holder as lease:
                for letter in lease.letters():
                    lease.post(letter[::-1])
        except RefusedError as error:
            self.error = error


def event(server, news):
    """The next thing that happens, which must be this."""
    found = server.events.get(timeout=60)
    assert found.news is news, found
    return found


def exchanged(server, ticket, size):
    """Send a letter of so many bytes and check its mirror image."""
    body = os.urandom(size)
    number = server.post(ticket, body)
    letter = event(server, News.LETTER).letter
    assert (letter.number, letter.body) == (number, body[::-1])
    assert server.took(ticket, number) >= 0
    assert letter.seconds >= 0


def test_letters_go_there_and_back_until_the_lease_ends():
    with leased() as (server, _, ticket):
        mirror = Mirror(ticket)
        event(server, News.HERE)
        for size in (0, 1, 70_000, 3_000_000):
            exchanged(server, ticket, size)
        server.end(ticket)
        mirror.join(20)
        assert not mirror.is_alive()
        assert mirror.error is None
        assert mirror.holder.openings == 1
        event(server, News.AWAY)


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("after", [2_000, 400_000, 1_500_000])
def test_a_connection_that_is_cut_in_a_letter_costs_nobody_anything(way, after):
    with leased() as (server, proxy, ticket):
        proxy.cut_after = {way: after}
        mirror = Mirror(ticket)
        event(server, News.HERE)
        for size in (10, 1_000_000, 1_000_000):
            exchanged(server, ticket, size)
        assert mirror.holder.openings == 2
        server.end(ticket)
        mirror.join(20)


def test_a_holder_that_hears_nothing_comes_back_over_another_connection_and_is_never_missed():
    patient = replace(LIMITS, keepalive=10.0, keepalive_timeout=60.0, silence=10.0, away=10.0)
    with leased(patient) as (server, proxy, ticket):
        mirror = Mirror(ticket, replace(patient, silence=LIMITS.silence))
        event(server, News.HERE)
        proxy.dead.set()
        body = b"during the partition"
        server.post(ticket, body)
        time.sleep(2 * LIMITS.silence)
        proxy.dead.clear()
        assert event(server, News.LETTER).letter.body == body[::-1]
        assert mirror.holder.openings >= 2
        server.end(ticket)
        mirror.join(20)


def test_a_handshake_that_takes_longer_than_silence_may_last_is_waited_for():
    slow = replace(LIMITS, silence=0.4, handshake=20.0, keepalive=10.0, keepalive_timeout=60.0)
    with leased(replace(slow, silence=20.0)) as (server, proxy, ticket):
        proxy.rate = 4_000  # the server's certificate alone takes longer than 0.4 s
        mirror = Mirror(ticket, slow)
        event(server, News.HERE)
        proxy.rate = None
        assert mirror.holder.openings == 1
        server.end(ticket)
        mirror.join(20)


HOLDER = """
import sys
from cutwater.stream.lease_holder import LeaseHolder
from cutwater.stream.ticket import Ticket
with LeaseHolder(Ticket.from_text(sys.stdin.readline()), client="c", most=1 << 20) as lease:
    for letter in lease.letters():
        lease.post(letter)
"""


def test_a_process_that_is_killed_is_known_to_be_gone_within_seconds():
    with (
        leased() as (server, _, ticket),
        subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, text=True) as holder,
    ):
        holder.stdin.write(ticket.to_text() + "\n")
        holder.stdin.flush()
        event(server, News.HERE)
        holder.send_signal(signal.SIGKILL)
        assert event(server, News.AWAY).reason == "its connection was closed"


def test_a_holder_that_says_nothing_is_away_and_back_when_it_says_something():
    # Of gRPC's own keepalive nothing is heard meanwhile: it would close the connection as well.
    patient = replace(LIMITS, keepalive=10.0, keepalive_timeout=60.0, patience=60.0)
    with leased(patient) as (server, proxy, ticket):
        mirror = Mirror(ticket, patient)
        event(server, News.HERE)
        proxy.dead.set()
        assert event(server, News.AWAY).reason == "nothing was heard of it for 1.1 s"
        proxy.dead.clear()
        event(server, News.HERE)
        exchanged(server, ticket, 1000)
        server.end(ticket)
        mirror.join(20)


def test_letters_that_queue_on_a_slow_link_make_nobody_silent():
    """The kernel takes all at once, and hands it over for seconds; signs of life come behind it."""
    slow = replace(LIMITS, silence=2.0, keepalive=10.0, keepalive_timeout=60.0)
    with leased(slow) as (server, proxy, ticket):
        mirror = Mirror(ticket, slow)
        event(server, News.HERE)
        proxy.rate = 40_000
        exchanged(server, ticket, 200_000)
        proxy.rate = None
        assert mirror.holder.openings == 1
        server.end(ticket)
        mirror.join(20)


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["SIGKILL", "SIGSTOP", "partition"])
def test_at_the_usual_limits_a_node_that_is_gone_is_known_within_five_seconds(fault, record_property):
    with (
        leased(Limits()) as (server, proxy, ticket),
        subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, text=True) as holder,
    ):
        try:
            holder.stdin.write(ticket.to_text() + "\n")
            holder.stdin.flush()
            event(server, News.HERE)
            time.sleep(2.5)
            began = time.monotonic()
            if fault == "partition":
                proxy.dead.set()
            else:
                holder.send_signal(signal.Signals[fault])
            event(server, News.AWAY)
            seconds = time.monotonic() - began
        finally:
            holder.kill()
    record_property(f"{fault} known after s", round(seconds, 2))
    assert seconds < 5.0


def test_a_lease_opens_once_and_to_nobody_else():
    with leased() as (server, _, ticket):
        mirror = Mirror(ticket)
        event(server, News.HERE)
        second = Mirror(ticket)
        second.join(20)
        assert "was used before" in str(second.error)
        exchanged(server, ticket, 100)
        altered = Ticket(replace(ticket.claims, run="other"), ticket.certificate, ticket.secret)
        third = Mirror(altered)
        third.join(20)
        assert "not one of this server's" in str(third.error)
        server.end(ticket)
        mirror.join(20)
        late = Mirror(ticket)
        late.join(20)
        assert late.error is not None


def test_a_ticket_for_a_lease_opens_no_session_and_one_for_a_session_no_lease():
    from stream_rig import Raw, expected, issue

    with leased() as (server, _, ticket):
        with Raw(ticket) as raw:
            assert raw.verdict()[0] == "PERMISSION_DENIED"
        session = Mirror(issue(server, expected(), client="c"))
        session.join(20)
        assert "has no lease here" in str(session.error)


def test_a_letter_that_is_too_long_ends_the_connection_with_a_verdict():
    with leased() as (server, _, ticket):
        mirror = Mirror(ticket)
        event(server, News.HERE)
        mirror.holder.post(bytes(MOST + 1))
        mirror.join(20)
        assert "at most" in str(mirror.error)


def test_a_server_that_is_gone_is_tried_for_a_while_and_then_given_up():
    with leased() as (server, _, ticket):
        mirror = Mirror(ticket, replace(LIMITS, patience=0.5))
        event(server, News.HERE)
        server.close()
        mirror.join(20)
        assert "can't be reached" in str(mirror.error)
