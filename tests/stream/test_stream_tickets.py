"""Tickets: they prove who may open what, once, and nothing that is altered proves anything."""

import json
import secrets
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutwater.base.errors import EngineError, FileFormatError
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.ticket import Claims, Metadata, Ticket, TicketKey, opening
from cutwater.stream.tls import Certificate

SERVER = Certificate.self_signed()
CLAIMS = Claims(
    id="a1",
    run="run-7",
    round=3,
    client="küche-4",
    cut=5,
    address="127.0.0.1:4711",
    server_name=SERVER.name,
    fingerprint=SERVER.fingerprint,
    open_seconds=60.0,
    session_seconds=600.0,
)
KEY = TicketKey()
TICKET = KEY.issue(CLAIMS, SERVER.certificate)


def opened(ticket: Ticket = TICKET, client: str = CLAIMS.client, attempt: int = 1) -> Metadata:
    return opening(ticket, client, bytes(16), attempt, 4)


def refusal(metadata: Any, key: TicketKey = KEY) -> Status:
    with pytest.raises(RefusedError) as refused:
        key.verify(metadata)
    return refused.value.status


def test_a_ticket_survives_the_way_to_its_client() -> None:
    assert Ticket.from_text(TICKET.to_text()) == TICKET


def test_its_client_may_open_its_session() -> None:
    proven = KEY.verify((("user-agent", "x"), *opened()))
    assert (proven.claims, proven.attempt, proven.have) == (CLAIMS, 1, 4)


def test_the_secret_is_in_no_repr_and_never_crosses_the_stream() -> None:
    assert TICKET.secret.hex() not in repr(TICKET)
    assert str(TICKET.secret) not in repr(TICKET)
    assert SERVER.key.decode() not in repr(SERVER)
    assert all(TICKET.secret not in value for _, value in opened() if isinstance(value, bytes))


@pytest.mark.parametrize(
    "change",
    [
        {"round": 4},
        {"client": "k9"},
        {"cut": 6},
        {"run": "run-8"},
        {"address": "127.0.0.1:1"},
        {"id": "b2"},
        {"session_seconds": 1e9},
        {"fingerprint": "0" * 64},
    ],
    ids=str,
)
def test_an_altered_ticket_proves_nothing(change: dict[str, Any]) -> None:
    altered = replace(TICKET, claims=replace(CLAIMS, **change))
    client = change.get("client", CLAIMS.client)
    assert refusal(opened(altered, client)) is Status.UNAUTHENTICATED


def test_another_clients_ticket_is_denied() -> None:
    assert refusal(opened(client="k9")) is Status.PERMISSION_DENIED


def test_the_ticket_of_another_run_or_of_a_server_before_its_restart_proves_nothing() -> None:
    assert refusal(opened(), TicketKey()) is Status.UNAUTHENTICATED


@settings(deadline=None)
@given(st.integers(0, 1), st.data())
def test_every_changed_bit_of_an_opening_is_found(part: int, data: st.DataObject) -> None:
    metadata = list(opened())
    name, value = metadata[part]
    assert isinstance(value, bytes)
    place = data.draw(st.integers(0, len(value) - 1))
    broken = bytearray(value)
    broken[place] ^= 1 << data.draw(st.integers(0, 7))
    metadata[part] = (name, bytes(broken))
    assert refusal(metadata) is Status.UNAUTHENTICATED


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        opened()[:1],
        opened()[1:],
        (*opened(), opened()[0]),
        tuple((name, "text") for name, _ in opened()),
        tuple((name, b"") for name, _ in opened()),
        tuple((name, secrets.token_bytes(64)) for name, _ in opened()),
    ],
)
def test_a_call_without_a_whole_ticket_is_refused(metadata: Any) -> None:
    assert refusal(metadata) is Status.UNAUTHENTICATED


def test_a_proof_is_good_for_one_opening_only() -> None:
    """Its counts can't be raised to make a recorded opening look new."""
    (body, _), later = opened(attempt=1), opened(attempt=2)[1][1]
    earlier = opened(attempt=1)[1][1]
    assert isinstance(earlier, bytes)
    assert isinstance(later, bytes)
    mixed = later[:32] + earlier[32:]
    assert refusal((body, ("cutwater-opening-bin", mixed))) is Status.UNAUTHENTICATED


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", '{"format": "cutwater-ticket", "version": 2}', "\0"]
)
def test_texts_that_are_no_tickets_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(FileFormatError, match="ticket"):
        Ticket.from_text(text)


@pytest.mark.parametrize(
    "change", [{"round": "3"}, {"round": True}, {"cut": 1.5}, {"client": 7}, {"more": 1}], ids=str
)
def test_claims_of_the_wrong_type_are_refused(change: dict[str, Any]) -> None:
    data = json.loads(TICKET.to_text())
    data["claims"].update(change)
    with pytest.raises(FileFormatError, match=f"the ticket claims .*{next(iter(change))}"):
        Ticket.from_text(json.dumps(data))


def test_a_ticket_with_another_certificate_is_refused_before_anyone_is_called() -> None:
    data = json.loads(TICKET.to_text())
    data["certificate"] = Certificate.self_signed(SERVER.name).certificate
    with pytest.raises(RefusedError, match="fingerprint") as refused:
        Ticket.from_text(json.dumps(data))
    assert refused.value.status is Status.UNAUTHENTICATED
    data["certificate"] = "no certificate"
    with pytest.raises(RefusedError, match="can't be read"):
        Ticket.from_text(json.dumps(data))


def test_a_short_key_is_refused() -> None:
    with pytest.raises(EngineError, match="at least 32"):
        TicketKey(b"short")


def test_claims_have_one_spelling() -> None:
    assert Claims(**asdict(CLAIMS)).body() == CLAIMS.body()
