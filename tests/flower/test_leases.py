"""Rounds over leases: the bits of messages, one process for all rounds, and the lost known at once."""

import threading
import time

import pytest
from collecting import run
from flower_cases import good_node, served, settings, sha256_of, write_four
from flwr.app import ConfigRecord, Message, RecordDict
from hypothesis import given as examples
from hypothesis import strategies as st
from memory_grid import MemoryGrid

from cutwater.base.errors import CutwaterError
from cutwater.federate.judge import Judged
from cutwater.flower import leases, roster
from cutwater.flower.failures import failure
from cutwater.flower.letters import from_letter, to_letter
from cutwater.flower.node import answer, hold
from cutwater.flower.shared_study import study_for
from cutwater.flower.wire import WireError, pack
from cutwater.stream.lease_holder import LeaseHolder
from cutwater.stream.ticket import Ticket

NAMES = ("watch", "phone", "tablet", "laptop")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.02)
    monkeypatch.setattr(leases, "_LOOK", 0.02)


class Node:
    """A node that takes leases, and counts the messages it is sent."""

    def __init__(self, name, given, *, lets_go=None):
        self.name, self.given, self.single = name, given, good_node(name, given)
        self.study, self.messages, self.lets_go = study_for(given), [], lets_go
        self.done = threading.Event()

    def __call__(self, message):
        kind = message.metadata.message_type
        self.messages.append(kind)
        if kind != "train.lease":
            return self.single(message)
        try:
            records = hold(message.content, self.name, {}, self.given, study=self.study)
        except CutwaterError as error:
            records = failure(error)
        self.done.set()
        return Message(records, reply_to=message)


def nodes_of(given, **others):
    return {place: others.get(name) or Node(name, given) for place, name in enumerate(NAMES, 11)}


def test_rounds_by_lease_have_the_bits_of_training_in_process_and_take_one_message_each(tmp_path):
    given = settings(write_four(tmp_path, rounds=3, dropout=0.2), lease=True)
    nodes = nodes_of(given)
    there, here = served(MemoryGrid(nodes), "r1", given), run(study_for(given))
    assert [one.record.weights_sha256 for one in there] == [one.record.weights_sha256 for one in here]
    assert there[0].record.bytes_up == here[0].record.bytes_up
    for node in nodes.values():
        assert node.messages == ["query", "train.lease"]
        assert node.done.wait(20), "the lease is over with the run"
    for part in there[-1].measured.clients:
        assert part.model_timed


def test_a_node_that_declines_is_sent_messages_and_the_round_is_the_same(tmp_path):
    given = settings(write_four(tmp_path, rounds=2), lease=True)
    said = []
    # A node of another release, which knows no leases.
    nodes = nodes_of(given, phone=good_node("phone", given))
    there, here = served(MemoryGrid(nodes), "r1", given, say=said.append), run(study_for(given))
    assert [one.record.weights_sha256 for one in there] == [one.record.weights_sha256 for one in here]
    assert any("client phone can't hold a lease" in line for line in said)


class Starter(Node):
    """Takes a while to start, and counts how many do at the same time."""

    starting, most, lock = 0, 0, threading.Lock()

    def __call__(self, message):
        if message.metadata.message_type == "train.lease":
            with Starter.lock:
                Starter.starting += 1
                Starter.most = max(Starter.most, Starter.starting)
            time.sleep(0.5)
            with Starter.lock:
                Starter.starting -= 1
        return super().__call__(message)


@pytest.mark.parametrize(("at_once", "most"), [(0, 4), (1, 1), (3, 3)])
def test_nodes_are_offered_leases_so_many_at_once_and_rounds_are_the_same(
    tmp_path, monkeypatch, at_once, most
):
    monkeypatch.setattr(Starter, "most", 0)
    given = settings(write_four(tmp_path, rounds=1), lease=True, enrol_at_once=at_once)
    nodes = nodes_of(given, **{name: Starter(name, given) for name in NAMES})
    there, here = served(MemoryGrid(nodes), "r1", given), run(study_for(given))
    assert [one.record.weights_sha256 for one in there] == [one.record.weights_sha256 for one in here]
    assert Starter.most == most
    assert all(node.messages == ["query", "train.lease"] for node in nodes.values())


class Quitter(Node):
    """Takes the lease, and is gone when the first order comes."""

    def __call__(self, message):
        if message.metadata.message_type != "train.lease" or "train.lease" in self.messages:
            return super().__call__(message)
        self.messages.append("train.lease")
        offer = message.content["lease"]
        with LeaseHolder(Ticket.from_text(offer["ticket"]), client=self.name, most=offer["most"]) as lease:
            next(lease.letters())
        return Message(RecordDict({"held": ConfigRecord({"sessions": 0})}), reply_to=message)


def test_a_holder_that_leaves_is_lost_at_once_and_back_in_the_next_round(tmp_path):
    given = settings(write_four(tmp_path, rounds=2, more="deadline = 120.0"), lease=True)
    first, second = served(MemoryGrid(nodes_of(given, phone=Quitter("phone", given))), "r1", given)
    assert list(first.record.lost) == ["phone"]
    assert "its node is gone" in first.record.lost["phone"]
    assert first.measured.wall_seconds < 60, "nobody waited for the deadline"
    assert first.record.weights_sha256 == sha256_of(given, ["watch", "tablet", "laptop"])
    assert second.record.lost == {}


