"""Moves of a cut, as the stream sees them: only when they were said, and nothing else in their place."""

import pytest
import torch
from stream_rig import QUICK, Echo, example, expected, issue

from cutwater.base.errors import EngineError
from cutwater.stream.client import StreamClient
from cutwater.stream.move import Move
from cutwater.stream.refusal import RefusedError, Status
from cutwater.stream.server import StreamServer


class Moving(Echo):
    """Gives back the layers that it is given, or three bytes."""

    async def move(self, session, cut, layers, norm):
        self.steps.append((session.client, f"{session.cut} to {cut}"))
        return torch.arange(3, dtype=torch.uint8) if layers is None else None


def move_of(up, down, width=8):
    return Move(2, 3, expected(width=width), up, down)


@pytest.fixture
def opened():
    half = Moving()
    with StreamServer(half, limits=QUICK) as server:
        ticket = issue(server, expected())
        with StreamClient(ticket, expected(), client="k1", limits=QUICK) as client:
            yield half, server, ticket, client


def test_from_the_move_on_what_crosses_is_that_of_the_other_cut(opened):
    half, server, ticket, client = opened
    server.propose(ticket.claims.id, move_of(0, 100, width=5))
    client.step(0, *example())
    assert client.due == 3
    reply = client.move(move_of(0, 100, width=5), None)
    assert (reply.gradients[0].tolist(), reply.carried, client.due) == ([0, 1, 2], (0, 3), 0)
    assert client.step(1, *example(width=5)).gradients[0].shape == (4, 5)
    assert client.finish() == 3, "a move counts"
    assert half.steps == [("k1", 0), ("k1", "2 to 3"), ("k1", 1)]
    record = server.wait(ticket, 5)
    assert (record.parts, record.steps, record.session.cut) == (2, 2, 3)


def test_a_part_in_place_of_the_move_is_refused(opened):
    half, server, ticket, client = opened
    server.propose(ticket.claims.id, move_of(100, 0))
    client.step(0, *example())
    with pytest.raises(RefusedError, match="a PART is not expected here") as refused:
        client.step(1, *example())
    assert refused.value.status is Status.INVALID_ARGUMENT
    assert half.steps == [("k1", 0)]


def test_a_server_that_has_ended_moves_no_cut_and_says_so(opened):
    """Whoever proposes would else count on a move that never comes."""
    _, server, ticket, _ = opened
    server.close()
    with pytest.raises(EngineError, match="not running"):
        server.propose(ticket.claims.id, move_of(100, 0))


def test_a_client_may_be_done_in_place_of_the_move(opened):
    _, server, ticket, client = opened
    server.propose(ticket.claims.id, move_of(100, 0))
    client.step(0, *example())
    assert client.finish() == 1
    assert server.wait(ticket, 5).moves == ()


def test_a_move_that_nobody_asked_for_is_refused(opened):
    half, _, _, client = opened
    client.step(0, *example())
    with pytest.raises(RefusedError, match="a MOVE is not expected here"):
        client.move(move_of(100, 0), torch.zeros(100, dtype=torch.uint8))
    assert half.steps == [("k1", 0)]


def test_more_layers_than_there_are_is_refused_before_they_have_come(opened):
    half, server, ticket, client = opened
    server.propose(ticket.claims.id, move_of(100, 0))
    client.step(0, *example())
    with pytest.raises(RefusedError, match="the plan allows 100") as refused:
        client.move(move_of(5_000_000, 0), torch.zeros(5_000_000, dtype=torch.uint8))
    assert refused.value.status is Status.RESOURCE_EXHAUSTED
    assert half.steps == [("k1", 0)]


def test_the_cut_does_not_move_while_a_part_is_on_its_way(opened):
    *_, client = opened
    smashed, labels = example()
    client.send(next(iter(expected().parts())).part, smashed, labels)
    with pytest.raises(EngineError, match="1 replies were not taken"):
        client.move(move_of(0, 100), None)
