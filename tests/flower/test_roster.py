"""Who is who: registered names are bound to keys, others are asked and believed once."""

import threading
import time

import pytest
from flower_cases import settings, write_four  # noqa: F401 - skips where Flower is missing
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from memory_grid import MemoryGrid

from cutwater.flower import replies, roster
from cutwater.flower.roster import Roster, exchange


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(roster, "POLL", 0.01)


def says(name):
    return lambda message: Message(
        RecordDict({"who": ConfigRecord({"client": name, "seconds": 0.0})}), reply_to=message
    )


def test_nodes_are_the_clients_they_say_and_an_empty_message_is_timed():
    found = Roster(MemoryGrid({1: says("a"), 2: says("b")}), ["a", "b"])
    found.wait(5)
    assert found.nodes == {"a": 1, "b": 2}
    assert set(found.overhead) == {"a", "b"}


def test_a_second_node_of_the_same_name_and_a_stranger_are_not_believed():
    said = []
    found = Roster(MemoryGrid({1: says("a"), 2: says("a"), 3: says("z")}), ["a", "b"], said.append)
    found.wait(0.1)
    assert list(found.nodes) == ["a"]
    assert found.nodes["a"] in (1, 2)
    assert any("'z'" in text for text in said)
    assert any("it is left out" in text and "'a'" in text for text in said)


def test_a_name_that_a_key_was_registered_under_outweighs_what_the_node_says():
    grid = MemoryGrid({1: says("b"), 2: says("b")})
    grid.get_nodes = lambda: [NodeInfo(node_id=1, name="a"), NodeInfo(node_id=2, name="b")]
    found = Roster(grid, ["a", "b"])
    found.wait(5)
    assert found.nodes == {"a": 1, "b": 2}


def test_registered_nodes_need_not_be_asked():
    grid = MemoryGrid({1: lambda message: None})
    grid.get_nodes = lambda: [NodeInfo(node_id=1, name="a")]
    found = Roster(grid, ["a"], ask_all=False)
    found.wait(5)
    assert found.nodes == {"a": 1}


def test_a_node_that_left_is_forgotten_and_a_new_one_takes_its_name():
    grid = MemoryGrid({1: says("a")})
    found = Roster(grid, ["a"])
    found.wait(5)
    grid.gone, grid.nodes = {1}, {1: says("a"), 9: says("a")}
    found.update()
    assert found.nodes == {"a": 9}


def test_a_node_whose_app_fails_is_left_out():
    def broken(message):
        raise RuntimeError("no such module")

    said = []
    found = Roster(MemoryGrid({1: broken, 2: says("b")}), ["a", "b"], said.append)
    found.wait(5)
    assert found.nodes == {"b": 2}
    assert any("no such module" in text for text in said)


def test_a_reply_is_taken_once_however_often_it_comes():
    grid = MemoryGrid({1: says("a")})
    pull = grid.pull_messages
    grid.pull_messages = lambda ids: [reply for reply in pull(ids) for _ in range(3)]
    message = Message(RecordDict({}), 1, "query")
    assert len(list(exchange(grid, [message], float("inf")))) == 1


def test_a_reply_that_never_gets_whole_holds_up_neither_the_others_nor_the_deadline():
    grid, stuck = MemoryGrid({1: says("a"), 2: says("b")}), threading.Event()
    pull, first = grid.pull_messages, []

    def pull_messages(ids):
        if ids[0] == first[0]:
            stuck.wait(60)  # as Flower waits for the rest of an upload that broke off
        return pull(ids)

    push = grid.push_messages
    grid.push_messages = lambda messages: first.extend(push(messages)) or first
    grid.pull_messages = pull_messages
    messages = [Message(RecordDict({}), node, "query") for node in (1, 2)]
    began = time.monotonic()
    found = [index for index, _ in exchange(grid, messages, began + 3.0)]
    stuck.set()
    assert found == [1]
    assert time.monotonic() - began < 30


class ReadyGrid(MemoryGrid):
    """Every node has answered by the time that its message was pushed, without a thread of its own."""

    def __init__(self, nodes):
        super().__init__(nodes)
        self.askers, self.most = set(), 0

    def _push(self, message):
        id_ = f"message-{len(self.threads)}"
        self.threads.append(threading.current_thread())
        message.metadata.__dict__["_message_id"] = id_
        self._handle(id_, message)
        return id_

    def pull_messages(self, ids):
        self.askers.add(threading.current_thread())
        self.most = max(self.most, sum(thread.name == "cutwater-replies" for thread in threading.enumerate()))
        return super().pull_messages(ids)