def test_a_round_is_over_on_the_wall_when_its_aggregate_is_there(tmp_path, monkeypatch):
    result = Judged.result

    def slowly(judged):
        time.sleep(2.0)
        return result(judged)

    monkeypatch.setattr(Judged, "result", slowly)
    given = settings(write_four(tmp_path, rounds=1), lease=True)
    measured = served(MemoryGrid(nodes_of(given)), "r1", given)[0].measured
    assert measured.wall_seconds >= max(part.wall_seconds for part in measured.clients) + 2.0


class Boaster(Node):
    """Takes three seconds more for an order, and says that it took next to none."""

    def __call__(self, message):
        if message.metadata.message_type != "train.lease":
            return super().__call__(message)
        offer = message.content["lease"]
        with LeaseHolder(Ticket.from_text(offer["ticket"]), client=self.name, most=offer["most"]) as lease:
            for letter in lease.letters():
                records = answer(from_letter(letter), self.name, {}, self.given, study=self.study)
                time.sleep(3.0)
                for phase in ("client_forward", "client_backward"):
                    records["seconds"][phase] = 1e-9
                lease.post(to_letter(records))
        return Message(RecordDict({"held": ConfigRecord({"sessions": 1})}), reply_to=message)


def test_a_whole_model_client_can_not_claim_that_it_took_no_time(tmp_path):
    given = settings(write_four(tmp_path, rounds=1), lease=True)
    (round_,) = served(MemoryGrid(nodes_of(given, laptop=Boaster("laptop", given))), "r1", given)
    (laptop,) = (part for part in round_.outcome.parts if part.name == "laptop")
    assert laptop.mode == "fedavg"
    assert laptop.outcome == "done"
    assert laptop.actual_seconds > 3.0 / 1.5 - 1.0


class Ignorer(Node):
    """Lets offers lie until it is told otherwise."""

    def __init__(self, name, given):
        super().__init__(name, given)
        self.offers, self.takes = 0, threading.Event()

    def __call__(self, message):
        if message.metadata.message_type == "train.lease" and not self.takes.is_set():
            self.offers += 1
            return None
        return super().__call__(message)


def test_an_offer_that_nobody_takes_up_is_waited_for_once_and_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "_COMES", 0.5)
    monkeypatch.setattr(leases, "_AGAIN", 0.01)
    given = settings(write_four(tmp_path, rounds=4), lease=True)
    phone, waits, said = Ignorer("phone", given), [], []
    awaited = leases.Leases._await

    def counted(self, away, until):
        waits.append(set(away))
        awaited(self, away, until)

    monkeypatch.setattr(leases.Leases, "_await", counted)

    def after(round_):
        if round_.record.round == 2:
            assert phone.offers == 2, "again in the second round"
            phone.takes.set()

    nodes = nodes_of(given, phone=phone)
    there = served(MemoryGrid(nodes), "r1", given, callbacks=[after], say=said.append)
    assert [one.record.weights_sha256 for one in there] == [
        one.record.weights_sha256 for one in run(study_for(given))
    ]
    assert sum("client phone has not taken up its lease" in line for line in said) == 1
    assert waits[0] == set(NAMES)
    assert all(names == {"phone"} for names in waits[1:]), "a glance whether it was declined"
    assert phone.messages.count("train.lease") >= 1, "it took one up in the end"


SCALARS = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(), st.text(max_size=20))

CONFIG = st.dictionaries(st.text(max_size=5), SCALARS, max_size=4)


@examples(
    configs=st.dictionaries(
        st.sampled_from("abc"), st.dictionaries(st.text(max_size=5), SCALARS, max_size=4)
    ),
    bytes_=st.integers(0, 50),
)
def test_records_are_the_same_after_a_letter(configs, bytes_):
    import torch

    tensors = {"w": torch.arange(bytes_, dtype=torch.uint8), "empty": torch.empty(0, 3)}
    records = RecordDict({name: ConfigRecord(values) for name, values in configs.items()})
    records["weights"] = pack(tensors)
    found = from_letter(to_letter(records))
    assert repr(dict(found)) == repr(dict(records))


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\xff" * 8,
        lambda letter: letter[:-1],
        lambda letter: letter + b"x",
        lambda letter: letter.replace(b'"uint8", [5]', b'"uint8", ["]'),
        lambda letter: letter.replace(b'"cutwater.raw", 5', b'"cutwater.raw", -5'),
        lambda letter: letter.replace(b'"listed"', b'"lasted"'),
    ],
)
def test_a_letter_that_is_none_is_one_sentence(broken):
    import torch

    letter = to_letter(RecordDict({"weights": pack({"w": torch.arange(5, dtype=torch.uint8)})}))
    with pytest.raises(WireError, match="can't be read"):
        from_letter(broken if isinstance(broken, bytes) else broken(letter))
