"""Rounds over a grid, with a real stream, in which the cut of a session moves."""

import threading
from dataclasses import replace

import pytest
from flower_cases import served, settings, sha256_of, write_four
from memory_grid import MemoryGrid
from test_leases import nodes_of

from cutwater.base.errors import EngineError
from cutwater.federate.measured import Moved, Replanned
from cutwater.flower import leases, node, roster, watched
from cutwater.flower.adapting import Adapting
from cutwater.runs.audit import audit
from cutwater.serve.admission import Admission
from cutwater.stream.server import StreamServer

PATIENCE = 60.0
CLIENTS = ["watch", "phone", "tablet", "laptop"]


@pytest.fixture
def all_split(tmp_path, monkeypatch):
    """A scenario whose four clients are too weak for the whole model, without waiting."""
    monkeypatch.setattr(roster, "POLL", 0.02)
    monkeypatch.setattr(leases, "_LOOK", 0.02)
    path = write_four(tmp_path, rounds=1, dropout=0.2)
    weak = path.read_text().replace('"0.2 GFLOPS"', '"0.001 GFLOPS"').replace('"2 GFLOPS"', '"0.003 GFLOPS"')
    path.write_text(weak)
    return path


class Told:
    """Every session stops before its second mini-batch, until one was told to move, or can't be."""

    def __init__(self, monkeypatch, name):
        self.name, self.told, self.cuts = name, threading.Event(), {}
        run, propose, look, stays = node.run_at_device, StreamServer.propose, Adapting.look, Adapting.stays

        def run_staged(study, task, ticket, weights, batches, meter):
            return run(study, task, ticket, weights, self.batches(batches), meter)

        def look_and_move(adapting, now, records, lost=()):
            known = {record.session.client: record for record in records}
            change, mine = look(adapting, now, records, lost), known.get(name)
            if self.cuts or mine is None or mine.steps != 1:
                return change
            ways = adapting._watched[name].ways
            self.cuts = {name: next(cut for cut in ways.cuts.tolist() if cut != mine.session.cut)}
            self.before = mine.session.cut
            return replace(change or Replanned(now, "a test says so", 9.0, 8.0, {}), cuts=self.cuts)

        def propose_noted(server, session, move):
            propose(server, session, move)
            self.told.set()

        def stays_noted(adapting, client):
            stays(adapting, client)
            self.told.set()

        monkeypatch.setattr(node, "run_at_device", run_staged)
        monkeypatch.setattr(Adapting, "look", look_and_move)
        monkeypatch.setattr(Adapting, "stays", stays_noted)
        monkeypatch.setattr(StreamServer, "propose", propose_noted)
        monkeypatch.setattr(watched, "_GRACE", PATIENCE)

    def batches(self, batches):
        for place, batch in enumerate(batches):
            if place == 1:
                assert self.told.wait(PATIENCE), "it was never told to move"
            yield batch


@pytest.mark.parametrize("lease", [False, True])
def test_a_cut_that_moves_in_mid_round_changes_no_bit_and_is_kept(all_split, tmp_path, monkeypatch, lease):
    given = settings(all_split, lease=lease, run_dir=str(tmp_path / "run"))
    told = Told(monkeypatch, "phone")
    (step,) = served(MemoryGrid(nodes_of(given)), "r1", given)
    assert not step.record.lost
    (to,) = told.cuts.values()
    moves = {each.name: each.moves for each in step.measured.clients}
    assert moves == {**dict.fromkeys(CLIENTS, ()), "phone": (Moved(2, told.before, to),)}
    assert [dict(each.cuts) for each in step.measured.replanned if each.cuts] == [told.cuts]
    monkeypatch.undo()
    assert step.record.weights_sha256 == sha256_of(given, CLIENTS)
    (kept,) = audit(tmp_path / "run").rounds
    assert {client.name: client.measured.moves for client in kept.clients} == moves
    assert kept.replanned == step.measured.replanned


def test_a_session_that_the_server_has_no_room_for_stays(all_split, monkeypatch):
    given = settings(all_split)
    Told(monkeypatch, "phone")

    def full(admission, task, expect, layers):
        raise EngineError("the server is full")

    monkeypatch.setattr(Admission, "admit_move", full)
    (step,) = served(MemoryGrid(nodes_of(given)), "r1", given)
    assert not any(each.cuts for each in step.measured.replanned)
    assert not any(each.moves for each in step.measured.clients)
    monkeypatch.undo()
    assert step.record.weights_sha256 == sha256_of(given, CLIENTS)


def test_with_move_cuts_false_no_session_may_move(all_split, monkeypatch):
    seen, begin = [], Adapting.__init__

    def noted(adapting, *what):
        begin(adapting, *what)
        seen.append(sum(each.ways is not None for each in adapting._watched.values()))

    monkeypatch.setattr(Adapting, "__init__", noted)
    for allowed in (True, False):
        given = settings(all_split, move_cuts=allowed)
        served(MemoryGrid(nodes_of(given)), "r1", given)
    assert seen == [4, 0]