def test_ten_thousand_messages_take_a_small_pool_of_threads():
    grid = ReadyGrid({node: says(str(node)) for node in range(1, 10_001)})
    messages = [Message(RecordDict({}), node, "query") for node in grid.nodes]
    found = [index for index, _ in exchange(grid, messages, time.monotonic() + 120)]
    assert sorted(found) == list(range(10_000))
    assert 1 < grid.most <= replies.POOL
    assert threading.current_thread() not in grid.askers


def test_more_replies_that_never_get_whole_than_the_pool_has_threads_delay_no_other(monkeypatch):
    monkeypatch.setattr(replies, "HANGS", 0.05)
    grid, stuck = ReadyGrid({node: says(str(node)) for node in range(1, 201)}), threading.Event()
    broken = {f"message-{number}" for number in range(0, 160, 4)}  # 40, spread over the first turns
    pull = grid.pull_messages

    def pull_messages(ids):
        if ids[0] in broken:
            stuck.wait(60)
        return pull(ids)

    grid.pull_messages = pull_messages
    messages = [Message(RecordDict({}), node, "query") for node in grid.nodes]
    looked = exchange(grid, messages, float("inf"))
    found = [next(looked)[0] for _ in range(160)]
    assert len(set(found)) == 160
    assert not {f"message-{index}" for index in found} & broken
    assert grid.most <= replies.POOL + len(broken)
    stuck.set()
    assert len(list(looked)) == 40, "and those come once they are whole"


def test_threads_that_hang_are_bounded(monkeypatch):
    monkeypatch.setattr(replies, "HANGS", 0.01)
    monkeypatch.setattr(replies, "POOL", 2)
    monkeypatch.setattr(replies, "LEFT_BEHIND", 3)
    grid, stuck = ReadyGrid({node: says(str(node)) for node in range(1, 31)}), threading.Event()
    grid.pull_messages = lambda ids: (grid.askers.add(threading.current_thread()), stuck.wait(60))[:0]
    messages = [Message(RecordDict({}), node, "query") for node in grid.nodes]
    assert list(exchange(grid, messages, time.monotonic() + 0.5)) == []
    assert len(grid.askers) == 5
    stuck.set()
    for thread in grid.askers:
        thread.join(10)
        assert not thread.is_alive(), "nobody looks any further once the exchange is over"


def test_what_goes_wrong_while_looking_for_a_reply_is_raised():
    grid = MemoryGrid({1: says("a")})

    def pull_messages(ids):
        raise ConnectionError("the SuperLink is gone")

    grid.pull_messages = pull_messages
    with pytest.raises(ConnectionError, match="gone"):
        list(exchange(grid, [Message(RecordDict({}), 1, "query")], time.monotonic() + 30))


def test_of_two_nodes_registered_under_one_name_the_second_waits_until_the_first_is_gone():
    grid, said = MemoryGrid({1: says("a"), 2: says("a")}), []
    grid.get_nodes = lambda: [NodeInfo(node_id=node, name="a") for node in sorted(grid.nodes)]
    found = Roster(grid, ["a"], said.append)
    for _ in range(2):
        found.update()
    assert found.nodes == {"a": 1}
    assert [text for text in said if "it waits" in text] == said[:1] == said
    del grid.nodes[1]
    found.update()
    assert found.nodes == {"a": 2}


def test_a_node_that_never_says_who_it_is_holds_up_one_round_and_no_other(monkeypatch):
    monkeypatch.setattr(roster, "_PATIENCE", 1.5)
    monkeypatch.setattr(roster, "_GLANCE", 0.01)
    asked = []
    found = Roster(MemoryGrid({1: says("a"), 2: asked.append}), ["a"])
    took = []
    for _ in range(3):
        began = time.monotonic()
        found.update()
        took.append(time.monotonic() - began)
    assert found.nodes == {"a": 1}
    assert took[0] >= 1.5 > max(took[1:])
    assert len(asked) == 3, "it may still come to itself"
