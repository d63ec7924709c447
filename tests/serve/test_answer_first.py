"""A half that answers first where that helps: the choice follows what was measured, the bits never do."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from cutwater.serve.answer_first import AnswerFirst
from cutwater.train.step import Part, ServerSide, backward_in_one_go, optimizer_factory


class Timed(ServerSide):
    """A real half, whose steps take as long as they are told to."""

    def __init__(self, *, at_once=3.0, first=2.0, rest=1.5, absence=5.0) -> None:
        torch.manual_seed(1)
        half = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))
        super().__init__(half, optimizer_factory("sgd", 0.1, momentum=0.9), 7, F.cross_entropy)
        self.seconds = {False: at_once, True: first}
        self.rest, self.absence = rest, absence
        self.now = 0.0
        self.ways: list[bool] = []

    def differentiate(self, part, smashed, labels, backward=backward_in_one_go):
        first = backward is not backward_in_one_go
        self.now += self.seconds[first]
        self.ways.append(first)
        return super().differentiate(part, smashed, labels, backward)

    def update(self) -> None:
        taken = self.rest if self.ways[-1] else 0.25
        self.now += taken
        super().update()
        self.now += max(self.absence - taken, 0.0)


def steps(server, count=32, alone=lambda step: True):
    """Train so many steps; the answers, and whether each came first."""
    prompt = AnswerFirst(server, clock=lambda: server.now)
    random = torch.Generator().manual_seed(2)
    replies = []
    for step in range(count):
        smashed = torch.randn(4, 2, 4, 4, generator=random).requires_grad_()
        labels = torch.randint(0, 4, (4,), generator=random)
        replies.append(prompt.differentiate(Part(step), (smashed,), labels, alone=alone(step)))
        prompt.update()
    return replies


def test_both_ways_are_tried_in_turn_and_the_better_is_kept():
    server = Timed()
    steps(server, 48)
    assert server.ways[:6] == [False, True] * 3
    assert [step for step, first in enumerate(server.ways) if step > 5 and not first] == [16, 32]


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"first": 3.5}, id="the answer comes later"),
        pytest.param({"rest": 5.5}, id="the client is back before the rest is done"),
    ],
)
def test_what_does_not_help_is_not_done_but_now_and_then(worse):
    server = Timed(**worse)
    steps(server, 48)
    assert [step for step, first in enumerate(server.ways) if step > 5 and first] == [16, 32]


def test_a_change_is_noticed():
    server = Timed(first=3.5)
    prompt = AnswerFirst(server, clock=lambda: server.now)
    smashed, labels = torch.randn(4, 2, 4, 4).requires_grad_(), torch.zeros(4).long()
    for step in range(120):
        if step == 32:
            server.seconds[True] = 1.0
        prompt.differentiate(Part(step), (smashed,), labels, alone=True)
        prompt.update()
    late = server.ways[-16:]
    assert late.count(True) == 15


def test_while_others_want_the_device_all_is_done_at_once():
    server = Timed()
    steps(server, alone=lambda step: step >= 20)
    assert not any(server.ways[:20])
    assert any(server.ways[20:])


@pytest.mark.parametrize("period", [1, 2, 3])
def test_the_bits_are_those_of_a_plain_half(period):
    server, plain = Timed(), Timed()
    replies = steps(server, alone=lambda step: step % period == 0)
    random = torch.Generator().manual_seed(2)
    assert any(server.ways)
    for step, reply in enumerate(replies):
        smashed = torch.randn(4, 2, 4, 4, generator=random).requires_grad_()
        wanted = plain.step(step, (smashed,), torch.randint(0, 4, (4,), generator=random))
        assert reply.loss == wanted.loss
        assert torch.equal(reply.gradients[0], wanted.gradients[0])
    for one, other in zip(server.half.parameters(), plain.half.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("completed", [lambda number: True, lambda number: False, lambda number: number % 3])
def test_parts_add_up_in_order_whoever_completes_them(completed):
    """After the answer or, handed in before that was out, by the next part; one update for three of them."""
    server, plain = Timed(), Timed()
    prompt = AnswerFirst(server, clock=lambda: server.now)
    random = torch.Generator().manual_seed(2)
    for number in range(30):
        part = Part(number, 1 / 3, number % 3 == 2)
        smashed = torch.randn(4, 2, 4, 4, generator=random)
        labels = torch.randint(0, 4, (4,), generator=random)
        reply = prompt.differentiate(part, (smashed.clone().requires_grad_(),), labels, alone=True)
        if completed(number):
            prompt.update()
        plain.send(part, (smashed.requires_grad_(),), labels)
        wanted = plain.receive()
        assert reply.loss == wanted.loss
        assert torch.equal(reply.gradients[0], wanted.gradients[0])
    prompt.update()
    assert any(server.ways)
    for one, other in zip(server.half.parameters(), plain.half.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_graph_is_held_between_answer_and_update_only_and_by_one_session_at_a_time():
    holders = set()
    one, other = (AnswerFirst(Timed(), holders) for _ in range(2))
    smashed, labels = torch.randn(4, 2, 4, 4).requires_grad_(), torch.zeros(4).long()
    for each in (one, other):
        each.differentiate(Part(0), (smashed,), labels, alone=True)
        assert not each.holds_graph, "the first step is done in one go"
        each.update()
    one.differentiate(Part(1), (smashed,), labels, alone=True)
    other.differentiate(Part(1), (smashed,), labels, alone=True)
    assert (one.holds_graph, other.holds_graph) == (True, False)
    one.update()
    assert not holders
    other.update()
    other.differentiate(Part(2), (smashed,), labels, alone=True)
    assert other.holds_graph
    other.give_up()
    assert not holders, "a session that is over holds nothing"
    one.differentiate(Part(2), (smashed,), labels, alone=True)
    one.update()
    one.give_up()
    one.differentiate(Part(3), (smashed,), labels, alone=True)
    assert one.side.ways[-1]
    assert not holders, "nor does one that ended while its step was computed"
