"""Who gets in: everything else is refused before the server's half, or any handler, has run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from stream_rig import QUICK, Echo, Raw, eventually, example, expected, issue, step_frames

from cutwater.stream.client import StreamClient
from cutwater.stream.limits import METHOD, Limits
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.server import StreamServer
from cutwater.stream.ticket import Ticket, TicketKey, opening
from cutwater.stream.tls import Certificate

IMPATIENT = replace(QUICK, connect=1.0)


def turned_away(ticket: Ticket, client: str = "k1") -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        StreamClient(ticket, expected(), client=client, limits=IMPATIENT).__enter__()
    return refused.value


def test_another_clients_ticket_is_denied() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected(), "k1")
        assert turned_away(ticket, "k2").status is Status.PERMISSION_DENIED
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as rightful:
            rightful.step(0, *example())
    assert half.steps == [("k1", 0)]


def test_a_ticket_opens_one_session() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as first:
            first.step(0, *example())
            second = turned_away(ticket)
            first.step(1, *example())
            assert first.finish() == 2
        assert second.status is Status.PERMISSION_DENIED
        assert "used before" in second.reason
        assert turned_away(ticket).status is Status.PERMISSION_DENIED
    assert half.steps == [("k1", 0), ("k1", 1)]


def test_a_recorded_opening_can_not_be_played_back() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        recorded = opening(ticket, "k1", bytes(15) + b"n", 1, 0)
        with Raw(ticket, metadata=recorded) as client:
            client.send(*step_frames(expected(), 0, *example()))
            assert eventually(lambda: half.steps)
            with Raw(ticket, metadata=recorded) as replayed:
                status, why = replayed.send(*step_frames(expected(), 0, *example())).verdict()
    assert (status, "used before" in why) == ("PERMISSION_DENIED", True)
    assert half.steps == [("k1", 0)]


def test_the_tickets_of_an_old_round_are_worthless() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected(), round=1)
        server.revoke(ticket)
        refused = turned_away(ticket)
    assert refused.status is Status.PERMISSION_DENIED
    assert "round 1 is over" in refused.reason
    assert half.steps == []


def test_an_expired_ticket_is_denied_by_the_servers_own_clock() -> None:
    now = [1000.0]
    with StreamServer(Echo(), limits=QUICK, clock=lambda: now[0]) as server:
        early, late = (issue(server, expected(), name, open_seconds=5.0) for name in ("k1", "k2"))
        now[0] += 4.9
        StreamClient(early, expected(), client="k1", limits=QUICK).__enter__().close()
        now[0] += 0.2
        refused = turned_away(late, "k2")
        # A session that was opened in time may come back later.
        assert "used before" in turned_away(early).reason
    assert refused.status is Status.PERMISSION_DENIED
    assert "5 s, which are over" in refused.reason


def test_altered_and_foreign_tickets_are_not_recognised() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        altered = replace(ticket, claims=replace(ticket.claims, round=99))
        foreign = TicketKey().issue(ticket.claims, ticket.certificate)
        for bad in (altered, foreign):
            assert turned_away(bad).status is Status.UNAUTHENTICATED
        with Raw(ticket, metadata=()) as nobody:
            assert nobody.send(*step_frames(expected(), 0, *example())).verdict()[0] == "UNAUTHENTICATED"
        assert server.records()[0].openings == 0
    assert half.steps == []


def test_a_restarted_server_does_not_know_the_tickets_of_the_one_before() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
        port = int(server.address.rpartition(":")[2])
    with StreamServer(Echo(), port=port, certificate=server.certificate, limits=QUICK):
        assert turned_away(ticket).status is Status.UNAUTHENTICATED


def test_a_server_with_another_certificate_is_not_trusted() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        name = ticket.claims.server_name
        for other in (Certificate.self_signed(), Certificate.self_signed(name)):
            refused = turned_away(replace(ticket, certificate=other.certificate))
            assert refused.status in (Status.UNAUTHENTICATED, Status.UNAVAILABLE)
        assert server.records()[0].openings == 0
    assert half.steps == []


def test_a_server_whose_certificate_bears_another_name_is_not_trusted() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
        renamed = replace(ticket, claims=replace(ticket.claims, server_name="other.cutwater.invalid"))
        assert turned_away(renamed).status in (Status.UNAUTHENTICATED, Status.UNAVAILABLE)
        assert server.records()[0].openings == 0


@pytest.mark.parametrize("start", [-60, 30], ids=["expired", "not yet valid"])
def test_a_certificate_out_of_its_time_is_not_trusted(start: int) -> None:
    stale = Certificate.self_signed(start=datetime.now(UTC) + timedelta(days=start), days=10)
    with StreamServer(Echo(), certificate=stale, limits=QUICK) as server:
        ticket = issue(server, expected())
        assert turned_away(ticket).status in (Status.UNAUTHENTICATED, Status.UNAVAILABLE)
        assert server.records()[0].openings == 0


def test_a_clock_that_is_an_hour_wrong_does_no_harm() -> None:
    for hours in (-1, 1):
        skewed = Certificate.self_signed(start=datetime.now(UTC) + timedelta(hours=hours, days=-1))
        with StreamServer(Echo(), certificate=skewed, limits=QUICK) as server:
            client = StreamClient(issue(server, expected()), expected(), client="k1", limits=QUICK)
            with client:
                client.step(0, *example())


def test_without_tls_there_is_no_conversation() -> None:
    half = Echo()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with grpc.insecure_channel(server.address) as channel:
            call = channel.stream_stream(METHOD)(
                iter(step_frames(expected(), 0, *example())),
                metadata=opening(ticket, "k1", bytes(16), 1, 0),
                timeout=5,
            )
            with pytest.raises(grpc.RpcError) as refused:
                next(call)
        assert refused.value.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        assert server.records()[0].openings == 0
    assert half.steps == []


def test_other_methods_do_not_exist() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected())
        credentials = grpc.ssl_channel_credentials(ticket.certificate.encode())
        options = [("grpc.ssl_target_name_override", ticket.claims.server_name)]
        channel = grpc.secure_channel(server.address, credentials, options)
        with channel, pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/cutwater.stream.v1/Other")(b"", timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_client_that_waits_too_long_to_come_back_finds_its_session_over() -> None:
    with StreamServer(Echo(), limits=QUICK) as server:
        ticket = issue(server, expected(), open_seconds=1.0, session_seconds=1.0)
        with StreamClient(ticket, expected(), client="k1", limits=Limits(backoff=0.01)) as client:
            client.step(0, *example())
            server.wait(ticket, 10)
            with pytest.raises(RefusedError) as refused:
                client.step(1, *example())
        assert refused.value.status is Status.DEADLINE_EXCEEDED
        record = server.wait(ticket, 5)
        assert record.failure is not None
        assert record.steps == 1
